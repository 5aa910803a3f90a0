"""The coherence gap: what it is made of, what it adds to confidence, and whether the number of flips matters."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from ..calibration import DominanceConfidence, Uncalibrated
from ..functional.tallies import empty_tally
from ..plots import BLUE, CYCLE, GREY, ORANGE, draw_coherence
from .axes import SETS, draw_histograms, figure_text, finish, panels
from .parts import NOTHING, UPSIDE_DOWN, Cell, ContrastRow, Figure, Table, Topic
from .tables import Results
from .words import FEW, distinct_names, listed, number, over, percent, quoted, shown, value_text

INTRODUCTION = (
    "For a given confidence, the gap can only lie in a narrow band. The part of the gap that the confidence forces "
    "tells nothing new. The free part is what the geometry of the logits adds."
)
FLIPS_INTRODUCTION = "The deterministic variant uses the expected number of wins, the Monte Carlo variant draws it."
DOMINANCE = "dominance: the mean chance that the predicted class beats a rival in a coin flip weighted by their logits."
# If an interval reaches further than this, the samples are too few to say that two AUROC are the same.
TELLING = 0.02
# Two errors are called alike if the interval of their difference reaches no further than this.
ALIKE = 0.01
# A line looks flat if its values vary by less than this part of the height of the axis.
FLAT = 0.02
# The axis of the calibration error ends at this multiple of the largest error.
ROOM = 1.6


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


def gap_tables(results: Results) -> list[Table]:
    """The mean gap of each set, the part of it that confidence forces, and the free part."""
    titles = ["set", "p̂", "q̄", "Δ", "forced", "free", "forced share", "R²", "ρ", "rejected", "p-value"]
    rows = []
    for _, row in results.gaps.iterrows():
        columns = ["confidence", "dominance", "gap", "forced_gap", "free_gap"]
        rest = [number(row[name], 3) for name in ("r2", "concentration", "rejection_rate", "p_value")]
        values = [*(number(row[name]) for name in columns), percent(forced_share(row)), *rest]
        rows.append([Cell(str(row["set"]), f"{int(row['samples']):,} samples"), *map(Cell, values)])
    return [Table("The coherence gap Δ = q̄ − p̂ and its parts: means over each set", titles, rows)] if rows else []


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
        yield Cell(f"mean Δ, {title}"), partial(_first, kind, "gap")
        yield Cell(f"forced by p̂, {title}"), partial(_first, kind, "forced_gap")


def _first(kind: str, column: str, results: Results) -> Cell:
    """The mean gap of the first set of a kind, or the share of it that confidence forces."""
    for _, row in results.gaps[results.gaps["kind"] == kind].iterrows():
        if column == "gap":
            return Cell(number(row["gap"]))
        return Cell(percent(forced_share(row)), f"R² {number(row['r2'], 3)}")
    return NOTHING


def axis_top(table: Any, column: str) -> float:
    """Where the axis of a column ends: at 1 for the AUROC, above the largest value for the calibration error."""
    return 1.0 if column == "auroc" else float(ROOM * table[column].max()) or 1.0


def spans(results: Results) -> list[tuple[str, float, float, float]]:
    """For each quantity in the figure, its name, its lowest and highest value, and the height of its axis."""
    table = results.trials
    found = []
    if table["ece"].notna().any():
        found.append(("the ECE of BoC", table["ece"].min(), table["ece"].max(), axis_top(table, "ece")))
    for name in distinct_names(table["ood"]):
        rows = table[(table["ood"] == name) & table["auroc"].notna()]
        if len(rows):
            found.append((f"the AUROC of s_BoC on “{name}”", rows["auroc"].min(), rows["auroc"].max(), 1.0))
    return found


def all_flat(results: Results) -> bool:
    """Whether all lines of the figure would be flat."""
    return all(high - low <= FLAT * height for _, low, high, height in spans(results))


def flat_sentence(results: Results) -> str:
    """The sentence instead of the figure; "" if there is a figure."""
    found = spans(results)
    if not found or not all_flat(results):
        return ""
    counts = sorted(set(results.trials["trials"]))
    said = listed([f"{what} {_range(low, high)}" for what, low, high, _ in found])
    many = f"from k = {int(counts[0])} to {int(counts[-1])}" if len(counts) > 1 else f"at k = {int(counts[0])}"
    return f"Here the number of flips hardly matters: {many}, in both variants, {said}."


def _range(low: float, high: float) -> str:
    ends = number(low), number(high)
    return f"is {ends[0]}" if ends[0] == ends[1] else f"stays within {ends[0]} and {ends[1]}"


def trial_tables(results: Results) -> list[Table]:
    """The ECE of BoC and the AUROC of the paper's score for each number of flips."""
    table = results.trials
    variants, sets = list(dict.fromkeys(table["variant"])), distinct_names(table["ood"])
    wanted: list[tuple[str, str, str | None]] = []
    if table["ece"].notna().any():
        wanted += [(f"ECE, {variant}", variant, None) for variant in variants]
    wanted += [(f"AUROC on {name}, {variant}", variant, name) for name in sets for variant in variants]
    rows = [
        [Cell(str(int(k))), *(Cell(_at(table, k, variant, name)) for _, variant, name in wanted)]
        for k in dict.fromkeys(table["trials"])
    ]
    caption = "Number of flips k: ECE of BoC and AUROC of the paper’s score (upside down)"
    return [Table(caption, ["k", *(title for title, _, _ in wanted)], rows)] if wanted else []


