"""The figures of the page."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.axes import FONT_SIZE, figure_text, finish, panels
from benchmarks.paper.beyond import QUANTITIES
from benchmarks.paper.curves import GAP, Curve, ood_of
from benchmarks.paper.experiments import Ours, Published, calibration_of
from benchmarks.paper.sentences import NAMES
from torch_boc.plots import BLUE, CYCLE, GREEN, GREY, ORANGE
from torch_boc.report.words import percent, symbol

Experiments = Sequence[tuple[Published, Ours | None]]
SMALL = (4.3, 2.9)
NARROW = (3.3, 3.0)


def comparison(experiments: Experiments) -> Any:
    """AUROC above and ECE below, a column for each architecture; the paper's hollow, ours filled."""
    figure, axes = panels(2 * len(experiments), SMALL)
    for place, (paper, ours) in enumerate(experiments):
        above, below = axes[place], axes[place + len(experiments)]
        found = {} if ours is None else ours.detection
        rows = [(symbol(score), row["auroc"], _get(found, score, "auroc")) for score, row in paper.numbers.ood.items()]
        _dots(above, [(name, [(there, GREY, "paper"), (here, BLUE, "ours")]) for name, there, here in rows])
        above.axvline(0.5, color=GREY, linewidth=1, linestyle=":")
        above.set(xlim=(0, 1.02), xlabel="AUROC (higher is better)")
        _dots(below, [(method, _errors(paper, ours, method)) for method in paper.numbers.calibration])
        below.set_xlim(left=0)
        below.set_xlabel("ECE (lower is better)")
        below.locator_params(axis="x", nbins=5)
        above.set_title(paper.name + (": ours not run" if ours is None else ""), fontsize=FONT_SIZE + 1)
    finish(figure, axes, None)
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, fontsize=FONT_SIZE, frameon=False)
    return figure


def _errors(paper: Published, ours: Ours | None, method: str) -> list[tuple[float | None, str, str]]:
    marks: list[tuple[float | None, str, str]] = [(paper.numbers.calibration[method]["ece"], GREY, "paper")]
    if ours is not None:
        held_out = calibration_of(ours.held_out, ours.held_out_split)
        marks.append((_get(ours.numbers.calibration, method, "ece"), BLUE, "ours"))
        marks.append((held_out[method]["ece"], GREEN, "ours, calibrators fitted on held-out samples"))
    return marks


def _dots(axis: Any, rows: list[tuple[str, list[tuple[float | None, str, str]]]]) -> None:
    """A line for each row, with a dot for each value that there is."""
    for height, (_, marks) in enumerate(rows):
        for value, colour, label in marks:
            if value is not None:
                face = "none" if label == "paper" else colour
                style = {"markersize": 7, "markerfacecolor": face, "markeredgewidth": 1.4}
                axis.plot([value], [height], "o", color=colour, label=label, zorder=3, **style)
    axis.set_yticks(range(len(rows)), [name for name, _ in rows])
    axis.invert_yaxis()


def _get(table: Mapping[str, Mapping[str, float]], row: str, column: str) -> float | None:
    return float(table[row][column]) if row in table else None


def beyond(entries: Sequence[Ours]) -> Any:
    """AUROC at equal confidence, and what each quantity adds to a model of confidence; intervals of 95 %."""
    tables = [(f"{ours.entry.name}, {ood}", table) for ours in entries for ood, table in ours.beyond.items()]
    figure, (left, right) = panels(2, (5.2, 3.4))
    added = QUANTITIES[1:]
    parts = ((left, "strata", "auroc", 0.5, QUANTITIES), (right, "model", "versus_confidence", 0.0, added))
    for axis, how, column, nothing, shown in parts:
        for i, (label, table) in enumerate(tables):
            rows = table[table["how"] == how].set_index("what").loc[list(shown)]
            heights = [j + 0.18 * (i - (len(tables) - 1) / 2) for j in range(len(shown))]
            reach = [rows[column] - rows[f"{column}_low"], rows[f"{column}_high"] - rows[column]]
            style = {"color": CYCLE[i], "markersize": 5, "capsize": 3, "label": figure_text(label)}
            axis.errorbar(rows[column], heights, xerr=reach, fmt="os^D"[i % 4], **style)
        sign = "" if how == "model" else "−"
        axis.set_yticks(range(len(shown)), [NAMES[x] if x == "confidence" else f"{sign}{NAMES[x]}" for x in shown])
        axis.set_ylim(len(shown) - 0.5, -0.5)
        axis.axvline(nothing, color=GREY, linewidth=1, linestyle=":")
    left.set_xlabel("AUROC at equal confidence (0.5: nothing)")
    right.set_xlabel("AUROC of a model, gained over confidence (0: nothing)")
    finish(figure, [left, right], None)
    handles = left.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=FONT_SIZE, frameon=False)
    return figure


def training(curves: Mapping[str, Curve]) -> Any:
    """The mean gap of both sets in each epoch, a panel for each model, with the part that confidence forces."""
    count = len(curves)
    figure, axes = panels(4 if count == 3 else count, NARROW if count > 1 else SMALL)  # two in a row can be read small
    for spare in axes[count:]:
        spare.remove()
    for (name, curve), axis in zip(curves.items(), axes, strict=False):
        ood = ood_of(curve)
        ours, others = "val/boc", f"val/boc/{ood}"
        places = ["top", "bottom"] if curve[-1].get(f"{others}/gap", 1.0) >= curve[-1][GAP] else ["bottom", "top"]
        _course(axis, curve, ours, "o", BLUE, "Δ, in-distribution", places[0])
        _course(axis, curve, others, "s", ORANGE, "Δ, out-of-distribution", places[1])
        axis.set_title(figure_text(f"{name}, OOD: {ood}" if ood else name), fontsize=FONT_SIZE + 1)
        axis.set(xlabel="epoch", ylabel="mean coherence gap Δ")
        axis.set_ylim(bottom=0)
        axis.xaxis.get_major_locator().set_params(integer=True)
    finish(figure, axes[:count], None)
    handles = {label: handle for handle, label in zip(*axes[0].get_legend_handles_labels(), strict=True)}
    handles["what confidence alone forces"] = Line2D([], [], linestyle=":", color=GREY, linewidth=1.4)
    handles["the rest, which is free"] = Patch(color=GREY, alpha=0.4, linewidth=0)
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=2, fontsize=FONT_SIZE, frameon=False)
    return figure


def _course(axis: Any, curve: Curve, prefix: str, mark: str, colour: str, label: str, place: str) -> None:
    """Δ as a line, the forced part below it as another, what is free as the ribbon between, and the share at the end.

    The top or the bottom of the share is where the line ends, so that the shares of two lines do not meet.
    """
    keys = (f"{prefix}/gap", f"{prefix}/forced_gap")
    points = [(row["epoch"] + 1, *(row[key] for key in keys)) for row in curve if all(key in row for key in keys)]
    if not points:
        return
    epochs, gaps, forced = zip(*points, strict=True)
    axis.plot(epochs, gaps, f"{mark}-", color=colour, markersize=3.5, linewidth=1.4, label=label)
    axis.plot(epochs, forced, ":", color=colour, linewidth=1.4)
    axis.fill_between(epochs, forced, gaps, color=colour, alpha=0.3, linewidth=0)
    if gaps[-1] > 0:
        style = {"color": colour, "fontsize": FONT_SIZE - 1, "linespacing": 1.0, "va": place, "annotation_clip": False}
        share = f"{percent(forced[-1] / gaps[-1])}\nforced"
        axis.annotate(share, (epochs[-1], gaps[-1]), xytext=(7, 0), textcoords="offset points", **style)
