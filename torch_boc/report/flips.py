"""Does the number of flips matter? Where it does not, a sentence takes the place of a figure of flat lines."""

from typing import Any

from .results import Results
from .words import listed, names, number

# Lines whose values lie within this part of the height of their figure look flat.
FLAT = 0.02
ROOM = 1.6


def top(table: Any, column: str) -> float:
    """Where the axis of a column ends: AUROC at 1, the calibration error with room above."""
    return 1.0 if column == "auroc" else float(ROOM * table[column].max()) or 1.0


def spans(results: Results) -> list[tuple[str, float, float, float]]:
    """What is shown over the number of flips: its name, its lowest and highest value, and the height of its axis."""
    table = results.trials
    found = []
    if table["ece"].notna().any():
        found.append(("the ECE of BoC", table["ece"].min(), table["ece"].max(), top(table, "ece")))
    for name in names(table["ood"]):
        rows = table[(table["ood"] == name) & table["auroc"].notna()]
        if len(rows):
            found.append((f"the AUROC of s_BoC on “{name}”", rows["auroc"].min(), rows["auroc"].max(), 1.0))
    return found


def is_flat(results: Results) -> bool:
    """Whether every line would be flat."""
    return all(high - low <= FLAT * height for _, low, high, height in spans(results))


def flat_sentence(results: Results) -> str:
    """What the figure would show, or "" where there is a figure."""
    found = spans(results)
    if not found or not is_flat(results):
        return ""
    counts = sorted(set(results.trials["trials"]))
    said = listed([f"{what} {_range(low, high)}" for what, low, high, _ in found])
    many = f"from k = {int(counts[0])} to {int(counts[-1])}" if len(counts) > 1 else f"at k = {int(counts[0])}"
    return f"Here the number of flips hardly matters: {many}, in both variants, {said}."


def _range(low: float, high: float) -> str:
    ends = number(low), number(high)
    return f"is {ends[0]}" if ends[0] == ends[1] else f"stays within {ends[0]} and {ends[1]}"
