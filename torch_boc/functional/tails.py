"""Binomial tails from odds, on any device. The host never waits for a value of a tensor."""

import torch
from torch import Tensor

from ..core.precision import widen
from .checks import check_trials
from .paths import log_tail


def binomial_tail(wins: Tensor, trials: int, probability: Tensor) -> Tensor:
    """Pr{Binomial(trials, probability) >= wins}, the chance of at least `wins` successes.

    Args:
        wins: any real values, broadcast against `probability`; at most 0 gives 1, more than `trials` gives 0.
        trials: k, a positive integer.
        probability: p in [0, 1]. For p near 1, `binomial_log_tail` is more precise: odds near 0 are not rounded.

    Returns:
        The tail in float64 (float32 on MPS), with a relative error of at most 1e-10.

    >>> binomial_tail(torch.tensor([0, 60, 101]), 100, torch.tensor(0.5))
    tensor([1.0000, 0.0284, 0.0000], dtype=torch.float64)
    """
    wide = widen(probability)
    return binomial_log_tail(wins, trials, (1 - wide) / wide).exp()


def binomial_log_tail(wins: Tensor, trials: int, odds: Tensor) -> Tensor:
    """The logarithm of Pr{Binomial(trials, 1 / (1 + odds)) >= wins}, exact even if the tail itself rounds to 0 or 1.

    Args:
        wins: any real values, broadcast against `odds`; at most 0 gives 0, more than `trials` gives -inf.
        trials: k, a positive integer.
        odds: the odds against success, (1 - p) / p, in [0, inf]; negative ones give NaN.

    Returns:
        The logarithm in float64 (float32 on MPS). It is differentiable in `odds`.

    >>> binomial_log_tail(torch.tensor([100, 60]), 100, torch.tensor([1e6, 1.0]))
    tensor([-1381.5512,    -3.5598], dtype=torch.float64)
    """
    trials = check_trials(trials)
    wide, count = torch.broadcast_tensors(widen(odds), widen(wins).ceil().clamp(0.0, trials + 1.0))
    return log_tail(count, trials, wide)
