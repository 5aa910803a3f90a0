"""What the numbers say of calibration, in plain sentences."""

from collections.abc import Iterable
from typing import Any

from .layout import known_set, sharing_splits, suspicious_splits
from .results import Results
from .words import listed, measured, names, number, p_text, quoted

# Below this many samples no interval is to be trusted.
FEW_SAMPLES = 100


def few_samples(results: Results) -> Iterable[str]:
    """A warning where a set is too small for its numbers."""
    sizes = results.settings["samples"].items()
    small = [f"{quoted(name)} has {size}" for name, size in sizes if size < FEW_SAMPLES]
    if small:
        yield f"Below {FEW_SAMPLES} samples the numbers are rough and the intervals too narrow: {listed(small)}."


def calibrated(results: Results) -> Iterable[str]:
    table = results.calibration[results.calibration["ece"].notna()]
    seen = table["split"].isin(sharing_splits(results))  # fitted on samples of the test set: no achievement
    table = table[~seen]
    plain = table[table["method"] == "MSP"]
    if not len(plain):
        yield f"{quoted(known_set(results))} has no targets, so nothing is said of calibration."
        return
    msp, best = plain.iloc[0], table.loc[table["ece"].idxmin()]
    fitted = len(names(table["split"])) > 0
    if best["ece"] >= msp["ece"]:
        none = "Nothing was fitted on other samples" if seen.any() else "No calibration set was given"
        rivals = "No method beats" if fitted else f"{none}, and BoC does not beat"
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
            f"against {measured(msp, 'ece')} of plain confidence (MSP).{_perfect(best)}"
        )


def _perfect(row: Any) -> str:
    """Whether a perfectly calibrated confidence could have that error."""
    if not row["ece"] <= row["ece_chance_most"]:
        return ""
    return f" Chance alone gives perfectly calibrated confidences {number(row['ece_chance'])}: it may be perfect."


def _ties(best: Any, table: Any) -> str:
    """The other methods that chance alone may have put behind the best."""
    rest = table[(table["method"] != "MSP") & (table.index != best.name)]
    close = [method(row) for _, row in rest.iterrows() if overlap(row, best, "ece")]
    return f", within chance of {listed(close)}" if close else ""


def leaks(results: Results) -> Iterable[str]:
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


def dominance(results: Results) -> Iterable[str]:
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
