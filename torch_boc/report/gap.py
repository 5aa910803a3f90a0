"""What is the coherence gap made of? The part that confidence forces, and the part that is free."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..functional.tally import empty_tally
from ..plots import BLUE, CYCLE, ORANGE, draw_coherence
from .added import added_by_gap, dominance_sentence, forced_share
from .axes import SETS, draw_histograms, figure_text, finish, panels
from .parts import NOTHING, Cell, ContrastRow, Figure, Table, Topic, present
from .results import Results
from .words import distinct_names, number, percent

INTRODUCTION = (
    "For a given confidence, the gap can only lie in a narrow band. The part of the gap that the confidence forces "
    "tells nothing new. The free part is what the geometry of the logits adds."
)
DOMINANCE = "dominance: the mean chance that the predicted class beats a rival in a coin flip weighted by their logits."


def gap_table(results: Results) -> Table | None:
    """The mean gap of each set, the part of it that confidence forces, and the free part."""
    titles = ["set", "p̂", "q̄", "Δ", "forced", "free", "forced share", "R²", "ρ", "rejected", "p-value"]
    rows = []
    for _, row in results.gaps.iterrows():
        columns = ["confidence", "dominance", "gap", "forced_gap", "free_gap"]
        rest = [number(row[name], 3) for name in ("r2", "concentration", "rejection_rate", "p_value")]
        values = [*(number(row[name]) for name in columns), percent(forced_share(row)), *rest]
        rows.append([Cell(str(row["set"]), f"{int(row['samples']):,} samples"), *map(Cell, values)])
    return Table("The coherence gap Δ = q̄ − p̂ and its parts: means over each set", titles, rows) if rows else None


def coherence_figure(results: Results) -> Any:
    """The mean gap in each bin of confidence, and the band that the confidence allows."""
    table = results.coherence[results.coherence["samples"] > 0]
    if not len(table):
        return None
    figure, (axis,) = panels(1)
    draw_coherence(axis, empty_tally(), int(results.settings["classes"]))
    axis.lines[-1].remove()  # the line for the means, which is empty
    axis.set_title("")
    sets = distinct_names(table["set"])[: SETS + 1]
    for name, colour, mark in zip(sets, (ORANGE, *CYCLE[2:], BLUE), "os^Dv<>", strict=False):
        rows, face = table[table["set"] == name], colour if name == results.known else "none"
        axis.plot(
            rows["confidence"],
            rows["gap"],
            mark,
            color=colour,
            markerfacecolor=face,
            markersize=5,
            label=figure_text(name),
        )
    axis.set_ylabel("mean coherence gap Δ")
    return finish(figure, [axis], "best")


def _describe_coherence(results: Results) -> str:
    parts = [
        f"{row['set']}, mean gap {number(row['gap'])} of which {number(row['forced_gap'])} is forced"
        + (f" ({percent(forced_share(row))})" if row["gap"] > 0 else "")
        for _, row in results.gaps.iterrows()
    ]
    return f"Mean coherence gap in each bin of confidence, and the band that the confidence allows. {'; '.join(parts)}"


def gap_figure(results: Results) -> Any:
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
    lambda results: INTRODUCTION,
    lambda results: present(gap_table(results)),
    (
        Figure(
            "coherence",
            coherence_figure,
            "Mean Δ in each bin of confidence. The confidence p̂ and the number of classes allow only values inside the "
            "band. Points on its lower edge tell nothing beyond confidence.",
            _describe_coherence,
        ),
        Figure("gaps", gap_figure, "How the coherence gap Δ is distributed in each set.", _describe_gaps),
    ),
    sentences=(added_by_gap,),
    details=(dominance_sentence,),
    contrast=_contrast,
    glossary=(
        ("q̄", DOMINANCE),
        ("BoC", "Bag of Coins: as a calibration method, dominance q̄ used as a confidence, as in the paper."),
        ("Δ", "coherence gap, q̄ − p̂. It is never negative, and 0 for two classes."),
        ("forced", "the part of Δ that follows from p̂ and the number of classes: the Δ of equally strong rivals."),
        ("free", "the rest of Δ, which the geometry of the logits adds."),
        ("R²", "1 − Var(free) / Var(Δ) over the samples of a set: the part of the variance of Δ that is forced."),
        (
            "ρ",
            "concentration: 0 if all rivals are equally strong, 1 if the probability is on as few rivals as possible.",
        ),
    ),
)
