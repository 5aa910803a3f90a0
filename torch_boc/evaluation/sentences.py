"""What the numbers say of calibration, in plain sentences."""

from collections.abc import Iterable
from typing import Any

from .claims import over, shown
from .layout import known_set, sharing_splits, suspicious_splits
from .results import Results
from .words import listed, measured, names, number, p_text, quoted

# Below this many samples no interval is to be trusted.
FEW_SAMPLES = 100
# Two errors are called alike if the interval of their difference reaches no further than this.
ALIKE = 0.01


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
    msp, others = plain.iloc[0], table[table["method"] != "MSP"]
    lowest, better = table.loc[table["ece"].idxmin()], others[shown(others, "ece_versus_msp") < 0]
    if len(better):
        best = better.loc[better["ece"].idxmin()]
        doubt = ", though that split looks like training data" if best["split"] in suspicious_splits(results) else ""
        yield (
            f"Best calibrated is {method(best)}{doubt}{_ties(best, others)}: ECE {measured(best, 'ece')}, against "
            f"{measured(msp, 'ece')} of plain confidence, MSP{over(len(others))}.{_perfect(best)}"
        )
        return
    fitted = len(names(table["split"])) > 0
    none = "Nothing was fitted on other samples" if seen.any() else "No calibration set was given"
    rivals = "No method is" if fitted else f"{none}, and BoC is not"
    rest = ""
    if lowest["method"] != "MSP":
        rest = f"; the lowest, {measured(lowest, 'ece')} of {method(lowest)}, differs by "
        rest += f"{measured(lowest, 'ece_versus_msp', sign=True)}, which is within chance{over(len(others))}"
    said = _perfect(msp) or _perfect(lowest)
    yield f"{rivals} shown to beat plain confidence (MSP), whose ECE is {measured(msp, 'ece')}{rest}.{said}"


def _perfect(row: Any) -> str:
    """Whether a perfectly calibrated confidence could have that error: its interval begins at 0."""
    if not row["ece_low"] <= 0:
        return ""
    chance = number(row["ece_chance"])
    return f" Chance alone gives perfectly calibrated confidences {chance}: {method(row)} may be perfect."


def _ties(best: Any, others: Any) -> str:
    """The other methods whose ECE is not shown to be above the lowest."""
    rest = others[shown(others, "ece_versus_best") == 0]
    close = [method(row) for place, row in rest.iterrows() if place != best.name]
    return f", not told apart from {listed(close)}" if close else ""


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
    difference = measured(other, "ece_versus_msp", sign=True)
    figures = f"ECE {measured(other, 'ece')} against {measured(msp, 'ece')} of MSP, a difference of {difference}"
    (sign,) = shown(boc, "ece_versus_msp")
    if sign > 0:
        yield f"Dominance q̄ taken for a confidence is worse calibrated: {figures}."
    elif sign < 0:
        yield f"Dominance q̄ taken for a confidence is better calibrated, for confidence itself is too low: {figures}."
    elif max(abs(other["ece_versus_msp_low"]), abs(other["ece_versus_msp_high"])) <= ALIKE:
        yield f"Dominance q̄ taken for a confidence is calibrated about as well as confidence itself: {figures}."
    else:
        yield f"Dominance q̄ taken for a confidence is not told apart from confidence itself: {figures}."


def method(row: Any) -> str:
    """A calibration method and the split it was fitted on."""
    return f"{row['method']} fitted on {quoted(row['split'])}" if row["split"] else str(row["method"])
