"""Does the number of flips matter? If it does not, there is a sentence instead of a figure with flat lines."""

from typing import Any

from ..plots import BLUE, CYCLE, GREY, ORANGE
from .axes import SETS, figure_text, finish, panels
from .parts import UPSIDE_DOWN, Cell, Figure, Table, Topic, present
from .results import Results
from .words import distinct_names, listed, number

# A line looks flat if its values vary by less than this part of the height of the axis.
FLAT = 0.02
# The axis of the calibration error ends at this multiple of the largest error.
ROOM = 1.6
INTRODUCTION = "The deterministic variant uses the expected number of wins, the Monte Carlo variant draws it."


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


def trial_table(results: Results) -> Table | None:
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
    return Table(caption, ["k", *(title for title, _, _ in wanted)], rows) if wanted else None


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


def _describe(results: Results) -> str:
    parts = []
    for column, title in (("ece", "ECE of BoC"), ("auroc", "AUROC of the paper’s score")):
        for variant in dict.fromkeys(results.trials["variant"]):
            rows = results.trials[(results.trials["variant"] == variant) & results.trials[column].notna()]
            if len(rows):
                low, high = number(rows[column].min()), number(rows[column].max())
                parts.append(f"{title}, {variant}: {low} to {high}")
    counts = listed([str(int(k)) for k in dict.fromkeys(results.trials["trials"])])
    return f"Lines over the number of flips, k = {counts}. {'; '.join(parts)}"


FLIPS = Topic(
    "Number of flips",
    lambda results: f"{INTRODUCTION} {flat_sentence(results)}".strip(),
    lambda results: present(trial_table(results)),
    (Figure("trials", trial_figure, "The number of flips k matters only where the lines are not flat.", _describe),),
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
