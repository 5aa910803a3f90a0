"""Conformal p-values: the rank of a sample's score among the scores of held-out in-distribution samples.

The held-out scores are counted in the bins of `score_bins`. A sample is compared with n held-out ones, of which n_below
are in a lower bin, and n_equal in the same bin:

    p = (n_below + n_equal + 1) / (n + 1)            conservative
    p = (n_below + U (n_equal + 1)) / (n + 1)        smoothed, with U uniform in (0, 1)

If the sample and the held-out ones are exchangeable, the first is at most alpha with probability at most alpha, and the
second is uniform, whatever the classifier and the score.
"""

import math
from bisect import bisect_right
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.dtypes import to_wide
from .checks import check_share


class Ranks(NamedTuple):
    """How many held-out samples a sample is compared with.

    Attributes:
        below: the number of held-out samples in a lower bin.
        equal: the number of held-out samples in the same bin.
        total: the number of held-out samples of its group.
    """

    below: Tensor
    equal: Tensor
    total: Tensor


def look_up_ranks(counts: Tensor, upto: Tensor, bins: Tensor, group: Tensor | None = None) -> Ranks:
    """The ranks of samples in these bins.

    Args:
        counts: (groups, bins), from `count_bins`.
        upto: the sums of `counts` up to each bin, `counts.cumsum(-1)`.
        bins: any shape, in int64.
        group: the group of each sample; None if there is one group.
    """
    key = bins if group is None else torch.add(bins, group, alpha=counts.shape[-1])
    equal, below_or_equal = counts.reshape(-1)[key], upto.reshape(-1)[key]
    return Ranks(below_or_equal - equal, equal, upto[0 if group is None else group, -1].expand(bins.shape))


def rank_p_values(ranks: Ranks, uniform: Tensor | None = None) -> Tensor:
    """The conformal p-values: smoothed with `uniform` in (0, 1), and conservative without it.

    >>> rank_p_values(Ranks(torch.tensor([0, 4]), torch.tensor([0, 1]), torch.tensor([9, 9])))
    tensor([0.1000, 0.6000], dtype=torch.float64)
    """
    equal = to_wide(ranks.equal + 1) if uniform is None else uniform * (ranks.equal + 1)
    return (ranks.below + equal) / (ranks.total + 1)


def stream_p_values(counts: Tensor, bins: Tensor, group: Tensor | None, valid: Tensor, uniform: Tensor) -> Tensor:
    """The smoothed p-values of the samples of a stream: each is compared with the valid ones before it, too.

    Args:
        counts: (groups, bins), of the samples before the batch.
        bins: (N,), in the order of the stream.
        group: (N,) or None.
        valid: (N,), which samples count. The p-values of the others are NaN.
        uniform: (N,), in (0, 1).
    """
    known = valid.expand(len(valid), -1).tril()  # each sample is equal to itself: the 1 in both formulas
    if group is not None:
        known = known & (group.unsqueeze(0) == group.unsqueeze(1))
    lower, same = (known & compare(bins.unsqueeze(0), bins.unsqueeze(1)) for compare in (torch.lt, torch.eq))
    ranks = look_up_ranks(counts, counts.cumsum(-1), bins, group)
    below, equal, total = torch.stack([lower, same, known]).sum(-1) + torch.stack(ranks)
    return torch.where(valid, (below + uniform * equal) / total, torch.nan)


def bin_p_values(counts: Tensor) -> Tensor:
    """The conservative p-value of a sample in each bin, of shape (groups, bins), from the counts of `count_bins`.

    >>> bin_p_values(torch.tensor([[1, 2, 96]]))
    tensor([[0.0200, 0.0400, 1.0000]], dtype=torch.float64)
    """
    upto = counts.cumsum(-1)
    return rank_p_values(Ranks(upto - counts, counts, upto[:, -1:]))


