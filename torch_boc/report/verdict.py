"""What the numbers say, in plain sentences."""

from collections.abc import Iterable, Mapping
from typing import Any

from .claims import over, shown
from .layout import forced_share
from .overlaps import overlaps
from .results import Results
from .sentences import calibrated, dominance, few_samples, leaks
from .words import listed, measured, names, number, percent, quoted, symbol

# Preferred, in this order, over a score that is no better by more than chance.
STANDARD = ("msp", "energy", "max_logit", "entropy")
# With more sets than this the reader gets one sentence for all of them.
FEW = 2
# A higher AUROC is worth a less simple score.
WORTH = 0.01
# An interval that reaches further does not show that two AUROC are the same.
TELLING = 0.02


def verdict(results: Results) -> list[str]:
    """Four to seven sentences: calibration and its splits, which score to use, and what the gap adds to confidence."""
    return [
        *few_samples(results),
        *overlaps(results),
        *calibrated(results),
        *leaks(results),
        *_detection(results),
        *_paper_score(results),
        *_gap(results),
        *dominance(results),
    ]


def key_sentences(results: Results) -> list[str]:
    """The few of them that a reader of several reports needs: the rest is plain from a table side by side."""
    return [*few_samples(results), *overlaps(results), *calibrated(results), *_detection(results), *_gap(results)]


def _detection(results: Results) -> Iterable[str]:
    table = claimed(results)
    sets = {name: table[table["ood"] == name] for name in names(table["ood"])}
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
    where, value = f"On {quoted(name)}", measured(best, "auroc")
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
        difference = measured(best, "versus_msp", sign=True)
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


def _paper_score(results: Results) -> Iterable[str]:
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


def _gap(results: Results) -> Iterable[str]:
    if results.settings["classes"] == 2:
        yield "With two classes dominance is confidence, so Δ is 0 for every input and adds nothing."
        return
    table = results.gaps[results.gaps["gap"] > 0]
    if not len(table):
        return
    shares = [forced_share(row) for _, row in table.iterrows()]
    parts = [
        f"{percent(share)} on {quoted(row['set'])}"
        + (f" (R² {number(row['r2'], 3)})" if row["r2"] == row["r2"] else "")
        for share, (_, row) in zip(shares, table.iterrows(), strict=True)
    ]
    if len(parts) > FEW + 1:
        lowest = f" (R² at least {number(table['r2'].min(), 3)})" if table["r2"].notna().any() else ""
        parts = [f"{percent(min(shares))} to {percent(max(shares))}{lowest}"]
    scores = results.ood[(results.ood["score"] == "gap") & results.ood["versus_msp"].notna()]
    start = f"Confidence alone forces {'most' if min(shares) > 0.5 else 'part'} of Δ: {listed(parts)}"
    yield f"{start}; {_against_msp(scores)}." if len(scores) else f"{start}."


def _against_msp(scores: Any) -> str:
    """Whether −Δ ranks better than confidence, over all sets."""
    differences = [
        measured(row, "versus_msp", sign=True) + (f" on {quoted(row['ood'])}" if len(scores) > 1 else "")
        for _, row in scores.iterrows()
    ]
    if len(scores) > FEW:
        ends = (scores["versus_msp"].min(), scores["versus_msp"].max())
        differences = [f"{' to '.join(number(end, sign=True) for end in ends)} on {len(scores)} sets"]
    signs = shown(scores, "versus_msp")
    better, worse = (names(scores[signs == sign]["ood"]) for sign in (1, -1))
    return f"the AUROC of −Δ differs from that of MSP by {listed(differences)}, so {_meaning(scores, better, worse)}"


def _meaning(scores: Any, better: list[str], worse: list[str]) -> str:
    """What −Δ is shown to add to confidence, and on which sets."""

    def where(sets: list[str]) -> str:
        return f" on {listed([quoted(name) for name in sets])}" if len(scores) > 1 else ""

    if better or worse:
        parts = [f"it adds something to confidence{where(better)}"] if better else []
        parts += [f"it ranks worse than confidence{where(worse)}"] if worse else []
        return listed(parts) + over(len(scores))
    widest = scores[["versus_msp_low", "versus_msp_high"]].abs().max(axis=None, skipna=False)
    if not widest <= TELLING:
        return f"whether it adds anything is more than so few samples tell{over(len(scores))}"
    most = max(float(scores["versus_msp_high"].max()), 0.0001)
    return f"as a score it is not shown to add anything to confidence: {number(most)} at most{over(len(scores))}"


def aurocs(table: Any) -> str:
    """The AUROC on each set, or its range over many."""
    if len(table) > FEW:
        return f"{number(table['auroc'].min())} to {number(table['auroc'].max())} on {len(table)} sets"
    return listed([f"{number(row['auroc'])} on {quoted(row['ood'])}" for _, row in table.iterrows()])
