"""The coherence gap: what it adds to confidence, and the paper’s numbers."""

import math
from functools import partial
from typing import Any

import torch

from ..calibration import DominanceConfidence
from ..functional.bounds import dominance_bounds, forced_gap
from ..plots import CYCLE, SKY
from .chart import Chart
from .elements import Cell, Section, Table, cells, make_table
from .format import (
    FEW,
    comparisons_note,
    ece_text,
    join_words,
    list_or_range,
    number,
    percent,
    value_text,
)
from .results import Results, where

# If an interval reaches further than this, the samples are too few to say that two AUROC are the same.
TELLING = 0.02
# A smaller difference of two AUROC is of no practical use.
RELEVANT = 0.005
TWO_CLASSES = "With two classes dominance is confidence, so the coherence gap Δ is 0 for every input and adds nothing."
NOTHING_ADDED = "it adds nothing of practical size to confidence"
NOTE = (
    "Dots: mean Δ in each bin of confidence. Confidence and the number of classes allow only values inside the band; a "
    "dot on its lower edge adds nothing to confidence."
)
MORE = "The Bag-of-Coins paper’s numbers: gap, dominance, p-value"
# By the sign of the difference from confidence.
CALIBRATED = {-1: "better calibrated", 0: "not shown to be better or worse calibrated", 1: "worse calibrated"}
# By the sign of the AUROC minus 0.5.
RANKS = {
    -1: "ranks backwards here (AUROC {}){}: use confidence instead.",
    0: "is not shown to rank forwards or backwards here (AUROC {}){}.",
    1: "does not rank backwards here (AUROC {}){}: confidence is higher here, or Δ rises with it.",
}


def coherence_section(results: Results) -> Section:
    """The gap of each set with its forced part; the paper’s calibrator, test and score are in the fold."""
    aside = [*dominance_sentence(results), *paper_sentences(results)]
    more = {MORE: [gap_table(results)]}
    return Section("Coherence gap", gap_sentences(results), coherence_chart(results), more=more, note=NOTE, aside=aside)


def forced_shares(results: Results) -> Any:
    """The gaps of all sets, with the share that confidence forces; NaN if the gap is 0."""
    table = results.gaps
    return table.assign(share=table["forced_gap"] / table["gap"].where(table["gap"] > 0))


def gap_sentences(results: Results) -> list[str]:
    """How much of the gap confidence forces, and whether q̄ separates better than confidence does.

    With equal rivals q̄ rises with confidence, so that the difference is due to the geometry of the logits. −Δ does not
    rise with confidence everywhere, see `paper_sentences`.
    """
    if results.settings["classes"] == 2:
        return [TWO_CLASSES]
    table = forced_shares(results).dropna(subset="share")
    if not len(table):
        return []
    parts = []
    for share, name, r2 in zip(table["share"], table["set"], table["r2"], strict=True):
        parts.append(f"{percent(share)} on “{name}”" + (f" (R² {number(r2, 3)})" if r2 == r2 else ""))
    most = "most" if table["share"].min() > 0.5 else "part"
    shares = list_or_range(parts, table["share"], percent, FEW + 1)
    sentences = [f"Confidence forces {most} of the coherence gap Δ: {shares}."]
    rows = where(results.ood, score="dominance").dropna(subset="versus_msp")
    if not len(rows):
        return sentences
    several, verdicts = len(rows) > 1, []
    on_set = " on “{}”" if several else ""
    values = [value_text(row, "versus_msp", sign=True) + on_set.format(row["ood"]) for _, row in rows.iterrows()]
    signs = rows["versus_sign"].where(rows["versus_msp"].abs() >= RELEVANT, 0)
    for sign, words in ((1, "the geometry of the logits adds to confidence"), (-1, "it ranks worse than confidence")):
        sets = [f"“{name}”" for name in rows[signs == sign]["ood"]]
        verdicts += [f"{words} on {join_words(sets)}" if several else words] if sets else []
    unsure = not rows[["versus_msp_low", "versus_msp_high"]].abs().max(axis=None, skipna=False) <= TELLING
    nothing = "the samples are too few to tell whether it adds anything" if unsure else NOTHING_ADDED
    by = list_or_range(values, rows["versus_msp"], partial(number, sign=True))
    lead = f"The AUROC of dominance q̄ differs from confidence's by {by}"
    return [*sentences, f"{lead}: {join_words(verdicts or [nothing])}{comparisons_note(len(rows))}."]


