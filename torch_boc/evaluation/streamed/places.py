"""The place of each score of a sample: places are fixed beforehand, so that the counts of parts of a set add up."""

from collections.abc import Iterable

import torch
from torch import Tensor

from ...functional.conformal import num_places, place_starts, score_place
from ...functional.evidence import Evidence
from ...functional.registry import find_score, rank, scores
from ..counted import Counted

# The number of places between a number and its double, as in a ConformalTest by default.
RESOLUTION = 1024
PLACES = num_places(RESOLUTION)
# The numbers behind these scores are negative and may be as close to 0 as -1e-300. Minus their logarithms have the same
# order, and are in the range of the places.
LOGARITHMIC = ("msp", "entropy", "dominance", "gap", "log_p_value")
# The number behind this score is -ρ, of which many may be close to -1. The logarithm of (1 - ρ) / ρ has the same order.
LOGISTIC = ("concentration",)
# Two scores with opposite numbers: the second is computed from the first.
OPPOSITE = {"structural_score": "log_p_value"}


def known_scores(evidence: Evidence) -> tuple[str, ...]:
    """The scores that follow from the evidence; some need numbers that are not kept in columns."""
    row = Evidence(*(x[:1] if isinstance(x, Tensor) else x for x in evidence))  # type: ignore[arg-type]
    row = row._replace(coins=type(evidence.coins)(*(x[:1] for x in evidence.coins)))
    return tuple(name for name in scores if _is_known(row, name))


def _is_known(evidence: Evidence, name: str) -> bool:
    try:
        find_score(name).number(evidence)
    except ValueError:
        return False
    return True


def score_numbers(evidence: Evidence, names: Iterable[str]) -> dict[str, Tensor]:
    """The number that ranks the samples for each score, without those of `OPPOSITE`."""
    return rank(evidence, [name for name in names if name not in OPPOSITE])


def place_score(name: str, number: Tensor) -> Tensor:
    """The place of each sample, from the numbers behind the score."""
    if name in LOGISTIC:
        number = number.log1p() - (-number).log()
    elif name in LOGARITHMIC:
        number = -(-number).log()
    return score_place(number, RESOLUTION)


def counted_scores(name: str, counts: Tensor) -> Counted:
    """The scores of a set with these counts, from `all_counts`. A place has the score of its middle."""
    used = counts.nonzero().flatten()
    number = -_middles(OPPOSITE[name], len(counts) - 1 - used) if name in OPPOSITE else _middles(name, used)
    return Counted(find_score(name).value(number), counts[used])


def ranked_places(counts: Tensor) -> Counted:
    """The places themselves in place of scores, which may round to the same number."""
    used = counts.nonzero().flatten()
    return Counted(used.double(), counts[used])


def _middles(name: str, places: Tensor) -> Tensor:
    """The number in the middle of each of these places."""
    starts = torch.cat([place_starts(RESOLUTION), torch.full((1,), torch.inf, dtype=torch.float64)])
    low, high = starts[places], starts[places + 1]
    middle = torch.where(low.isfinite() & high.isfinite(), (low + high) / 2, torch.where(low.isfinite(), low, high))
    if name in LOGISTIC:
        return -torch.sigmoid(-middle)
    return -(-middle).exp() if name in LOGARITHMIC else middle


def all_counts(counts: dict[str, Tensor], name: str) -> Tensor:
    """The counts of a score; those of one of `OPPOSITE` are the counts of the other in reverse order."""
    return counts[OPPOSITE[name]].flip(0) if name in OPPOSITE else counts[name]