def _at(table: Any, k: float, variant: str, name: str | None) -> str:
    rows = table[(table["trials"] == k) & (table["variant"] == variant)]
    column = rows["ece"] if name is None else rows[rows["ood"] == name]["auroc"]
    return number(float(column.iloc[0])) if len(column) else "–"


def trial_figure(results: Results) -> Any:
    """The ECE and the AUROC over the number of flips; Monte Carlo is dashed. None if all lines are flat."""
    table = results.trials
    kinds = [name for name in ("ece", "auroc") if len(table) and table[name].notna().any()]
    if not kinds or all_flat(results):
        return None
    figure, axes = panels(len(kinds))
    for axis, kind in zip(axes, kinds, strict=True):
        draw_trials(axis, table, kind, [""] if kind == "ece" else distinct_names(table["ood"]))
    return finish(figure, axes, "best")


def draw_trials(axis: Any, table: Any, column: str, sets: list[str]) -> None:
    """A line for each variant and set. The axis begins at 0, so that small differences look small."""
    for name, colour in zip(sets[:SETS], CYCLE, strict=False):
        for variant, style in (("deterministic", "o-"), ("Monte Carlo", "s--")):
            rows = table[(table["variant"] == variant) & ((table["ood"] == name) if name else True)]
            rows = rows.drop_duplicates("trials").sort_values("trials")
            dashed = variant == "Monte Carlo"
            if len(sets) == 1:
                colour, label = (ORANGE if dashed else BLUE), variant
            else:
                label = "" if dashed else figure_text(name)
            axis.plot(rows["trials"], rows[column], style, color=colour, markersize=4.5, linewidth=1.4, label=label)
    if len(sets) > 1:
        axis.plot([], [], "s--", color=GREY, markersize=4.5, linewidth=1.4, label="dashed: Monte Carlo")
    ticks = sorted(set(table["trials"]))
    axis.set_xscale("log")
    axis.set_xticks(ticks, [str(int(k)) for k in ticks])
    axis.minorticks_off()
    axis.set(xlabel="number of flips k", ylabel="ECE of BoC" if column == "ece" else f"AUROC of s_BoC ({UPSIDE_DOWN})")
    axis.set_ylim(0, axis_top(table, column))


def _describe_trials(results: Results) -> str:
    parts = []
    for column, title in (("ece", "ECE of BoC"), ("auroc", "AUROC of the paper’s score")):
        for variant in dict.fromkeys(results.trials["variant"]):
            rows = results.trials[(results.trials["variant"] == variant) & results.trials[column].notna()]
            if len(rows):
                low, high = number(rows[column].min()), number(rows[column].max())
                parts.append(f"{title}, {variant}: {low} to {high}")
    counts = listed([str(int(k)) for k in dict.fromkeys(results.trials["trials"])])
    return f"Lines over the number of flips, k = {counts}. {'; '.join(parts)}"


GAP = Topic(
    "What the gap is made of",
    lambda results: INTRODUCTION,
    gap_tables,
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

FLIPS = Topic(
    "Number of flips",
    lambda results: f"{FLIPS_INTRODUCTION} {flat_sentence(results)}".strip(),
    trial_tables,
    (
        Figure(
            "trials", trial_figure, "The number of flips k matters only where the lines are not flat.", _describe_trials
        ),
    ),
    glossary=(
        ("k", "number of coin flips."),
        ("p*", "the p-value of the expected wins in k coin flips, Pr{Binomial(k, p̂) ≥ round(k q̄)}."),
        (
            "rejected",
            "the share of samples with p* of at most 0.05. The column p-value has the mean p* of all samples.",
        ),
        ("s_BoC", "the paper’s score, 1 − p*. It is upside down: higher means less confident."),
    ),
)
