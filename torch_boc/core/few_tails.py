"""Binomial tails of a small batch: all terms are added up, with few operations and a table of samples times trials.

With y = log(chance / (1 - chance)), the log of Pr{X = j} is log(binomial(k, j)) + j y - k log(1 + exp(y)).
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

# The most samples times trials for which the table is small: half a megabyte in float64.
MOST_TERMS = 2**16
# The most trials k. The logarithms of the binomials are as large as k, and up to here they leave 12 digits of a term.
MOST_TRIALS = 1000
# For y above this number, log(1 + exp(y)) is y in float64.
STEEP = 40.0


def is_few(samples: int, trials: int) -> bool:
    """Whether `log_tail` can be used for this many samples and trials."""
    return trials <= MOST_TRIALS and samples * trials <= MOST_TERMS


def log_tail(wins: Tensor, trials: int, odds: Tensor) -> Tensor:
    """The log of Pr{Binomial(trials, 1 / (1 + odds)) >= wins}; wins are whole, from 0 to trials + 1, or NaN."""
    log_odds = odds.log()  # NaN for negative odds, which are not valid
    against = (wins - wins) - log_odds  # NaN where the wins are NaN; these are never on the near side
    near = wins <= (trials + 0.5) * against.sigmoid()  # the near side: Pr{X >= w} = 1 - Pr{k - X >= k - w + 1}
    count, slope = torch.where(near, (trials + 1.0) - wins, wins), torch.where(near, log_odds, against)
    step = torch.arange(1, trials + 1, dtype=odds.dtype, device=odds.device)
    log_choices = (((trials + 1.0) - step) / step).log().cumsum(0)
    terms = torch.addcmul(log_choices, step, slope.unsqueeze(-1)).masked_fill(step < count.unsqueeze(-1), -math.inf)
    log_sum = torch.add(terms.logsumexp(-1), softplus(slope, 1.0, STEEP), alpha=-trials)
    return torch.where(near, (-log_sum.exp()).log1p(), log_sum)
