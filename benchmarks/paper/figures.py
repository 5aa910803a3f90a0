"""The figures of the page."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paper.curves import Curve, ood_of
from benchmarks.paper.experiments import Ours, Published, calibration_of
from benchmarks.paper.sentences import NAMES
from torch_boc.evaluation.axes import TEXT, finish, panels, plain
from torch_boc.evaluation.beyond import QUANTITIES
from torch_boc.evaluation.words import symbol
from torch_boc.plots import BLUE, CYCLE, GREEN, GREY, ORANGE

Experiments = Sequence[tuple[Published, Ours | None]]
SMALL = (4.3, 2.9)


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
        above.set_title(paper.name + (": ours not run" if ours is None else ""), fontsize=TEXT + 1)
    finish(figure, axes, None)
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, fontsize=TEXT, frameon=False)
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
            style = {"color": CYCLE[i], "markersize": 5, "capsize": 3, "label": plain(label)}
            axis.errorbar(rows[column], heights, xerr=reach, fmt="os^D"[i % 4], **style)
        sign = "" if how == "model" else "−"
        axis.set_yticks(range(len(shown)), [NAMES[x] if x == "confidence" else f"{sign}{NAMES[x]}" for x in shown])
        axis.set_ylim(len(shown) - 0.5, -0.5)
        axis.axvline(nothing, color=GREY, linewidth=1, linestyle=":")
    left.set_xlabel("AUROC at equal confidence (0.5: nothing)")
    right.set_xlabel("AUROC of a model, gained over confidence (0: nothing)")
    finish(figure, [left, right], None)
    handles = left.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=TEXT, frameon=False)
    return figure


def training(curves: Mapping[str, Curve]) -> Any:
    """The gap of both sets in each epoch, with its forced part, above; accuracy and AUROC below."""
    figure, _ = panels(1)
    figure.clear()
    figure.set_size_inches(4.6 * len(curves), 5.6)
    axes = figure.subplots(2, len(curves), squeeze=False, sharex="col")
    for (name, curve), (above, below) in zip(curves.items(), axes.T, strict=True):
        ood = ood_of(curve)
        for label, prefix, colour in (("ID", "val/boc", BLUE), (ood, f"val/boc/{ood}", ORANGE)):
            _line(above, curve, f"{prefix}/gap", "o-", colour, f"Δ, {label}")
            _line(above, curve, f"{prefix}/forced_gap", ":", colour, f"forced by p̂, {label}")
        _line(below, curve, "val/boc/accuracy", "o-", BLUE, "accuracy")
        _line(below, curve, f"val/boc/{ood}/msp_auroc", "s-", GREEN, f"AUROC of MSP, {ood}")
        _line(below, curve, f"val/boc/{ood}/gap_auroc", "--", ORANGE, f"AUROC of −Δ, {ood}")
        above.set_title(plain(name), fontsize=TEXT + 1)
        above.set_ylim(0, 1.6 * above.dataLim.y1)  # room for the legend
        below.set(xlabel="epoch", ylim=(0, 1))
        below.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel("mean coherence gap Δ")
    finish(figure, list(axes[0]), "upper right")
    return finish(figure, list(axes[1]), "lower right")


def _line(axis: Any, curve: Curve, key: str, style: str, colour: str, label: str) -> None:
    points = [(row["epoch"] + 1, row[key]) for row in curve if key in row]
    if points:
        axis.plot(*zip(*points, strict=True), style, color=colour, markersize=3.5, linewidth=1.4, label=label)