def discovery_level(p: Tensor, tested: Tensor, fdr: float) -> Tensor:
    """The largest p-value that the procedure of Benjamini and Hochberg rejects; -1 if it rejects none.

    It holds even for conformal p-values that share their held-out samples, if they are conservative (Bates and others,
    2023). Only the p-values of the bins are sorted, however many samples are tested.

    Args:
        p: (groups, bins), from `bin_p_values`.
        tested: (groups, bins), the number of tested samples in each bin.
        fdr: the false discovery rate.
    """
    rising, order = p.reshape(-1).sort()
    number = tested.reshape(-1).index_select(0, order)
    upto = to_wide(number.cumsum(0))
    adjusted = rising * upto[-1] / upto
    return torch.where((number > 0) & (adjusted <= fdr), rising, -1.0).amax()


def flagged_share(held_out: Tensor, tested: Tensor, alpha: float, invalid: Tensor | int = 0) -> Tensor:
    """The share of a set of samples that a test flags at level `alpha`, from counts.

    It is the mean of `ConformalTest.flag` over the samples, up to rounding: all samples of a group in one bin have the
    same p-value.

    Args:
        held_out: (groups, bins), the counts of the held-out samples, from `count_bins`.
        tested: (groups, bins), the counts of the samples that are tested.
        alpha: the level.
        invalid: the number of tested samples with NaN or +inf, which are in no bin. They are flagged.

    Returns:
        A scalar in float64 (float32 on MPS); NaN if no sample is tested.

    >>> held_out, tested = torch.tensor([[1, 2, 96]]), torch.tensor([[3, 1, 0]])
    >>> flagged_share(held_out, tested, 0.03)  # the p-values are 0.02, 0.04 and 1
    tensor(0.7500, dtype=torch.float64)
    """
    flagged = torch.where(bin_p_values(held_out) > alpha, 0, tested).sum() + invalid
    return to_wide(flagged) / to_wide(tested.sum() + invalid)


def seeded_uniforms(seed: int, index: Tensor) -> Tensor:
    """A number in (0, 1) for each index, in float64 (float32 on MPS): the same for the same seed, on every device.

    The numbers are those of SplitMix64 (Steele, Lea, Flood, 2014). They depend only on seed and index: a stream in
    batches gets the same numbers as one sample at a time.

    >>> seeded_uniforms(0, torch.arange(3))
    tensor([0.8833, 0.4315, 0.0264], dtype=torch.float64)
    """
    start = (seed * 0x9E3779B97F4A7C15 ^ seed) + 2**63
    step = -0x61C8864680B583EB
    state = index * step + ((start + step) % 2**64 - 2**63)  # the signed number with the same 64 bits
    for bits, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):  # a third step changes low bits only
        state = (state ^ ((state >> bits) & (2 ** (64 - bits) - 1))) * factor  # a shift of the unsigned number
    # 23 high bits and a half: every number is exact in float32 too, and neither 0 nor 1 occurs.
    return (to_wide((state >> 41) & (2**23 - 1)) + 0.5) * 2.0**-23


class Threshold(NamedTuple):
    """A threshold for each group of samples; scalars if there is one group. All are on the CPU.

    Attributes:
        score: samples that score below it are flagged; -inf where there are too few held-out samples to flag any.
        rank: k. A sample is flagged if fewer than k held-out samples score as low as it or lower.
        samples: n, the number of held-out samples.
    """

    score: Tensor
    rank: Tensor
    samples: Tensor

    @property
    def expected_rate(self) -> Tensor:
        """The expected share of in-distribution samples that are flagged, k / (n + 1)."""
        return self.rank.double() / (self.samples.double() + 1.0)

    def rate_quantile(self, chance: float) -> Tensor:
        """The rate that the share of flagged in-distribution samples does not exceed with this probability.

        >>> threshold = Threshold(torch.tensor(0.3), torch.tensor(5), torch.tensor(99))
        >>> threshold.expected_rate, threshold.rate_quantile(0.95)
        (tensor(0.0500, dtype=torch.float64), tensor(0.0901, dtype=torch.float64))
        """
        check_share("chance", chance)
        pairs = zip(self.rank.reshape(-1).tolist(), self.samples.reshape(-1).tolist(), strict=True)
        return torch.tensor([rate_quantile(k, n, chance) for k, n in pairs]).double().reshape(self.rank.shape)