def dominance_sentence(results: Results) -> list[str]:
    """Whether dominance is better calibrated than confidence."""
    rows = where(results.calibration, method=DominanceConfidence.name).dropna(subset="ece")
    if results.settings["classes"] == 2:
        return []
    lead = "Dominance q̄ used as a confidence is"
    return [f"{lead} {CALIBRATED[x['sign']]} than confidence itself: {ece_text(x)}." for _, x in rows.iterrows()]


def paper_sentences(results: Results) -> list[str]:
    """What the paper's test rejects, whether the paper's score ranks backwards, and when the others of it do.

    The forced gap is (C − 2) p (1 − p) / ((C − 2) p + 1). It rises with the confidence p up to 1 / (1 + √(C − 1)), and
    falls above. So −Δ and p*, which are nearly functions of confidence, rank as confidence does only above.
    """
    classes, sentences = int(results.settings["classes"]), []
    for _, row in where(results.screening, test="paper", kind="id")[:1].iterrows():
        invalid = classes > 2 and row["flagged"] > row["alpha"]
        why = ": its level does not hold, because its null hypothesis is false for three classes or more"
        rejects = f"The paper’s test rejects {percent(row['flagged'])} of “{row['set']}” at the 5 % level"
        sentences.append(f"{rejects}{why if invalid else ''}.")
    table = where(results.ood, upside_down=True).dropna(subset="auroc")
    for sign, words in RANKS.items():
        rows = table[table["auroc_sign"] == sign]
        if len(rows):
            areas = [f"{number(area)} on “{name}”" for area, name in zip(rows["auroc"], rows["ood"], strict=True)]
            verdict = words.format(list_or_range(areas, rows["auroc"], number), comparisons_note(len(table)))
            sentences.append(f"The paper’s score s_BoC {verdict}")
    if len(table) and classes > 2:
        above = f"−Δ and p* rank as confidence does only where it is above {percent(1 / (1 + math.sqrt(classes - 1)))}."
        sentences.append(f"{above} Below that, the gap that confidence forces rises with confidence.")
    return sentences


def gap_table(results: Results) -> Table:
    """The mean gap of each set, the part of it that confidence forces, and the free part."""
    table = forced_shares(results)
    columns = {"set": [Cell(name, f"{n:,} samples") for name, n in zip(table["set"], table["samples"], strict=True)]}
    titles = {"p̂": "confidence", "q̄": "dominance", "Δ": "gap", "forced": "forced_gap", "free": "free_gap"}
    titles |= {"forced share": "share", "R²": "r2", "ρ": "concentration", "rejected": "rejection_rate"}
    for title, column in (titles | {"p-value": "p_value"}).items():
        columns[title] = cells(table, column)
    return make_table("The coherence gap Δ = q̄ − p̂ and its parts: means over each set", columns)


def coherence_chart(results: Results) -> dict[str, tuple[Chart, str]]:
    """The mean gap in each bin of confidence, and the band that the confidence allows."""
    table, classes = results.coherence[results.coherence["samples"] > 0], int(results.settings["classes"])
    if not len(table):
        return {}
    confidence = torch.linspace(max(1 / classes, float(table["confidence"].min()) - 0.03), 1, 120, dtype=torch.float64)
    odds = (1 - confidence) / confidence
    least = forced_gap(odds, classes)
    # For two classes a difference of equal numbers would leave the errors of rounding.
    most = (dominance_bounds(odds, classes)[1] - confidence).maximum(least) if classes > 2 else least
    highest = max(0.01, float(most.max()), float(table["gap"].max()))
    chart = Chart("confidence", "mean coherence gap", (float(confidence[0]), 1), (0, highest), percent="x")
    chart.band(confidence.tolist(), least.tolist(), most.tolist(), SKY, "possible")
    chart.line(confidence.tolist(), least.tolist(), SKY, "forced by confidence")
    for (name, rows), colour in zip(table.groupby("set", sort=False), CYCLE, strict=False):
        chart.name(name, f'<circle cx="8" cy="-4" r="4" fill="{colour}"/>')
        for _, row in rows.iterrows():
            tooltip = f"{name}: Δ {number(row['gap'])} at {percent(row['confidence'])}, {row['samples']:,} samples"
            chart.dot(row["confidence"], row["gap"], colour, tooltip)
    alt = "Mean coherence gap in each bin of confidence, and the band of possible gaps."
    for _, row in results.gaps.iterrows():
        alt += f" {row['set']}: mean gap {number(row['gap'])}, of which {number(row['forced_gap'])} is forced."
    return {"coherence": (chart, alt)}
