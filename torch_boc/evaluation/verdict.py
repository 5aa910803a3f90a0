"""What the numbers say, in plain sentences."""

from collections.abc import Iterable, Mapping
from typing import Any

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
    sets = [name for name in names(results.ood["ood"]) if len(of_set(results, name))]
    if not sets:
        yield "No out-of-distribution set was given, so nothing is said of detection."
    elif len(sets) <= FEW:
        yield from (_advice(results, name) for name in sets)
    else:
        yield from _choices({name: of_set(results, name) for name in sets})


def _choices(tables: Mapping[str, Any]) -> Iterable[str]:
    """A sentence for all sets on which some score helps, and one for the rest."""
    groups: dict[str, list[str]] = {}
    for name, table in tables.items():
        score = "" if is_chance(highest(table)) else choose(table)["score"]
        groups.setdefault(score, []).append(quoted(name))
    hopeless = groups.pop("", [])
    if groups:
        choices = "; ".join(f"{symbol(score)} on {listed(group)}" for score, group in groups.items())
        yield f"Scores to use, a simple one where the best is within chance of it: {choices}."
    if hopeless:
        yield f"On {listed(hopeless)} no score does better than chance."


def _advice(results: Results, name: str) -> str:
    table = of_set(results, name)
    best, chosen = highest(table), choose(table)
    where, value = f"On {quoted(name)}", measured(best, "auroc")
    first, simple = symbol(best["score"]), symbol(chosen["score"])
    if is_chance(best):
        return f"{where} no score does better than chance: the highest AUROC is {value}, of {first}."
    if chosen["score"] == best["score"]:
        msp = table[table["score"] == "msp"]
        against = f", against {number(msp.iloc[0]['auroc'])} of MSP" if len(msp) and best["score"] != "msp" else ""
        return f"{where} use {first}: AUROC {value}, the highest{against}."
    if chosen["score"] == "msp" and best["versus_msp_low"] > 0:
        difference = measured(best, "versus_msp", sign=True)
        return (
            f"{where} {simple} is nearly as good as any: AUROC {number(chosen['auroc'])}; the highest, {first} with "
            f"{value}, is better by {difference}: more than chance, but little."
        )
    return (
        f"{where} {simple} is as good as any: AUROC {number(chosen['auroc'])}, within the interval of the "
        f"highest, {first} with {value}."
    )


def highest(table: Any) -> Any:
    """The row with the highest AUROC."""
    return table.loc[table["auroc"].idxmax()]


def is_chance(row: Any) -> bool:
    """Whether the AUROC is no more than that of a coin, as far as its interval tells."""
    return bool(row["auroc"] <= 0.5 or row["auroc_low"] <= 0.5)


def choose(table: Any) -> Any:
    """The row of the score to use: a standard one, if the best is within chance of it or hardly better."""
    best = highest(table)
    for score in STANDARD:
        row = table[table["score"] == score]
        if not len(row) or row.iloc[0]["auroc"] < min(best["auroc"], best["auroc_low"]):
            continue
        surely_worse = score == "msp" and best["versus_msp_low"] > 0
        if not surely_worse or best["versus_msp"] <= WORTH:
            return row.iloc[0]
    return best


def of_set(results: Results, name: str) -> Any:
    """The scores of an OOD set that are the right way up and have an AUROC."""
    table = results.ood[(results.ood["ood"] == name) & ~results.ood["upside_down"].astype(bool)]
    return table[table["auroc"].notna()]


def _paper_score(results: Results) -> Iterable[str]:
    table = results.ood[(results.ood["score"] == "structural_score") & results.ood["auroc"].notna()]
    below = table["auroc_high"].fillna(table["auroc"]) < 0.5
    backwards, forwards = table[below], table[~below]
    if len(backwards):
        yield (
            f"The paper’s score s_BoC ranks backwards here (AUROC {aurocs(backwards)}): "
            "use p* (p_value) or −Δ (gap), which are the right way up, instead."
        )
    if len(forwards):
        yield (
            f"The paper’s score s_BoC does not rank backwards {'there' if len(backwards) else 'here'} "
            f"(AUROC {aurocs(forwards)}): it rewards doubt, so the network doubts these inputs no more than its own."
        )


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
    # As printed: nobody should read that 0.0000 is worse.
    better, worse = (scores["versus_msp_low"].round(4) > 0).any(), (scores["versus_msp_high"].round(4) < 0).any()
    widest = scores[["versus_msp_low", "versus_msp_high"]].abs().max(axis=None, skipna=False)
    neither = "as a score it adds nothing to confidence"
    meaning = {
        (False, False): neither if widest <= TELLING else "whether it adds anything is more than so few samples tell",
        (True, False): "it adds something to confidence",
        (False, True): "it ranks worse than confidence",
        (True, True): "it ranks better than confidence on some sets and worse on others",
    }[bool(better), bool(worse)]
    return f"the AUROC of −Δ differs from that of MSP by {listed(differences)}, so {meaning}"


def aurocs(table: Any) -> str:
    """The AUROC on each set, or its range over many."""
    if len(table) > FEW:
        return f"{number(table['auroc'].min())} to {number(table['auroc'].max())} on {len(table)} sets"
    return listed([f"{number(row['auroc'])} on {quoted(row['ood'])}" for _, row in table.iterrows()])
