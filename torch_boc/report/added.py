"""What the gap Δ and the dominance q̄ add to confidence, in plain sentences."""

import math
from collections.abc import Iterable
from typing import Any

from ..calibration import DominanceConfidence, Uncalibrated
from .claims import over, shown
from .results import Results
from .words import FEW, distinct_names, listed, number, percent, quoted, value_text

# If an interval reaches further than this, the samples are too few to say that two AUROC are the same.
TELLING = 0.02
# Two errors are called alike if the interval of their difference reaches no further than this.
ALIKE = 0.01


def forced_share(row: Any) -> float:
    """The share of the mean gap that confidence forces; NaN if the gap is 0."""
    return float(row["forced_gap"] / row["gap"]) if row["gap"] > 0 else math.nan


def added_by_gap(results: Results) -> Iterable[str]:
    """How much of the gap confidence forces, and whether the gap ranks better than confidence."""
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
    """Whether −Δ ranks better than confidence, for all sets together."""
    differences = [
        value_text(row, "versus_msp", sign=True) + (f" on {quoted(row['ood'])}" if len(scores) > 1 else "")
        for _, row in scores.iterrows()
    ]
    if len(scores) > FEW:
        ends = (scores["versus_msp"].min(), scores["versus_msp"].max())
        differences = [f"{' to '.join(number(end, sign=True) for end in ends)} on {len(scores)} sets"]
    signs = shown(scores, "versus_msp")
    better, worse = (distinct_names(scores[signs == sign]["ood"]) for sign in (1, -1))
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
        return f"there are too few samples to tell whether it adds anything{over(len(scores))}"
    most = max(float(scores["versus_msp_high"].max()), 0.0001)
    return f"it is not shown to add anything to confidence as a score: at most {number(most)}{over(len(scores))}"


def dominance_sentence(results: Results) -> Iterable[str]:
    """Whether dominance is better calibrated than confidence."""
    table = results.calibration[results.calibration["ece"].notna()]
    plain, boc = (table[table["method"] == x.name] for x in (Uncalibrated, DominanceConfidence))
    if not len(plain) or not len(boc) or results.settings["classes"] == 2:
        return
    msp, other = plain.iloc[0], boc.iloc[0]
    difference = value_text(other, "ece_versus_msp", sign=True)
    figures = f"ECE {value_text(other, 'ece')} against {value_text(msp, 'ece')} of MSP, a difference of {difference}"
    (sign,) = shown(boc, "ece_versus_msp")
    if sign > 0:
        yield f"Dominance q̄ used as a confidence is worse calibrated: {figures}."
    elif sign < 0:
        said = (
            f"Dominance q̄ used as a confidence is better calibrated, because confidence itself is too low: {figures}."
        )
        yield said + _too_high(results, float(other["ece"]))
    elif max(abs(other["ece_versus_msp_low"]), abs(other["ece_versus_msp_high"])) <= ALIKE:
        yield f"Dominance q̄ used as a confidence is calibrated about as well as confidence itself: {figures}."
    else:
        yield f"Dominance q̄ used as a confidence is not shown to be better or worse calibrated: {figures}."


def _too_high(results: Results, error: float) -> str:
    """That dominance is too high, if that is most of its error: with many classes it is close to 1 for every sample."""
    mean = float(results.gaps[results.gaps["kind"] == "id"]["dominance"].mean())
    right = float(results.settings.get("accuracy", math.nan))
    if not mean - right > error / 2:
        return ""
    return (
        f" But q̄ itself is too high: it is {number(mean)} on average, and {number(right)} of the predictions are right."
    )
