"""Binomial tails from odds, on any device. The memory does not grow with the trials, and no value is read back.

    Pr{Binomial(k, p) >= w} = pmf(w) * ratio,  ratio = 1 + (sum of the later terms) / (first term)

The ratio is a continued fraction of the incomplete beta function (DLMF 8.17.22). On the far side of the mean, it
reaches an error of 1e-12 in about 7 k^(1/3) steps. On the near side, the complement is computed. The number of steps
depends only on k. For a small batch, the terms are added up instead.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .blocks import blockwise
from .few_tails import MOST_TERMS, is_few
from .few_tails import log_tail as log_tail_of_few
from .precision import widen

# Up to this many trials, torch.compile gets and fuses each step of the continued fraction; 1000 trials take 74 steps.
MOST_TRIALS_UNROLLED = 1000
# Up to this many trials k, the mass is computed factor by factor. Its logarithm is a sum of numbers as large as k. This
# leaves 13 digits of the mass for k = 1000, but too few for k = 10^6. For more trials the mass is computed by deviances
# (Loader, 2000), which do not cancel.
MOST_TRIALS_BY_FACTORS = 1000
# Up to this many samples, nothing is cut into pieces.
ONE_PIECE = 2**16


def expected_wins(loss: Tensor, trials: int) -> Tensor:
    """W* = round(trials (1 - loss)), half to even, in float64 (float32 on MPS)."""
    return torch.round(float(trials) * (1.0 - widen(loss)))


def log_tail(wins: Tensor, trials: int, odds: Tensor) -> Tensor:
    """The log of Pr{Binomial(trials, 1 / (1 + odds)) >= wins}, for tensors of one shape.

    The wins are whole numbers from 0 to trials + 1, or NaN.
    """
    if not odds.requires_grad:
        return _by_blocks(wins, trials, odds)
    result: Tensor = _LogTail.apply(wins, trials, odds)[0]
    return result


def _by_blocks(wins: Tensor, trials: int, odds: Tensor) -> Tensor:
    """The log tail, piece by piece: each step makes new tensors, and the tensors of one piece stay in the cache."""
    if not torch.compiler.is_compiling() and is_few(odds.numel(), trials):
        return log_tail_of_few(wins, trials, odds)
    if torch.compiler.is_compiling() or odds.numel() <= ONE_PIECE:
        return log_tail_and_slope(wins, trials, odds, slope=False)[0]

    def tails(count: Tensor, against: Tensor) -> tuple[Tensor]:
        return (log_tail_and_slope(count, trials, against, slope=False)[0],)

    return blockwise(tails, wins.unsqueeze(-1), odds.unsqueeze(-1), weight=8)[0].squeeze(-1)


class _LogTail(torch.autograd.Function):
    """The log tail, whose derivative has a closed form: nothing of the continued fraction has to be saved."""

    generate_vmap_rule = True

    @staticmethod
    def forward(wins: Tensor, trials: int, odds: Tensor) -> tuple[Tensor, Tensor]:
        return log_tail_and_slope(wins, trials, odds)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[None, None, Tensor]:
        (slope,) = ctx.saved_tensors
        return None, None, grad * slope


def log_tail_and_slope(wins: Tensor, trials: int, odds: Tensor, *, slope: bool = True) -> tuple[Tensor, Tensor]:
    """The log tail and its derivative in `odds`; without `slope`, the log tail twice."""
    sure = odds == 0.0
    # Negative odds are not valid and give NaN. At odds of 0 the derivative has a limit, but would be computed as 0/0.
    odds = torch.where(odds < 0.0, math.nan, odds.clamp_min(torch.finfo(odds.dtype).tiny))
    win, lose = (1.0 + odds).reciprocal(), (1.0 + odds.reciprocal()).reciprocal()
    near = win * (trials + 3.0) >= wins + 1.0  # the near side: Pr{X >= w} = 1 - Pr{k - X >= k - w + 1}
    count = torch.where(near, (trials + 1.0) - wins, wins).clamp(1, trials)
    chance, other = torch.where(near, lose, win), torch.where(near, win, lose)
    log_first = _log_mass(count, trials, chance, other)
    ratio = _tail_over_mass(count, trials, chance, other)
    log_sum = log_first + ratio.log()
    log_tail = torch.where(near, (-log_sum.exp()).log1p(), log_sum)
    certain, never = (wins <= 0.0) & (odds >= 0.0), (wins > trials) & (odds >= 0.0)  # False for NaN
    result = torch.where(certain | (sure & (wins <= trials)), 0.0, log_tail)
    result = torch.where(never, -math.inf, result)
    if not slope:
        return result, result
    # d tail / d odds = -w pmf(w) / (1 + R), and on the near side w pmf(w) = (k - w + 1) pmf(w - 1) / R.
    mass_over_tail = torch.where(near, (log_first - log_tail).exp() / odds, ratio.reciprocal())
    return result, torch.where(certain | never, 0.0, -count * mass_over_tail / (1 + odds))


def _tail_over_mass(count: Tensor, trials: int, chance: Tensor, other: Tensor) -> Tensor:
    """Pr{X >= w} / Pr{X = w} on the far side of the mean, by the method that suits the number of samples and trials."""
    if torch.compiler.is_compiling():
        return (_ratio if trials <= MOST_TRIALS_UNROLLED else _ratio_as_one)(count, trials, chance, other)
    few = count.numel() * trials <= MOST_TERMS
    return (_ratio_by_terms if few else _ratio)(count, trials, chance, other)


def _ratio_by_terms(count: Tensor, trials: int, chance: Tensor, other: Tensor) -> Tensor:
    """The ratio as a sum of all terms: the table is small, and the steps of a continued fraction would cost more."""
    step = torch.arange(trials, dtype=count.dtype, device=count.device)
    count = count.unsqueeze(-1)
    growth = ((trials - count) - step).clamp_min(0.0) / (step + (count + 1.0)) * (chance / other).unsqueeze(-1)
    return growth.cumprod(-1).sum(-1) + 1.0


def _ratio(count: Tensor, trials: int, chance: Tensor, other: Tensor) -> Tensor:
    """The ratio by the continued fraction, computed from its last step back to the first."""
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


def continued_steps(trials: int) -> int:
    """Half the number of steps that the continued fraction needs to reach 1e-12 on the far side of the mean."""
    return math.ceil(3.6 * math.cbrt(trials)) + 1


@torch.library.custom_op("torch_boc::tail_ratio", mutates_args=())
def _ratio_as_one(count: Tensor, trials: int, chance: Tensor, other: Tensor) -> Tensor:
    """`_ratio` as a single operator for torch.compile, which would need minutes to compile hundreds of steps."""
    return _ratio(count, trials, chance, other)


@_ratio_as_one.register_fake
def _(count: Tensor, trials: int, chance: Tensor, other: Tensor) -> Tensor:
    return torch.empty_like(count)


def _log_mass(count: Tensor, trials: int, chance: Tensor, other: Tensor) -> Tensor:
    """The log of Pr{X = w}."""
    rest, place = float(trials) - count, torch.where(count.isnan(), 1.0, count).long()
    if trials <= MOST_TRIALS_BY_FACTORS:
        choices = _look_up(log_choices(trials, count), place)
        return choices + count * _log_chance(chance, other) + rest * _log_chance(other, chance)
    excess, rest_or_one = count - float(trials) * chance, rest.clamp_min(1.0)
    log_hits = _log_ratio(float(trials) * chance / count, -excess / count)
    log_misses = _log_ratio(float(trials) * other / rest_or_one, excess / rest_or_one)
    return _look_up(_stirling_corrections(trials, count), place) + count * log_hits + rest * log_misses


def _look_up(table: Tensor, place: Tensor) -> Tensor:
    """`table[place]` without indexing, which older versions of torch refuse under vmap and for fake GPU tensors."""
    return table.index_select(0, place.reshape(-1)).reshape(place.shape)


def _log_chance(chance: Tensor, other: Tensor) -> Tensor:
    """log(chance). It is computed from the other chance where that is smaller and therefore has more digits."""
    return torch.where(chance < 0.5, chance.log(), (-other).log1p())


def log_choices(trials: int, like: Tensor) -> Tensor:
    """For each w in 0..k, the log of binomial(k, w)."""
    step = torch.arange(1, trials + 1, dtype=like.dtype, device=like.device)
    return torch.nn.functional.pad((((trials + 1.0) - step) / step).log().cumsum(0), (1, 0))


def _log_ratio(ratio: Tensor, change: Tensor) -> Tensor:
    """log(ratio), where ratio = 1 + change. Near 1, `change` has the digits that the rounding of the ratio lost."""
    return ratio.log() + torch.where(change.abs() < 0.5, change - (ratio - 1.0), 0.0)


def _stirling_corrections(trials: int, like: Tensor) -> Tensor:
    """For each w in 0..k, the log of binomial(k, w) (w/k)^w ((k-w)/k)^(k-w); 0 at both ends."""
    count = torch.arange(trials + 1, dtype=like.dtype, device=like.device)
    error = _stirling_error(count)
    spread = (count * (float(trials) - count) * (2 * math.pi / trials)).log() * 0.5
    inner = error[-1] - error - error.flip(0) - spread
    return torch.where(spread.isinf(), 0.0, inner)


def _stirling_error(n: Tensor) -> Tensor:
    """For n = 0, 1, 2, ..., lgamma(n + 1) minus Stirling's formula; the result for 0 must not be used.

    From n = 16 on, this is the asymptotic series. For smaller n, 16 steps of the recurrence are added to the series at
    n + 16. lgamma is not used, because exporters do not support it.
    """
    low = n[:16].clamp_min(1.0)
    high = low + 16.0
    product = (low.unsqueeze(-1) + torch.arange(1.0, 17.0, dtype=n.dtype, device=n.device)).prod(-1)
    climb = (high + 0.5) * high.log() - (low + 0.5) * low.log() - product.log() - 16.0
    return torch.cat([_stirling_series(high) + climb, _stirling_series(n[16:])])


def _stirling_series(n: Tensor) -> Tensor:
    inverse = n.reciprocal()
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188.0))))
