"""Which score flags at most a given share of in-distribution samples, and how sure that is.

Of n held-out scores, let X be the k-th lowest. The share of in-distribution samples that score below X depends on the
held-out samples, which are drawn by chance: its distribution is Beta(k, n + 1 - k), and its mean is k / (n + 1). Ties,
such as those of scores that are counted in places, make the share smaller.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .checks import MOST_TRIALS
from .tails import binomial_tail


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
        """The rate that the share of flagged in-distribution samples does not exceed with this chance.

        >>> threshold = Threshold(torch.tensor(0.3), torch.tensor(5), torch.tensor(99))
        >>> threshold.expected_rate, threshold.rate_quantile(0.95)
        (tensor(0.0500, dtype=torch.float64), tensor(0.0901, dtype=torch.float64))
        """
        check_share("chance", chance)
        pairs = zip(self.rank.reshape(-1).tolist(), self.samples.reshape(-1).tolist(), strict=True)
        return torch.tensor([rate_quantile(k, n, chance) for k, n in pairs]).double().reshape(self.rank.shape)


def check_share(name: str, share: float) -> float:
    """Return `share` if it is in (0, 1), or raise; NaN raises as well."""
    if not 0 < share < 1:
        raise ValueError(f"expected {name} in (0, 1), got {share}")
    return share


def threshold_rank(samples: int, alpha: float, confidence: float | None = None) -> int:
    """The rank k of the threshold among `samples` held-out scores; 0 if no sample can be flagged.

    Without `confidence`, the expected rate k / (n + 1) is at most `alpha`. With it, the rate itself is at most `alpha`
    with that chance.

    >>> threshold_rank(3000, 0.05), threshold_rank(3000, 0.05, 0.99), threshold_rank(18, 0.05)
    (150, 123, 0)
    """
    largest = math.floor(alpha * (samples + 1) * (1 + 1e-12))
    if confidence is None or largest == 0:
        return largest
    low, high = 0, largest  # the chance that the rate is at most alpha falls with the rank
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if rate_chance(middle, samples, alpha) >= confidence else (low, middle - 1)
    return low


def rate_chance(rank: int, samples: int, rate: float) -> float:
    """The chance that the share of flagged in-distribution samples is at most `rate`: Pr{Binomial(n, rate) >= k}.

    For more than a million samples it is a lower bound (Chernoff's), which is near enough there.
    """
    if rank == 0:
        return 1.0
    if samples <= MOST_TRIALS:
        return float(binomial_tail(torch.tensor(rank), samples, torch.tensor(rate, dtype=torch.float64)))
    share = (rank - 1) / samples
    if share >= rate:
        return 0.0
    divergence = (1 - share) * math.log((1 - share) / (1 - rate))
    divergence += share * math.log(share / rate) if share > 0 else 0.0
    return -math.expm1(-samples * divergence)


def rate_quantile(rank: int, samples: int, chance: float) -> float:
    """The smallest rate that is not exceeded with this chance, by bisection."""
    if rank == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if rate_chance(rank, samples, middle) >= chance else (middle, high)
    return high
