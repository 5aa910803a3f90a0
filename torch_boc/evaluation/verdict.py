"""What the numbers say, in plain sentences."""

from collections.abc import Iterable, Mapping
from typing import Any

from .layout import forced_share, known_set, suspicious_splits
from .results import Results
from .words import listed, measured, names, number, p_text, percent, quoted

# Preferred, in this order, over a score that is no better by more than chance.
STANDARD = ("msp", "energy", "max_logit", "entropy")
# With more sets than this the reader gets one sentence for all of them.
FEW = 2
# An interval that reaches further does not show that two AUROC are the same.
TELLING = 0.02


def verdict(results: Results) -> list[str]:
    """Four to seven sentences: calibration and its splits, which score to use, and what the gap adds to confidence."""
    return [
        *_calibration(results),
        *_leaks(results),
        *_detection(results),
        *_paper_score(results),
        *_gap(results),
        *_dominance(results),
    ]


def _calibration(results: Results) -> Iterable[str]:
    table = results.calibration[results.calibration["ece"].notna()]
    plain = table[table["method"] == "MSP"]
    if not len(plain):
        yield f"{quoted(known_set(results))} has no targets, so nothing is said of calibration."
        return
    msp, best = plain.iloc[0], table.loc[table["ece"].idxmin()]
    fitted = len(names(table["split"])) > 0
    if best["ece"] >= msp["ece"]:
        rivals = "No method beats" if fitted else "No calibration set was given, and BoC does not beat"
        yield f"{rivals} plain confidence (MSP), whose ECE is {measured(msp, 'ece')}."
    elif overlap(best, msp, "ece"):
        yield (
            f"No method clearly beats plain confidence (MSP): the lowest ECE, {measured(best, 'ece')} of "
            f"{method(best)}, overlaps with {measured(msp, 'ece')}."
        )
    else:
        doubt = ", though that split looks like training data" if best["split"] in suspicious_splits(results) else ""
        yield (
            f"Best calibrated is {method(best)}{doubt}{_ties(best, table)}: ECE {measured(best, 'ece')}, "
            f"against {measured(msp, 'ece')} of plain confidence (MSP)."
        )


def _ties(best: Any, table: Any) -> str:
    """The other methods that chance alone may have put behind the best."""
    rest = table[(table["method"] != "MSP") & (table.index != best.name)]
    close = [method(row) for _, row in rest.iterrows() if overlap(row, best, "ece")]
    return f", within chance of {listed(close)}" if close else ""


def _leaks(results: Results) -> Iterable[str]:
    fits = results.calibration[results.calibration["method"] == "temperature"]
    for _, row in results.leaks.iterrows():
        if not row["suspicious"]:
            continue
        fit = fits[(fits["split"] == row["split"]) & (fits["temperature"] < 1)]
        fault = "what is fitted on it does not carry over"
        if len(fit):
            fault = f"the temperature fitted on it, {number(fit.iloc[0]['temperature'], 3)}, is below 1 and sharpens"
        yield (
            f"The calibration split {quoted(row['split'])} looks like training data: accuracy "
            f"{number(row['accuracy'])} there against {number(row['test_accuracy'])} on test "
            f"(p {p_text(row['p_value'])}); {fault}. Do not use it."
        )


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
        choices = "; ".join(f"{score} on {listed(group)}" for score, group in groups.items())
        yield f"Scores to use, a simple one where the best is within chance of it: {choices}."
    if hopeless:
        yield f"On {listed(hopeless)} no score does better than chance."


def _advice(results: Results, name: str) -> str:
    table = of_set(results, name)
    best, chosen = highest(table), choose(table)
    where, value = f"On {quoted(name)}", measured(best, "auroc")
    if is_chance(best):
        return f"{where} no score does better than chance: the highest AUROC is {value}, of {best['score']}."
    if chosen["score"] == best["score"]:
        msp = table[table["score"] == "msp"]
        against = f", against {number(msp.iloc[0]['auroc'])} of msp" if len(msp) and best["score"] != "msp" else ""
        return f"{where} use {best['score']}: AUROC {value}, the highest{against}."
    if chosen["score"] == "msp" and best["versus_msp_low"] > 0:
        difference = measured(best, "versus_msp", sign=True)
        return (
            f"{where} msp is nearly as good as any: AUROC {number(chosen['auroc'])}; the highest, {best['score']} with "
            f"{value}, is better by {difference}: more than chance, but little."
        )
    return (
        f"{where} {chosen['score']} is as good as any: AUROC {number(chosen['auroc'])}, within the interval of the "
        f"highest, {best['score']} with {value}."
    )


def highest(table: Any) -> Any:
    """The row with the highest AUROC."""
    return table.loc[table["auroc"].idxmax()]


def is_chance(row: Any) -> bool:
    """Whether the AUROC is no more than that of a coin, as far as its interval tells."""
    return bool(row["auroc"] <= 0.5 or row["auroc_low"] <= 0.5)


def choose(table: Any) -> Any:
    """The row of the score to use: a standard one, if it lies within the interval of the best."""
    best = highest(table)
    for score in STANDARD:
        row = table[table["score"] == score]
        if len(row) and row.iloc[0]["auroc"] >= min(best["auroc"], best["auroc_low"]):
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
            "use p_value or −Δ (gap), which are the right way up, instead."
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
    neither = "it adds nothing that confidence does not tell"
    meaning = {
        (False, False): neither if widest <= TELLING else "whether it adds anything is more than so few samples tell",
        (True, False): "it adds something to confidence",
        (False, True): "it ranks worse than confidence",
        (True, True): "it ranks better than confidence on some sets and worse on others",
    }[bool(better), bool(worse)]
    return f"the AUROC of −Δ differs from that of msp by {listed(differences)}, so {meaning}"


def _dominance(results: Results) -> Iterable[str]:
    table = results.calibration[results.calibration["ece"].notna()]
    plain, boc = table[table["method"] == "MSP"], table[table["method"] == "BoC"]
    if not len(plain) or not len(boc) or results.settings["classes"] == 2:
        return
    msp, other = plain.iloc[0], boc.iloc[0]
    figures = f"ECE {measured(other, 'ece')} against {measured(msp, 'ece')} of MSP"
    if overlap(other, msp, "ece"):
        yield f"Dominance q̄ taken for a confidence is calibrated about as well as confidence itself: {figures}."
    elif other["ece"] > msp["ece"]:
        yield f"Dominance q̄ taken for a confidence is worse calibrated: {figures}."
    else:
        yield f"Dominance q̄ taken for a confidence is better calibrated, for confidence itself is too low: {figures}."


def overlap(one: Any, other: Any, column: str) -> bool:
    """Whether the intervals of a column overlap; values without an interval are told apart by themselves."""
    low, high = f"{column}_low", f"{column}_high"
    return bool(one[low] <= other[high] and other[low] <= one[high])


def method(row: Any) -> str:
    """A calibration method and the split it was fitted on."""
    return f"{row['method']} fitted on {quoted(row['split'])}" if row["split"] else str(row["method"])


def aurocs(table: Any) -> str:
    """The AUROC on each set, or its range over many."""
    if len(table) > FEW:
        return f"{number(table['auroc'].min())} to {number(table['auroc'].max())} on {len(table)} sets"
    return listed([f"{number(row['auroc'])} on {quoted(row['ood'])}" for _, row in table.iterrows()])