def threshold_rank(samples: int, alpha: float, delta: float | None = None) -> int:
    """The rank k of the threshold among n = `samples` held-out scores; 0 if no sample can be flagged.

    Let X be the k-th lowest score. Over the draw of the held-out set, the share of in-distribution samples that score
    below X has the distribution Beta(k, n + 1 - k), with mean k / (n + 1). Ties make the share smaller.

    Without `delta`, the expected rate k / (n + 1) is at most `alpha`. With it, the rate itself is at most `alpha`
    with probability 1 - `delta`.

    >>> threshold_rank(3000, 0.05), threshold_rank(3000, 0.05, 0.01), threshold_rank(18, 0.05)
    (150, 123, 0)
    """
    largest = math.floor(alpha * (samples + 1) * (1 + 1e-12))
    if delta is None or largest == 0:
        return largest
    # The chance that the rate is above alpha, Pr{Binomial(n, alpha) < k}, rises with the rank.
    return bisect_right(range(largest), delta, key=lambda below: lower_tail(below, samples, alpha))


def lower_tail(successes: int, trials: int, probability: float) -> float:
    """Pr{Binomial(trials, probability) <= successes}, for a probability between 0 and 1.

    The terms are summed from the largest down. For a single number, `binomial_tail` is a hundred times slower.

    >>> round(lower_tail(2, 628, 0.01), 5)
    0.04979
    """
    if successes < 0:
        return 0.0
    if successes >= trials * probability:  # of the terms of the other tail, the first is the largest
        return 1.0 - lower_tail(trials - successes - 1, trials, 1.0 - probability)
    failures = trials - successes
    log_ways = math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(failures + 1)
    term, total = math.exp(log_ways + successes * math.log(probability) + failures * math.log1p(-probability)), 0.0
    while term > 1e-18 * total:  # it becomes 0 after that of no success
        total += term
        term *= successes / (trials - successes + 1) * (1.0 - probability) / probability
        successes -= 1
    return total


def rate_quantile(rank: int, samples: int, chance: float) -> float:
    """The smallest rate that the share of flagged in-distribution samples does not exceed with this probability."""
    low, high = 0.0, 1.0 if rank else 0.0
    for _ in range(60):  # the chance of fewer than k successes falls with the rate
        middle = (low + high) / 2
        low, high = (low, middle) if lower_tail(rank - 1, samples, middle) <= 1.0 - chance else (middle, high)
    return high


def excess_chance(flagged: int, samples: int, rank: int, held_out: int) -> float:
    """The probability that this many samples or more score below the lowest `rank` held-out ones, if exchangeable.

    All orders of the x + k - 1 lowest of n + m samples are equally likely, and at most k - 1 of these may be held out:

        Pr{X >= x} = sum_{h < k} C(n, h) C(m, x + k - 1 - h) / C(n + m, x + k - 1)

    >>> round(excess_chance(10, 100, 5, 99), 4), excess_chance(0, 100, 5, 99)
    (0.085, 1.0)
    """
    if flagged == 0:
        return 1.0
    lowest = flagged + rank - 1
    mean = lowest * held_out / (held_out + samples)
    # Terms this far below the mean of h do not count. What is left are a few times the root of the number of samples.
    far = int(mean - 50 * math.sqrt(mean) - 50)
    h = torch.arange(max(0, lowest - samples, min(far, rank - 1)), rank, dtype=torch.float64)
    terms = _log_choose(held_out, h) + _log_choose(samples, lowest - h)
    return min(1.0, float((terms - _log_choose(held_out + samples, h.new_tensor(lowest))).logsumexp(0).exp()))


def _log_choose(n: int, k: Tensor) -> Tensor:
    return math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
