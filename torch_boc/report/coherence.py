"""The coherence gap: what it is made of, what it adds to confidence, and whether the number of flips matters."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from ..calibration import DominanceConfidence, Uncalibrated
from ..functional.tally import empty_tally
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
    """Whether −Δ is shown to rank better than confidence, and on which sets."""
    several, count = len(scores) > 1, over(len(scores))
    differences = [
        value_text(row, "versus_msp", sign=True) + (f" on {quoted(row['ood'])}" if several else "")
        for _, row in scores.iterrows()
    ]
    if len(scores) > FEW:
        ends = (scores["versus_msp"].min(), scores["versus_msp"].max())
        differences = [f"{' to '.join(number(end, sign=True) for end in ends)} on {len(scores)} sets"]
    signs, found = shown(scores, "versus_msp"), []
    for sign, words in ((1, "it adds something to confidence"), (-1, "it ranks worse than confidence")):
        sets = [quoted(name) for name in distinct_names(scores[signs == sign]["ood"])]
        found += [f"{words} on {listed(sets)}" if several else words] if sets else []
    widest = scores[["versus_msp_low", "versus_msp_high"]].abs().max(axis=None, skipna=False)
    if found:
        meaning = f"{listed(found)}{count}"
    elif not widest <= TELLING:
        meaning = f"there are too few samples to tell whether it adds anything{count}"
    else:
        most = number(max(float(scores["versus_msp_high"].max()), 0.0001))
        meaning = f"it is not shown to add anything to confidence as a score: at most {most}{count}"
    return f"the AUROC of −Δ differs from that of MSP by {listed(differences)}, so {meaning}"


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
    alike = max(abs(other["ece_versus_msp_low"]), abs(other["ece_versus_msp_high"])) <= ALIKE
    verdict = "calibrated about as well as confidence itself" if alike else "not shown to be better or worse calibrated"
    if sign:
        verdict = "worse calibrated" if sign > 0 else "better calibrated, because confidence itself is too low"
    mean = float(results.gaps[results.gaps["kind"] == "id"]["dominance"].mean())
    right, rest = float(results.settings.get("accuracy", math.nan)), ""
    # With many classes q̄ is close to 1 for every sample, and that may be most of its error.
    if sign < 0 and mean - right > other["ece"] / 2:
        rest = f" But q̄ itself is too high: it is {number(mean)} on average, and {number(right)} of the predictions "
        rest += "are right."
    yield f"Dominance q̄ used as a confidence is {verdict}: {figures}.{rest}"


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


def _axis_top(table: Any, column: str) -> float:
    """Where the axis of a column ends: at 1 for the AUROC, above the largest value for the calibration error."""
    return 1.0 if column == "auroc" else float(ROOM * table[column].max()) or 1.0


def flat_sentence(results: Results) -> str:
    """The sentence instead of the figure, if all of its lines would be flat; "" if there is a figure."""
    table, said = results.trials, []
    columns = [("the ECE of BoC", "ece", table)]
    for name in distinct_names(table["ood"]):
        columns.append((f"the AUROC of s_BoC on “{name}”", "auroc", table[table["ood"] == name]))
    for what, column, rows in columns:
        if rows[column].notna().any():
            low, high = rows[column].min(), rows[column].max()
            if high - low > FLAT * _axis_top(table, column):
                return ""
            ends = dict.fromkeys([number(low), number(high)])
            said.append(f"{what} {'is' if len(ends) == 1 else 'stays within'} {' and '.join(ends)}")
    if not said:
        return ""
    counts = sorted(set(table["trials"]))
    many = f"from k = {int(counts[0])} to {int(counts[-1])}" if len(counts) > 1 else f"at k = {int(counts[0])}"
    return f"Here the number of flips hardly matters: {many}, in both variants, {listed(said)}."


def trial_tables(results: Results) -> list[Table]:
    """The ECE of BoC and the AUROC of the paper's score for each number of flips."""
    table = results.trials
    groups = list(table.groupby("variant", sort=False))
    columns = []
    if table["ece"].notna().any():
        columns += [(f"ECE, {variant}", rows.drop_duplicates("trials"), "ece") for variant, rows in groups]
    for name in distinct_names(table["ood"]):
        columns += [(f"AUROC on {name}, {variant}", rows[rows["ood"] == name], "auroc") for variant, rows in groups]
    values = [rows.set_index("trials")[column] for _, rows, column in columns]
    rows = [
        [Cell(str(int(k))), *(Cell(number(float(x[k])) if k in x.index else "–") for x in values)]
        for k in dict.fromkeys(table["trials"])
    ]
    caption = "Number of flips k: ECE of BoC and AUROC of the paper’s score (upside down)"
    return [Table(caption, ["k", *(title for title, *_ in columns)], rows)] if columns else []


def trial_figure(results: Results) -> Any:
    """The ECE and the AUROC over the number of flips; Monte Carlo is dashed. None if all lines are flat."""
    table = results.trials
    kinds = [name for name in ("ece", "auroc") if len(table) and table[name].notna().any()]
    if not kinds or flat_sentence(results):
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
    axis.set_ylim(0, _axis_top(table, column))


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
