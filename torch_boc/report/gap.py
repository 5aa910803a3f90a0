"""What is the coherence gap made of? The part that confidence forces, the rest, and what either adds to confidence."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..calibration import DominanceConfidence, Uncalibrated
from ..functional.tallies import empty_tally
from ..plots import BLUE, CYCLE, ORANGE, draw_coherence
from .axes import SETS, draw_histograms, finish, panels, plain
from .claims import over, shown
from .parts import NOTHING, Cell, ContrastRow, Figure, Table, Topic, present
from .results import Results
from .words import FEW, listed, measured, names, number, percent, quoted

TEXT = (
    "Given a confidence, the gap can only lie in a narrow band. What confidence forces tells nothing new; what is free "
    "is what the geometry of the logits adds."
)
DOMINANCE = "dominance: the mean chance that the predicted class beats a rival in a coin flip weighted by their logits."
# An interval that reaches further does not show that two AUROC are the same.
TELLING = 0.02
# Two errors are called alike if the interval of their difference reaches no further than this.
ALIKE = 0.01


def gap_table(results: Results) -> Table | None:
    """What the gap is made of in each set: the part that confidence forces, and the rest."""
    titles = ["set", "p̂", "q̄", "Δ", "forced", "free", "forced share", "R²", "ρ", "rejected", "p-value"]
    rows = []
    for _, row in results.gaps.iterrows():
        columns = ["confidence", "dominance", "gap", "forced_gap", "free_gap"]
        rest = [number(row[name], 3) for name in ("r2", "concentration", "rejection_rate", "p_value")]
        values = [*(number(row[name]) for name in columns), percent(forced_share(row)), *rest]
        rows.append([Cell(str(row["set"]), f"{int(row['samples']):,} samples"), *map(Cell, values)])
    return Table("The coherence gap Δ = q̄ − p̂ and its parts: means over each set", titles, rows) if rows else None


def forced_share(row: Any) -> float:
    """The share of the mean gap that confidence forces; NaN if there is no gap."""
    return float(row["forced_gap"] / row["gap"]) if row["gap"] > 0 else math.nan


def coherence(results: Results) -> Any:
    """The mean gap by confidence, over the band that the confidence allows."""
    table = results.coherence[results.coherence["samples"] > 0]
    if not len(table):
        return None
    figure, (axis,) = panels(1)
    draw_coherence(axis, empty_tally(), int(results.settings["classes"]))
    axis.lines[-1].remove()  # the points of the empty tally
    axis.set_title("")
    sets = names(table["set"])[: SETS + 1]
    for name, colour, mark in zip(sets, (ORANGE, *CYCLE[2:], BLUE), "os^Dv<>", strict=False):
        rows, face = table[table["set"] == name], colour if name == results.known else "none"
        axis.plot(
            rows["confidence"], rows["gap"], mark, color=colour, markerfacecolor=face, markersize=5, label=plain(name)
        )
    axis.set_ylabel("mean coherence gap Δ")
    return finish(figure, [axis], "best")


def _describe_coherence(results: Results) -> str:
    parts = [
        f"{row['set']}, mean gap {number(row['gap'])} of which {number(row['forced_gap'])} is forced"
        + (f" ({percent(forced_share(row))})" if row["gap"] > 0 else "")
        for _, row in results.gaps.iterrows()
    ]
    return f"Mean coherence gap by confidence, over the band that the confidence allows. {'; '.join(parts)}"


def gaps(results: Results) -> Any:
    """Histograms of the gap for each set."""
    table = results.histograms[results.histograms["score"] == "gap"]
    if not len(table):
        return None
    figure, (axis,) = panels(1)
    draw_histograms(axis, table)
    axis.set(xlabel="coherence gap Δ", ylabel="share of samples")
    return finish(figure, [axis])


def _describe_gaps(results: Results) -> str:
    means = [f"{row['set']} {number(row['gap'])}" for _, row in results.gaps.iterrows()]
    return f"Histograms of the coherence gap. Mean gap: {', '.join(means)}"


def added_by_gap(results: Results) -> Iterable[str]:
    """How much of the gap confidence forces, and whether it ranks better than confidence."""
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


def dominance(results: Results) -> Iterable[str]:
    """Whether dominance is better calibrated than confidence."""
    table = results.calibration[results.calibration["ece"].notna()]
    plain, boc = (table[table["method"] == x.name] for x in (Uncalibrated, DominanceConfidence))
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


def _contrast() -> Iterable[ContrastRow]:
    for title, kind in (("ID", "id"), ("OOD", "ood")):
        yield Cell(f"mean Δ, {title}"), partial(_of_set, kind, _mean)
        yield Cell(f"forced by p̂, {title}"), partial(_of_set, kind, _share)


def _of_set(kind: str, show: Callable[[Any], Cell], results: Results) -> Cell:
    table = results.gaps[results.gaps["kind"] == kind]
    return show(table.iloc[0]) if len(table) else NOTHING


def _mean(row: Any) -> Cell:
    return Cell(number(row["gap"]))


def _share(row: Any) -> Cell:
    return Cell(percent(forced_share(row)), f"R² {number(row['r2'], 3)}")


GAP = Topic(
    "What the gap is made of",
    lambda results: TEXT,
    lambda results: present(gap_table(results)),
    (
        Figure(
            "coherence",
            coherence,
            "Mean Δ by confidence. Confidence p̂ and the number of classes leave room only inside the band: points on "
            "its lower edge say nothing beyond confidence.",
            _describe_coherence,
        ),
        Figure("gaps", gaps, "How the coherence gap Δ is distributed in each set.", _describe_gaps),
    ),
    sentences=(added_by_gap,),
    details=(dominance,),
    contrast=_contrast,
    glossary=(
        ("q̄", DOMINANCE),
        ("BoC", "Bag of Coins: as a method, dominance q̄ taken for a confidence, as in the paper."),
        ("Δ", "coherence gap, q̄ − p̂. It is never negative, and 0 for two classes."),
        ("forced", "the part of Δ that follows from p̂ and the number of classes: Δ if all rivals were equally strong."),
        ("free", "the rest of Δ: what the geometry of the logits adds."),
        ("R²", "1 − Var(free) / Var(Δ) over the samples of a set: how much of what Δ varies follows the forced part."),
        ("ρ", "concentration: 0 when the rivals share the rest evenly, 1 when it sits on as few rivals as possible."),
    ),
)
