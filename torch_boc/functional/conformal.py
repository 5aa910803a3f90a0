"""Conformal p-values: the rank of a sample's score among the scores of held-out in-distribution samples.

The held-out scores are counted in places, which are fixed beforehand and cover all real numbers, so that the counts of
batches and processes add up. A sample is compared with n held-out ones, of which n_below are in a lower place, and
n_equal are in the same place:

    p = (n_below + n_equal + 1) / (n + 1)            conservative
    p = (n_below + U (n_equal + 1)) / (n + 1)        smoothed, with U uniform in (0, 1)

If the sample and the held-out ones are exchangeable, the first is at most alpha with a chance of at most alpha, and the
second is uniform, whatever the classifier and the score are.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.precision import widen
from .bins import count
from .histograms import MAGNITUDE

# Numbers whose magnitude is below 2**LOWEST, or at least 2**HIGHEST, share the outermost places of their sign.
LOWEST, HIGHEST = -32, 16
# The confidences that separate the groups of `groups="confidence"`.
STRATA = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)


class Ranks(NamedTuple):
    """How many held-out samples a sample is compared with.

    Attributes:
        below: the number of held-out samples in a lower place.
        equal: the number of held-out samples in the same place.
        total: the number of held-out samples of its group.
    """

    below: Tensor
    equal: Tensor
    total: Tensor


def num_places(resolution: int) -> int:
    """The number of places with `resolution` places between a number and its double."""
    return 2 * (HIGHEST - LOWEST) * resolution


def score_place(scores: Tensor, resolution: int) -> Tensor:
    """The place of each score. A higher score never has a lower place.

    The bits of a float32, read as an integer, have the order of the magnitudes, and the leading bits are the place, as
    in `score_bin`; the places of extreme magnitudes are joined.

    Args:
        scores: any shape; NaN has any place.
        resolution: the number of places between a number and its double, a power of two.

    Returns:
        int64 in [0, num_places(resolution)).

    >>> score_place(torch.tensor([-9.0, -1.0, 0.0, 1.0, 1.5, 2.0]), 2)
    tensor([ 25,  31,  96, 160, 161, 162])
    """
    half = num_places(resolution) // 2
    if torch.compiler.is_exporting():
        kept, negative = _steps_above_lowest(scores, resolution)
    else:
        pattern = (scores.to(torch.float32) + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
        first = (127 + LOWEST) * resolution
        kept = ((pattern & MAGNITUDE) >> _fraction_bits(resolution)).clamp_(first, first + half - 1) - first
        negative = pattern < 0
    return torch.where(negative, half - 1 - kept, half + kept).long()


def _steps_above_lowest(scores: Tensor, resolution: int) -> tuple[Tensor, Tensor]:
    """How many places the magnitude of each score is above the lowest magnitude, and which scores are negative.

    The bits of a float are read by comparisons with powers of two, because ONNX cannot see bits. Every step is exact.
    """
    number = scores.nan_to_num(torch.inf, torch.inf, -torch.inf).to(torch.float32).to(torch.float64)
    below_highest = 2.0**HIGHEST * (1.0 - 2.0**-24)
    rest = number.abs().clamp(2.0**LOWEST, below_highest) * 2.0**-LOWEST
    exponent = torch.zeros_like(rest)
    for step in (32, 16, 8, 4, 2, 1):
        reached = rest >= 2.0**step
        rest = torch.where(reached, rest * 2.0**-step, rest)
        exponent = torch.where(reached, exponent + step, exponent)
    return (exponent * resolution + ((rest - 1.0) * resolution).floor()).long(), number < 0


def place_starts(resolution: int) -> Tensor:
    """The lowest number of each place, in float64. A score is in a lower place if it is below this number.

    >>> place_starts(2)[torch.tensor([0, 96, 160, 161, 162])]
    tensor([  -inf, 0.0000, 1.0000, 1.5000, 2.0000], dtype=torch.float64)
    """
    half, step = num_places(resolution) // 2, _fraction_bits(resolution)
    signed = torch.arange(-half, half)
    offset = (127 + LOWEST) * resolution
    ordered = torch.where(signed < 0, signed - offset, signed + offset) << step
    pattern = torch.where(ordered < 0, ordered ^ MAGNITUDE, ordered)
    starts = pattern.to(torch.int32).view(torch.float32).double()
    starts[half], starts[0] = 0.0, -torch.inf
    return starts


def _fraction_bits(resolution: int) -> int:
    """How many bits of a float32 do not matter for its place."""
    return 23 - (resolution.bit_length() - 1)


def count_places(place: Tensor, valid: Tensor, places: int, group: Tensor | None = None, groups: int = 1) -> Tensor:
    """The number of samples of each group in each place, int64 of shape (groups, places), of those that are `valid`."""
    key = place if group is None else group * places + place
    return count(key, valid, groups * places).view(groups, places)


def look_up_ranks(counts: Tensor, upto: Tensor, place: Tensor, group: Tensor | None = None) -> Ranks:
    """The ranks of samples at these places.

    Args:
        counts: (groups, places), from `count_places`.
        upto: the sums of `counts` up to each place, `counts.cumsum(-1)`.
        place: (N,) in int64.
        group: (N,), the group of each sample; None if there is one group.
    """
    places = counts.shape[-1]
    key = place if group is None else group * places + place
    equal, below = (x.reshape(-1).index_select(0, key) for x in (counts, upto))
    total = upto[:, -1]
    own = total.expand(place.shape) if group is None else total.index_select(0, group)
    return Ranks(below - equal, equal, own)


def stream_ranks(ranks: Ranks, place: Tensor, group: Tensor | None, valid: Tensor) -> Ranks:
    """The ranks of the samples of a stream: each is compared with the valid ones before it in the batch, too.

    Args:
        ranks: those among the samples before the batch.
        place: (N,), in the order of the stream.
        group: (N,) or None.
        valid: (N,), which samples count.
    """
    earlier = valid.expand(len(valid), -1).tril(-1)
    if group is not None:
        earlier = earlier & (group.unsqueeze(0) == group.unsqueeze(1))
    lower = earlier & (place.unsqueeze(0) < place.unsqueeze(1))
    same = earlier & (place.unsqueeze(0) == place.unsqueeze(1))
    return Ranks(ranks.below + lower.sum(1), ranks.equal + same.sum(1), ranks.total + earlier.sum(1))


def rank_p_values(ranks: Ranks, uniform: Tensor | None = None) -> Tensor:
    """The conformal p-values: smoothed with `uniform` in (0, 1), and conservative without it.

    >>> rank_p_values(Ranks(torch.tensor([0, 4]), torch.tensor([0, 1]), torch.tensor([9, 9])))
    tensor([0.1000, 0.6000], dtype=torch.float64)
    """
    share = 1.0 if uniform is None else uniform
    return (widen(ranks.below) + share * widen(ranks.equal + 1)) / widen(ranks.total + 1)


def place_p_values(counts: Tensor) -> Tensor:
    """The conservative p-value of a sample at each place, of shape (groups, places), from the counts of `count_places`.

    >>> place_p_values(torch.tensor([[1, 2, 96]]))
    tensor([[0.0200, 0.0400, 1.0000]], dtype=torch.float64)
    """
    upto = counts.cumsum(-1)
    return rank_p_values(Ranks(upto - counts, counts, upto[:, -1:]))


def confidence_stratum(odds: Tensor) -> Tensor:
    """The group of each sample by its confidence: how many of `STRATA` the confidence reaches.

    >>> confidence_stratum(torch.tensor([1.0, 0.01]))  # confidences of 0.5 and 0.99
    tensor([3, 9])
    """
    confidence = widen(odds).add(1.0).reciprocal()
    edges = torch.tensor(STRATA, dtype=confidence.dtype, device=odds.device)
    return torch.bucketize(confidence, edges, right=True)
