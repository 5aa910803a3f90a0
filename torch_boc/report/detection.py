"""How well does a score tell samples of the test set from OOD samples? Tables, ROC curves and histograms."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..functional.registry import scores
from ..plots import CYCLE, GREY
from .advice import paper_score, scores_to_use
from .axes import FONT_SIZE, SETS, draw_histograms, figure_text, finish, panels
from .choices import BASELINE, COMPARED_SCORES, DASHED, HISTOGRAM_SCORES, ROC_SCORES
from .parts import NOTHING, UPSIDE_DOWN, Cell, ContrastRow, Figure, Table, Topic, are_best, value_cell
from .results import Results
from .words import axis_name, distinct_names, interval_text, number, symbol

INTRODUCTION = (
    "How well does a score tell samples of the test set from OOD samples? An AUROC of 0.5 is chance; below 0.5 the "
    "score ranks backwards. A lower FPR95 is better."
)
# How many scores of users, that is of detectors and columns, have a ROC curve and a histogram.
OWN_CURVES, OWN_HISTOGRAMS = 3, 2
HISTOGRAMS = 6
SMALL = (3.3, 2.3)


def ood_tables(results: Results) -> list[Table]:
    """For each OOD set, the AUROC, the FPR at 95 % TPR and the AUPR of each score; the best are emphasised."""
    return [_ood_table(results, name) for name in distinct_names(results.ood["ood"])]


def _ood_table(results: Results, name: str) -> Table:
    table = results.ood[results.ood["ood"] == name]
    kinds = (("auroc", max), ("fpr95", min), ("aupr", max))
    best = [are_best(table[column], choose) for column, choose in kinds]
    rows = []
    for i, (_, row) in enumerate(table.iterrows()):
        called, mark = symbol(row["score"]), UPSIDE_DOWN if row["upside_down"] else ""
        values = [
            Cell(number(row[column]), interval_text(row, column), flags[i])
            for (column, _), flags in zip(kinds, best, strict=True)
        ]
        difference = Cell(number(row["versus_msp"], sign=True), interval_text(row, "versus_msp", sign=True))
        itself = row["score"] == BASELINE
        small = row["score"] if called.casefold() != row["score"].casefold() else ""
        rows.append([Cell(called, small, mark=mark), *values, NOTHING if itself else difference])
    return Table(
        f"{results.known} (positive) against {name}, with 95 % intervals{_shared(results, name)}",
        ["score", "AUROC", "FPR95", "AUPR", "AUROC vs MSP"],
        rows,
        heading=f"Out of distribution, {name}: higher AUROC and AUPR, lower FPR95 are better",
    )


def _shared(results: Results, name: str) -> str:
    """A note if an OOD set has samples of the test set in it."""
    table = results.overlaps[(results.overlaps["set"] == name) & results.overlaps["suspicious"].astype(bool)]
    return f"; {table.iloc[0]['shared']:,} samples are in both sets" if len(table) else ""


def main_scores(results: Results, ood: str) -> list[str]:
    """The scores whose ROC curves are drawn: some of the registry, and the best of those that users add."""
    table = results.ood[results.ood["ood"] == ood].sort_values("auroc", ascending=False, kind="stable")
    own = [score for score, kind in zip(table["score"], table["kind"], strict=True) if kind != "score"]
    drawn = set(results.roc[results.roc["ood"] == ood]["score"])
    return [score for score in (*ROC_SCORES, *own[:OWN_CURVES]) if score in drawn]


def roc_sets(results: Results) -> list[str]:
    """The OOD sets that have a panel of ROC curves."""
    return [name for name in distinct_names(results.roc["ood"]) if main_scores(results, name)][:SETS]


def roc_figure(results: Results) -> Any:
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
            axis.plot(rows["fpr"], rows["tpr"], color=CYCLE[i], label=label, **_line_of(score))
        axis.set(xlabel="false positive rate (OOD kept)", ylabel="true positive rate (ID kept)")
        axis.set(xlim=(0, 1), ylim=(0, 1.01))
        axis.set_title(f"{figure_text(results.known)} against {figure_text(name)}", fontsize=FONT_SIZE + 1)
    # The legend is below the axes, because the curve of the paper's score leaves no corner free.
    return finish(figure, axes, "upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, title="AUROC")


def _line_of(score: str) -> dict[str, Any]:
    """How a ROC curve is drawn. The curve of p* lies on that of MSP, so MSP is drawn wide and p* dashed."""
    if score == BASELINE:
        return {"linewidth": 3.2, "alpha": 0.55}
    return {"linewidth": 1.4, "linestyle": "--" if score in DASHED else "-"}


def _describe_roc(results: Results) -> str:
    parts = []
    for name in roc_sets(results):
        table = results.ood[results.ood["ood"] == name].set_index("score")
        areas = [
            f"{symbol(score)} {number(table.loc[score, 'auroc'], 3)}"
            + (f" ({UPSIDE_DOWN})" if table.loc[score, "upside_down"] else "")
            for score in main_scores(results, name)
        ]
        parts.append(f"{results.known} against {name}: AUROC {', '.join(areas)}")
    return f"ROC curves. {'; '.join(parts)}"


def histogram_scores(results: Results) -> list[str]:
    """The scores that have a small histogram: some of the registry, and the first two that users add."""
    drawn = set(results.histograms["score"])
    added = distinct_names(results.ood[results.ood["kind"] != "score"]["score"])
    own = [name for name in added if name in drawn][:OWN_HISTOGRAMS]
    return [name for name in HISTOGRAM_SCORES if name in drawn][: HISTOGRAMS - len(own)] + own


def score_figure(results: Results) -> Any:
    """Small histograms of some scores, for the test set and the OOD sets."""
    table, chosen = results.histograms, histogram_scores(results)
    if not chosen or len(distinct_names(table["set"])) < 2:
        return None
    figure, axes = panels(len(chosen), SMALL)
    for axis, score in zip(axes, chosen, strict=True):
        draw_histograms(axis, table[table["score"] == score])
        axis.set_title(axis_name(score), fontsize=FONT_SIZE + 1)
        axis.locator_params(axis="x", nbins=4)
    figure.supxlabel("score (higher = more in-distribution)", fontsize=FONT_SIZE + 1)
    figure.supylabel("share of samples", fontsize=FONT_SIZE + 1)
    finish(figure, axes, None)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(
        *handles, loc="outside upper center", ncols=min(4, len(handles[0])), fontsize=FONT_SIZE, frameon=False
    )
    return figure


def _describe_scores(results: Results) -> str:
    parts = []
    for name in distinct_names(results.ood["ood"]):
        table = results.ood[results.ood["ood"] == name].set_index("score")["auroc"]
        areas = [
            f"{symbol(score)} {number(table[score], 3)}" for score in histogram_scores(results) if score in table.index
        ]
        parts.append(f"AUROC against {name}: {', '.join(areas)}")
    sets = ", ".join(distinct_names(results.histograms["set"]))
    return ". ".join([f"Small histograms of the main scores for {sets}", *parts])


def _contrast() -> Iterable[ContrastRow]:
    for score in COMPARED_SCORES:
        mark = UPSIDE_DOWN if score in scores and scores[score].upside_down else ""
        yield Cell(f"AUROC, {symbol(score)}", mark=mark), partial(_area, score)


def _area(score: str, results: Results) -> Cell:
    return value_cell(results.ood[results.ood["score"] == score], "auroc")


DETECTION = Topic(
    "Out-of-distribution detection",
    lambda results: INTRODUCTION,
    ood_tables,
    (
        Figure(
            "roc",
            roc_figure,
            "ROC curves with their AUROC; the test set is positive. MSP is drawn wide, because p* often lies on it.",
            _describe_roc,
        ),
        Figure(
            "scores",
            score_figure,
            "The scores in bins that are the same for every set. The end bins include all values beyond them.",
            _describe_scores,
        ),
    ),
    sentences=(scores_to_use,),
    details=(paper_score,),
    contrast=_contrast,
    glossary=(
        ("AUROC", "the chance that a sample of the test set scores higher than an out-of-distribution sample."),
        ("FPR95", "the share of out-of-distribution samples above the threshold that 95 % of the test set are above."),
        ("AUPR", "area under the curve of precision against recall, with the test set as the positive class."),
    ),
)
