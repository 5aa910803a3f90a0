"""Which score to use on which set, in plain sentences."""

from collections.abc import Iterable, Mapping
from typing import Any

from .choices import BASELINE, REMEDIES, SIMPLE
from .claims import over, shown
from .results import Results
from .words import FEW, distinct_names, listed, number, quoted, symbol, value_text

# A score that is less simple than the baseline is recommended if its AUROC is higher by more than this.
WORTH = 0.01


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
    remedies = " or ".join(f"{symbol(score)} ({score})" for score in REMEDIES)
    if len(backwards):
        yield (
            f"{_paper_score(backwards)} ranks backwards here (AUROC {aurocs(backwards)}{count}): "
            f"use {remedies} instead, which are the right way up."
        )
    if len(forwards):
        yield (
            f"{_paper_score(forwards)} does not rank backwards {here} (AUROC {aurocs(forwards)}{count}): it rewards "
            "doubt, so the network has less doubt about these inputs than about those of the test set."
        )
    if len(undecided):
        yield (
            f"{_paper_score(undecided)} is not shown to rank forwards or backwards {here} "
            f"(AUROC {aurocs(undecided)}{count})."
        )


def _paper_score(table: Any) -> str:
    return f"The paper’s score {symbol(table.iloc[0]['score'])}"


def aurocs(table: Any) -> str:
    """The AUROC on each set, or the range of the AUROC if there are many sets."""
    if len(table) > FEW:
        return f"{number(table['auroc'].min())} to {number(table['auroc'].max())} on {len(table)} sets"
    return listed([f"{number(row['auroc'])} on {quoted(row['ood'])}" for _, row in table.iterrows()])
