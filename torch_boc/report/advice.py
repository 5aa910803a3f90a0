"""Which score to use on which set, in plain sentences."""

from collections.abc import Iterable, Mapping
from typing import Any

from .claims import over, shown
from .results import Results
from .words import FEW, distinct_names, listed, number, quoted, symbol, value_text

# Preferred, in this order, over a score that is no better by more than chance.
STANDARD = ("msp", "energy", "max_logit", "entropy")
# A higher AUROC is worth a less simple score.
WORTH = 0.01


def scores_to_use(results: Results) -> Iterable[str]:
    """A score for each OOD set: a simple one, unless another is shown to be better."""
    table = claimed(results)
    sets = {name: table[table["ood"] == name] for name in distinct_names(table["ood"])}
    asked = over(len(table)), over(int((table["score"] != "msp").sum()))
    if not sets:
        yield "No out-of-distribution set was given, so nothing is said of detection."
    elif len(sets) <= FEW:
        yield from (_advice(name, part, *asked) for name, part in sets.items())
    else:
        yield from _choices(sets, *asked)


def claimed(results: Results) -> Any:
    """The scores that are the right way up, with what is shown over all sets: `above` chance, and `better` than MSP."""
    table = results.ood[~results.ood["upside_down"].astype(bool) & results.ood["auroc"].notna()]
    better = shown(table[table["score"] != "msp"], "versus_msp").reindex(table.index, fill_value=0)
    return table.assign(above=shown(table, "auroc", 0.5), better=better)


def _choices(tables: Mapping[str, Any], of_all: str, of_rivals: str) -> Iterable[str]:
    """A sentence for all sets on which some score helps, and one for the rest."""
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
    best, chosen = highest(table), choose(table)
    where, value = f"On {quoted(name)}", value_text(best, "auroc")
    first, simple = symbol(best["score"]), symbol(chosen["score"])
    if not (table["above"] > 0).any():
        highest_of = f"the highest AUROC is {value}, of {first}"
        return f"{where} no score is shown to do better than chance{of_all}: {highest_of}."
    if chosen["score"] == best["score"]:
        msp = table[table["score"] == "msp"]
        beaten = len(msp) and best["score"] != "msp"
        against = f", against {number(msp.iloc[0]['auroc'])} of MSP{of_rivals}" if beaten else ""
        return f"{where} use {first}: AUROC {value}, the highest{against}."
    if chosen["score"] == "msp" and best["better"] > 0:
        difference = value_text(best, "versus_msp", sign=True)
        return (
            f"{where} {simple} is nearly as good as any: AUROC {number(chosen['auroc'])}; the highest, {first} with "
            f"{value}, is better by {difference}: more than chance{of_rivals}, but little."
        )
    return (
        f"{where} no score is shown to do better than {simple}{of_rivals}: AUROC {number(chosen['auroc'])}; the "
        f"highest is {first} with {value}."
    )


def highest(table: Any) -> Any:
    """The row with the highest AUROC."""
    return table.loc[table["auroc"].idxmax()]


def choose(table: Any) -> Any:
    """The row of the score to use: a standard one, unless another is shown to be better by more than a little."""
    best = highest(table)
    for score in STANDARD:
        row = table[table["score"] == score]
        if not len(row):
            continue
        within = row.iloc[0]["auroc"] >= min(best["auroc"], best["auroc_low"])
        if score != "msp" and within and row.iloc[0]["better"] > 0:
            return row.iloc[0]
        if score == "msp" and (best["better"] <= 0 or (within and best["versus_msp"] <= WORTH)):
            return row.iloc[0]
    return best


def paper_score(results: Results) -> Iterable[str]:
    """Whether the score of the paper ranks backwards."""
    table = results.ood[(results.ood["score"] == "structural_score") & results.ood["auroc"].notna()]
    signs, count = shown(table, "auroc", 0.5), over(len(table), inside=True)
    here = "here" if signs.nunique() < 2 else "there"
    backwards, undecided, forwards = (table[signs == sign] for sign in (-1, 0, 1))
    if len(backwards):
        yield (
            f"The paper’s score s_BoC ranks backwards here (AUROC {aurocs(backwards)}{count}): "
            "use p* (log_p_value) or −Δ (gap), which are the right way up, instead."
        )
    if len(forwards):
        yield (
            f"The paper’s score s_BoC does not rank backwards {here} (AUROC {aurocs(forwards)}{count}): it rewards "
            "doubt, so the network doubts these inputs less than its own."
        )
    if len(undecided):
        yield f"The paper’s score s_BoC is not shown to rank either way {here} (AUROC {aurocs(undecided)}{count})."


def aurocs(table: Any) -> str:
    """The AUROC on each set, or its range over many."""
    if len(table) > FEW:
        return f"{number(table['auroc'].min())} to {number(table['auroc'].max())} on {len(table)} sets"
    return listed([f"{number(row['auroc'])} on {quoted(row['ood'])}" for _, row in table.iterrows()])
