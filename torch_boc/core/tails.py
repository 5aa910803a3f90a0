"""Binomial tails from odds, on any device. The memory does not grow with the trials, and no value is read back.

    Pr{Binomial(k, p) >= w} = pmf(w) * ratio,  ratio = 1 + (sum of the later terms) / (first term)

The ratio is a continued fraction of the incomplete beta function (DLMF 8.17.22). On the far side of the mean, it
reaches an error of 1e-12 in about 7 k^(1/3) steps. On the near side, the complement is computed. The number of steps
depends only on k. The mass is computed from deviances and Stirling errors (Loader, 2000), which do not cancel.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .chunking import map_chunks
from .dtypes import to_wide

# lgamma(n + 1) minus Stirling's formula for n = 1, ..., 7: below 8 the series is not exact enough.
STIRLING_ERRORS = (0.08106146679532726, 0.041340695955409294, 0.02767792568499834, 0.020790672103765093,
                   0.016644691189821193, 0.013876128823070748, 0.01189670994589177)  # fmt: skip


def expected_wins(loss: Tensor, trials: int) -> Tensor:
    """W* = round(trials (1 - loss)), half to even, in float64 (float32 on MPS)."""
    return torch.round(float(trials) * (1.0 - to_wide(loss)))


def continued_steps(trials: int) -> int:
    """Half the number of steps that the continued fraction needs to reach 1e-12 on the far side of the mean."""
    return math.ceil(3.6 * math.cbrt(trials)) + 1


def log_tails(wins: Tensor, trials: int, odds: Tensor, *, slope: bool = True) -> tuple[Tensor, ...]:
    """The log of Pr{Binomial(trials, 1 / (1 + odds)) >= wins} and its derivative in `odds`, for tensors of one shape.

    The wins are whole numbers from 0 to trials + 1, or NaN. Without `slope`, there is no derivative. Each step makes
    new tensors, and those of one piece stay in the cache.
    """
    tails = partial(_log_tails, trials=trials, slope=slope)
    return tuple(x.squeeze(-1) for x in map_chunks(tails, wins.unsqueeze(-1), odds.unsqueeze(-1), weight=8))


def _log_tails(wins: Tensor, odds: Tensor, trials: int, slope: bool) -> tuple[Tensor, ...]:
    sure = odds == 0.0
    # Negative odds are not valid and give NaN. At odds of 0 the derivative has a limit, but would be computed as 0/0.
    odds = torch.where(odds < 0.0, math.nan, odds.clamp_min(torch.finfo(odds.dtype).tiny))
    win, lose = (1.0 + odds).reciprocal(), (1.0 + odds.reciprocal()).reciprocal()
    near = win * (trials + 3.0) >= wins + 1.0  # the near side: Pr{X >= w} = 1 - Pr{k - X >= k - w + 1}
    count = torch.where(near, (trials + 1.0) - wins, wins).clamp(1, trials)
    chance, other = torch.where(near, lose, win), torch.where(near, win, lose)
    log_first = _log_mass(count, trials, chance, other)
    ratio = _ratio(count, trials, chance, other)
    log_sum = log_first + ratio.log()
    log_tail = torch.where(near, (-log_sum.exp()).log1p(), log_sum)
    certain, never = (wins <= 0.0) & (odds >= 0.0), (wins > trials) & (odds >= 0.0)  # False for NaN
    result = torch.where(certain | (sure & (wins <= trials)), 0.0, log_tail)
    result = torch.where(never, -math.inf, result)
    if not slope:
        return (result,)
    # d tail / d odds = -w pmf(w) / (1 + R), and on the near side w pmf(w) = (k - w + 1) pmf(w - 1) / R.
    mass_over_tail = torch.where(near, (log_first - log_tail).exp() / odds, ratio.reciprocal())
    return result, torch.where(certain | never, 0.0, -count * mass_over_tail / (1 + odds))


def _ratio(count: Tensor, trials: int, chance: Tensor, other: Tensor) -> Tensor:
    """Pr{X >= w} / Pr{X = w} on the far side of the mean: the continued fraction from its last step to the first."""
    half = continued_steps(trials)
    odd = count * chance
    even = (trials + 1.0) * chance - odd
    base, one = count + 2.0 * half, torch.ones((), dtype=count.dtype, device=count.device)
    fraction: Tensor = base.clone()
    for step in range(half, 0, -1):
        fraction = torch.addcdiv(base.sub_(one), torch.sub(even, chance, alpha=step), fraction, value=step)
        numerator = torch.add(odd, chance, alpha=step - 1)
        fraction = torch.addcdiv(base.sub_(one), numerator, fraction, value=-(trials + step))
    return other * count / fraction


def _log_mass(count: Tensor, trials: int, chance: Tensor, other: Tensor) -> Tensor:
    """The log of Pr{X = w} for 1 <= w <= k. Stirling's formula does not hold at 0: the mass of k wins is chance^k."""
    rest = float(trials) - count
    inner = rest > 0.0
    left = torch.where(inner, rest, 1.0)
    excess = count - float(trials) * chance
    log_hits = _log_ratio(float(trials) * chance / count, -excess / count)
    log_misses = _log_ratio(float(trials) * other / left, excess / left)
    of_all = STIRLING_ERRORS[trials - 1] if trials <= len(STIRLING_ERRORS) else _stirling_series(1.0 / trials)
    spread = 0.5 * (float(trials) / (2 * math.pi) / (count * left)).log()
    shape = torch.where(inner, spread + of_all - _stirling_error(count) - _stirling_error(left), 0.0)
    return shape + count * log_hits + rest * log_misses


def _log_ratio(ratio: Tensor, change: Tensor) -> Tensor:
    """log(ratio), where ratio = 1 + change. Near 1, `change` has the digits that the rounding of the ratio lost."""
    return ratio.log() + torch.where(change.abs() < 0.5, change - (ratio - 1.0), 0.0)


def _stirling_error(n: Tensor) -> Tensor:
    """lgamma(n + 1) minus Stirling's formula, for n = 1, 2, ...; lgamma itself is not known to exporters."""
    error: Tensor = _stirling_series(n.reciprocal())
    for value, exact in enumerate(STIRLING_ERRORS, 1):
        error = torch.where(n == value, exact, error)
    return error


def _stirling_series(inverse: Any) -> Any:
    square = inverse * inverse
    later = 1 / 1680 - square * (1 / 1188 - square * (691 / 360360 - square * (1 / 156)))
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * later)))
