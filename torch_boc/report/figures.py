"""The figures of a report: the paper's four kinds, and the band; matplotlib Figure objects made without pyplot."""

from collections.abc import Callable
from typing import Any

from ..functional.tally import empty_tally
from ..plots import BLUE, CYCLE, FEW_SAMPLES, GREEN, GREY, ORANGE, draw_coherence
from .axes import TEXT, finish, panels, plain
from .flips import is_flat, top
from .layout import UPSIDE_DOWN, known_set
from .results import Results
from .words import axis_name, names, symbol

# Scores that a figure shows, so that it stays readable; what users add themselves comes after, the best first.
MAIN_SCORES = ("msp", "energy", "log_p_value", "structural_score")
OWN_SCORES = 3
HISTOGRAM_SCORES = ("msp", "energy", "log_p_value", "dominance", "logit_gap", "concentration")
HISTOGRAMS = 6
# Panels and lines for the first so many sets; the tables have all of them.
SETS = 6
CURVES = {"MSP": (BLUE, "o-"), "temperature": (GREEN, "^-"), "BoC": (ORANGE, "s--")}
SECOND_SPLIT = "#CC79A7"
SMALL = (3.3, 2.3)


def figures(results: Results) -> dict[str, Any]:
    """A figure by name, without those that have nothing to show."""
    makers: dict[str, Callable[[Results], Any]] = {
        "reliability": reliability,
        "roc": roc,
        "gaps": gaps,
        "coherence": coherence,
        "trials": trials,
        "scores": score_histograms,
    }
    made = {name: make(results) for name, make in makers.items()}
    return {name: figure for name, figure in made.items() if figure is not None}


def reliability(results: Results) -> Any:
    """Accuracy against confidence with bootstrap bands, for plain confidence, temperature and BoC."""
    table = results.reliability[results.reliability["samples"] >= FEW_SAMPLES]
    curves = reliability_curves(results)
    if not curves or not len(table):
        return None
    figure, (axis,) = panels(1)
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    for i, (method, split, label) in enumerate(curves):
        rows = table[(table["method"] == method) & (table["split"] == split)].sort_values("bin_low")
        colour, style = CURVES[method]
        colour = SECOND_SPLIT if any(method == other for other, _, _ in curves[:i]) else colour
        axis.fill_between(
            rows["confidence"], rows["accuracy_low"], rows["accuracy_high"], color=colour, alpha=0.18, linewidth=0
        )
        axis.plot(rows["confidence"], rows["accuracy"], style, color=colour, markersize=4, linewidth=1.4, label=label)
    axis.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    return finish(figure, [axis], "upper left")


def reliability_curves(results: Results) -> list[tuple[str, str, str]]:
    """Method, split and label of what the reliability diagram shows: with several splits the first two temperatures."""
    table = results.reliability
    pairs = list(dict.fromkeys(zip(table["method"], table["split"], strict=True)))
    fits = [pair for pair in pairs if pair[0] == "temperature"][:2]
    chosen = [pair for pair in pairs if pair in fits or pair[0] in ("MSP", "BoC")]
    return [(method, split, f"{method}, {split}" if len(fits) > 1 and split else method) for method, split in chosen]


def main_scores(results: Results, ood: str) -> list[str]:
    """The scores whose ROC curves are drawn: the main ones, and the best of those that users add."""
    table = results.ood[results.ood["ood"] == ood].sort_values("auroc", ascending=False, kind="stable")
    own = [score for score, kind in zip(table["score"], table["kind"], strict=True) if kind != "score"]
    drawn = set(results.roc[results.roc["ood"] == ood]["score"])
    return [score for score in (*MAIN_SCORES, *own[:OWN_SCORES]) if score in drawn]


def roc_sets(results: Results) -> list[str]:
    """The OOD sets that have a panel of ROC curves."""
    return [name for name in names(results.roc["ood"]) if main_scores(results, name)][:SETS]


