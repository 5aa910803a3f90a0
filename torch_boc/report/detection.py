"""How well does a score tell samples of the test set from OOD samples? Tables, which score to use, and figures."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ..functional.registry import scores
from ..plots import CYCLE, GREY
from .axes import FONT_SIZE, SETS, draw_histograms, figure_text, finish, panels
from .parts import NOTHING, UPSIDE_DOWN, Cell, ContrastRow, Figure, Table, Topic, are_best, first_cell, row_cell
from .tables import Results
from .words import (
    BASELINE,
    COMPARED_SCORES,
    DASHED,
    FEW,
    HISTOGRAM_SCORES,
    PAPER_SCORE,
    REMEDIES,
    ROC_SCORES,
    SIMPLE,
    axis_name,
    distinct_names,
    listed,
    number,
    over,
    quoted,
    shown,
    symbol,
    value_text,
)

INTRODUCTION = (
    "How well does a score tell samples of the test set from OOD samples? An AUROC of 0.5 is chance; below 0.5 the "
    "score ranks backwards. A lower FPR95 is better."
)
# A score that is less simple than the baseline is recommended if its AUROC is higher by more than this.
WORTH = 0.01
# How many scores of users, that is of detectors and columns, have a ROC curve and a histogram.
OWN_CURVES, OWN_HISTOGRAMS = 3, 2
HISTOGRAMS = 6
SMALL = (3.3, 2.3)


def ood_tables(results: Results) -> list[Table]:
    """For each OOD set, the AUROC, the FPR at 95 % TPR and the AUPR of each score; the best are emphasised."""
    found = []
    for name in distinct_names(results.ood["ood"]):
        table = results.ood[results.ood["ood"] == name]
        kinds = {"auroc": max, "fpr95": min, "aupr": max}
        best = {column: are_best(table[column], choose) for column, choose in kinds.items()}
        rows = []
        for i, (_, row) in enumerate(table.iterrows()):
            called, mark = symbol(row["score"]), UPSIDE_DOWN if row["upside_down"] else ""
            small = row["score"] if called.casefold() != row["score"].casefold() else ""
            values = [row_cell(row, column, best=flags[i]) for column, flags in best.items()]
            difference = NOTHING if row["score"] == BASELINE else row_cell(row, "versus_msp", sign=True)
            rows.append([Cell(called, small, mark=mark), *values, difference])
        both = results.overlaps[(results.overlaps["set"] == name) & results.overlaps["suspicious"].astype(bool)]
        shared = f"; {both.iloc[0]['shared']:,} samples are in both sets" if len(both) else ""
        caption = f"{results.known} (positive) against {name}, with 95 % intervals{shared}"
        heading = f"Out of distribution, {name}: higher AUROC and AUPR, lower FPR95 are better"
        found.append(Table(caption, ["score", "AUROC", "FPR95", "AUPR", "AUROC vs MSP"], rows, heading))
    return found


def scores_to_use(results: Results) -> Iterable[str]:
    """A score for each OOD set: a simple one, unless another is shown to be better."""
    table = claimed(results)
    sets = {name: table[table["ood"] == name] for name in distinct_names(table["ood"])}
    asked = over(len(table)), over(int((table["score"] != BASELINE).sum()))
    if not sets:
        yield "No out-of-distribution set was given, so nothing is said of detection."
    elif len(sets) <= FEW:
        yield from (_advice(name, part, *asked) for name, part in sets.items())
    else:
        yield from _choices(sets, *asked)


def claimed(results: Results) -> Any:
    """The scores that are the right way up, with two more columns, each 1, 0 or -1 as in `shown`.

    `above` compares the AUROC with 0.5, and `better` compares it with the AUROC of the baseline. Both are corrected for
    the number of all rows.
    """
    table = results.ood[~results.ood["upside_down"].astype(bool) & results.ood["auroc"].notna()]
    better = shown(table[table["score"] != BASELINE], "versus_msp").reindex(table.index, fill_value=0)
    return table.assign(above=shown(table, "auroc", 0.5), better=better)


def _choices(tables: Mapping[str, Any], of_all: str, of_rivals: str) -> Iterable[str]:
    """One sentence for all sets on which some score helps, and one for the other sets."""
    groups: dict[str, list[str]] = {}
    for name, table in tables.items():
        score = choose(table)["score"] if (table["above"] > 0).any() else ""
        groups.setdefault(score, []).append(quoted(name))
    hopeless = groups.pop("", [])
    if groups:
        choices = "; ".join(f"{symbol(score)} on {listed(group)}" for score, group in groups.items())
        yield f"Scores to use, a simple one unless another is shown to be better{of_rivals}: {choices}."
    if hopeless:
        yield f"On {listed(hopeless)} no score is shown to do better than chance{of_all}."


def _advice(name: str, table: Any, of_all: str, of_rivals: str) -> str:
    """The sentence about one set.

    Args:
        name: the set.
        table: its rows of `claimed`.
        of_all: a note about the number of all comparisons.
        of_rivals: a note about the number of comparisons with the baseline.
    """
    best, chosen = highest(table), choose(table)
    where, value = f"On {quoted(name)}", value_text(best, "auroc")
    first, simple = symbol(best["score"]), symbol(chosen["score"])
    if not (table["above"] > 0).any():
        highest_of = f"the highest AUROC is {value}, of {first}"
        return f"{where} no score is shown to do better than chance{of_all}: {highest_of}."
    if chosen["score"] == best["score"]:
        baseline = table[table["score"] == BASELINE]
        beaten = len(baseline) and best["score"] != BASELINE
        against = f", against {number(baseline.iloc[0]['auroc'])} of {symbol(BASELINE)}{of_rivals}" if beaten else ""
        return f"{where} use {first}: AUROC {value}, the highest{against}."
    if chosen["score"] == BASELINE and best["better"] > 0:
        difference = value_text(best, "versus_msp", sign=True)
        return (
            f"{where} {simple} is nearly as good as any other score: AUROC {number(chosen['auroc'])}. The highest, "
            f"{first} with {value}, is better by {difference}, which is more than chance{of_rivals} but little."
        )
    return (
        f"{where} no score is shown to do better than {simple}{of_rivals}: AUROC {number(chosen['auroc'])}; the "
        f"highest is {first} with {value}."
    )


def highest(table: Any) -> Any:
    """The row with the highest AUROC."""
    return table.loc[table["auroc"].idxmax()]


def choose(table: Any) -> Any:
    """The row of the score to use: a simple score, unless another is shown to be better by more than a little."""
    best = highest(table)
    for score in SIMPLE:
        row = table[table["score"] == score]
        if not len(row):
            continue
        within = row.iloc[0]["auroc"] >= min(best["auroc"], best["auroc_low"])
        if score != BASELINE and within and row.iloc[0]["better"] > 0:
            return row.iloc[0]
        if score == BASELINE and (best["better"] <= 0 or (within and best["versus_msp"] <= WORTH)):
            return row.iloc[0]
    return best


def paper_score(results: Results) -> Iterable[str]:
    """Whether the paper's score, which is upside down, ranks backwards."""
    table = results.ood[results.ood["upside_down"].astype(bool) & results.ood["auroc"].notna()]
    signs, count = shown(table, "auroc", 0.5), over(len(table), inside=True)
    here = "here" if signs.nunique() < 2 else "there"
    backwards, undecided, forwards = (table[signs == sign] for sign in (-1, 0, 1))
    name = f"The paper’s score {symbol(PAPER_SCORE)}"
    remedies = " or ".join(f"{symbol(score)} ({score})" for score in REMEDIES)
    if len(backwards):
        yield (
            f"{name} ranks backwards here (AUROC {aurocs(backwards)}{count}): "
            f"use {remedies} instead, which are the right way up."
        )
    if len(forwards):
        yield (
            f"{name} does not rank backwards {here} (AUROC {aurocs(forwards)}{count}): it rewards "
            "doubt, so the network has less doubt about these inputs than about those of the test set."
        )
    if len(undecided):
        yield (f"{name} is not shown to rank forwards or backwards {here} (AUROC {aurocs(undecided)}{count}).")


def aurocs(table: Any) -> str:
    """The AUROC on each set, or the range of the AUROC if there are many sets."""
    if len(table) > FEW:
        return f"{number(table['auroc'].min())} to {number(table['auroc'].max())} on {len(table)} sets"
    return listed([f"{number(row['auroc'])} on {quoted(row['ood'])}" for _, row in table.iterrows()])


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
            # The curve of p* lies on that of MSP, so MSP is drawn wide and p* dashed.
            style = {"linewidth": 1.4, "linestyle": "--" if score in DASHED else "-"}
            style = {"linewidth": 3.2, "alpha": 0.55} if score == BASELINE else style
            axis.plot(rows["fpr"], rows["tpr"], color=CYCLE[i], label=label, **style)
        axis.set(xlabel="false positive rate (OOD kept)", ylabel="true positive rate (ID kept)")
        axis.set(xlim=(0, 1), ylim=(0, 1.01))
        axis.set_title(f"{figure_text(results.known)} against {figure_text(name)}", fontsize=FONT_SIZE + 1)
    # The legend is below the axes, because the curve of the paper's score leaves no corner free.
    return finish(figure, axes, "upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, title="AUROC")


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
    return first_cell(results.ood[results.ood["score"] == score], "auroc")


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