def roc(results: Results) -> Any:
    """ROC curves of the main scores, a panel for each OOD set."""
    sets = roc_sets(results)
    if not sets:
        return None
    figure, axes = panels(len(sets), (4.8, 4.5))
    for axis, name in zip(axes, sets, strict=True):
        curves, areas = results.roc[results.roc["ood"] == name], results.ood[results.ood["ood"] == name]
        axis.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
        for i, score in enumerate(main_scores(results, name)):
            rows, row = curves[curves["score"] == score], areas[areas["score"] == score].iloc[0]
            label = f"{symbol(score)} {row['auroc']:.3f}" + (f" ({UPSIDE_DOWN})" if row["upside_down"] else "")
            axis.plot(rows["fpr"], rows["tpr"], color=CYCLE[i], label=label, **line_of(score))
        axis.set(xlabel="false positive rate (OOD kept)", ylabel="true positive rate (ID kept)")
        axis.set(xlim=(0, 1), ylim=(0, 1.01))
        axis.set_title(f"{plain(known_set(results))} against {plain(name)}", fontsize=TEXT + 1)
    # Below the axes: within them the curve of the paper's score leaves no corner free.
    return finish(figure, axes, "upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, title="AUROC")


def line_of(score: str) -> dict[str, Any]:
    """How a ROC curve is drawn: p* lies on MSP, so one is wide and the other dashed."""
    if score == "msp":
        return {"linewidth": 3.2, "alpha": 0.55}
    return {"linewidth": 1.4, "linestyle": "--" if score in ("log_p_value", "structural_score") else "-"}


def gaps(results: Results) -> Any:
    """Histograms of the gap for each set."""
    table = results.histograms[results.histograms["score"] == "gap"]
    if not len(table):
        return None
    figure, (axis,) = panels(1)
    draw_histograms(axis, table)
    axis.set(xlabel="coherence gap Δ", ylabel="share of samples")
    return finish(figure, [axis])


def draw_histograms(axis: Any, table: Any) -> None:
    """Histograms of one score, a colour for each set; on a logarithmic scale where most samples share a bin."""
    sets = names(table["set"])[: SETS + 1]
    for name, colour in zip(sets, CYCLE, strict=False):
        rows = table[table["set"] == name].sort_values("bin_low")
        edges = [*rows["bin_low"], rows["bin_high"].iloc[-1]]
        if len(sets) <= 3:
            axis.stairs(rows["share"], edges, fill=True, alpha=0.3, color=colour)
        axis.stairs(rows["share"], edges, color=colour, linewidth=1.2, label=plain(name))
    if table["share"].max() > 0.5:
        axis.set_yscale("log")
        axis.set_ylim(max(1e-5, table["share"][table["share"] > 0].min() / 2), 1.5)


def coherence(results: Results) -> Any:
    """The mean gap by confidence, over the band that the confidence allows."""
    table = results.coherence[results.coherence["samples"] > 0]
    if not len(table):
        return None
    figure, (axis,) = panels(1)
    draw_coherence(axis, empty_tally(), int(results.settings["classes"]))
    axis.lines[-1].remove()  # the points of the empty tally
    axis.set_title("")
    sets = names(table["set"])[: SETS + 1]
    for name, colour, mark in zip(sets, (ORANGE, *CYCLE[2:], BLUE), "os^Dv<>", strict=False):
        rows, face = table[table["set"] == name], colour if name == known_set(results) else "none"
        axis.plot(
            rows["confidence"], rows["gap"], mark, color=colour, markerfacecolor=face, markersize=5, label=plain(name)
        )
    axis.set_ylabel("mean coherence gap Δ")
    return finish(figure, [axis], "best")


def trials(results: Results) -> Any:
    """ECE and AUROC against the number of flips, deterministic solid and Monte Carlo dashed; None if all is flat."""
    table = results.trials
    kinds = [name for name in ("ece", "auroc") if len(table) and table[name].notna().any()]
    if not kinds or is_flat(results):
        return None
    figure, axes = panels(len(kinds))
    for axis, kind in zip(axes, kinds, strict=True):
        draw_trials(axis, table, kind, [""] if kind == "ece" else names(table["ood"]))
    return finish(figure, axes, "best")


def draw_trials(axis: Any, table: Any, column: str, sets: list[str]) -> None:
    """A line for each variant and set, from 0 up, so that small differences look small."""
    for name, colour in zip(sets[:SETS], CYCLE, strict=False):
        for variant, style in (("deterministic", "o-"), ("Monte Carlo", "s--")):
            rows = table[(table["variant"] == variant) & ((table["ood"] == name) if name else True)]
            rows = rows.drop_duplicates("trials").sort_values("trials")
            dashed = variant == "Monte Carlo"
            if len(sets) == 1:
                colour, label = (ORANGE if dashed else BLUE), variant
            else:
                label = "" if dashed else plain(name)
            axis.plot(rows["trials"], rows[column], style, color=colour, markersize=4.5, linewidth=1.4, label=label)
    if len(sets) > 1:
        axis.plot([], [], "s--", color=GREY, markersize=4.5, linewidth=1.4, label="dashed: Monte Carlo")
    ticks = sorted(set(table["trials"]))
    axis.set_xscale("log")
    axis.set_xticks(ticks, [str(int(k)) for k in ticks])
    axis.minorticks_off()
    axis.set(xlabel="number of flips k", ylabel="ECE of BoC" if column == "ece" else f"AUROC of s_BoC ({UPSIDE_DOWN})")
    axis.set_ylim(0, top(table, column))


def histogram_scores(results: Results) -> list[str]:
    """The scores that have a small histogram: the main ones, the last of them giving way to two that users add."""
    present = set(results.histograms["score"])
    own = [name for name in names(results.ood[results.ood["kind"] != "score"]["score"]) if name in present][:2]
    return [name for name in HISTOGRAM_SCORES if name in present][: HISTOGRAMS - len(own)] + own


def score_histograms(results: Results) -> Any:
    """Small histograms of the main scores, known samples against the others."""
    table, chosen = results.histograms, histogram_scores(results)
    if not chosen or len(names(table["set"])) < 2:
        return None
    figure, axes = panels(len(chosen), SMALL)
    for axis, score in zip(axes, chosen, strict=True):
        draw_histograms(axis, table[table["score"] == score])
        axis.set_title(axis_name(score), fontsize=TEXT + 1)
        axis.locator_params(axis="x", nbins=4)
    figure.supxlabel("score (higher = more in-distribution)", fontsize=TEXT + 1)
    figure.supylabel("share of samples", fontsize=TEXT + 1)
    finish(figure, axes, None)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=min(4, len(handles[0])), fontsize=TEXT, frameon=False)
    return figure
