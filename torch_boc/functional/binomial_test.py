"""The test of the paper, and the binomial tails behind it.

Count the coin flips that the top class wins, and compute the chance of so many wins.

Each flip draws its own rival. So the k flips are independent and have the same chance, and the wins are exactly
Binomial(k, q), where q is the dominance (the paper calls them Poisson-binomial). The null hypothesis, dominance =
confidence, is false for every row with C >= 3. The p-value measures how false it is, and the confidence decides most of
that.
"""

import torch
from torch import Tensor

from ..core import tails
from ..core.coins import Coins
from ..core.dtypes import accumulation_dtype, to_wide
from ..kernels import dispatch
from .checks import check_logits, check_trials


def expected_wins(coins: Coins, trials: int = 100) -> Tensor:
    """The expected number of wins, W* = round(trials * dominance); a half is rounded to the even integer.

    Returns:
        Whole numbers in float64 (float32 on MPS), NaN for a row of NaN.

    >>> expected_wins(bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]])))
    tensor([85.], dtype=torch.float64)
    """
    return tails.expected_wins(coins.loss, check_trials(trials))


def sample_wins(coins: Coins, trials: int = 100, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw the number of wins from Binomial(trials, dominance), the distribution of `flip_coins`, in one step.

    Args:
        coins: from `bag_of_coins`.
        trials: the number of flips, k.
        generator: makes the draw reproducible; it must be on the device of `coins`.

    Returns:
        Whole numbers in float64, NaN for a row of NaN.

    >>> coins = bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]]).expand(3, 4))
    >>> wins = sample_wins(coins, generator=torch.Generator().manual_seed(0))
    >>> bool(((wins >= 0) & (wins <= 100)).all())
    True
    """
    trials = check_trials(trials)
    loss = to_wide(coins.loss)
    undefined = loss - loss
    # Draw losses, not wins: a float can be 1e-20, but 1 - 1e-20 rounds to 1.
    losses = torch.binomial(torch.full_like(loss, trials), loss.nan_to_num(0.0), generator=generator)
    return trials - losses + undefined


def flip_coins(logits: Tensor, trials: int = 100, *, dim: int = -1, generator: torch.Generator | None = None) -> Tensor:
    """Algorithm 2 of the paper, step by step: draw a rival and flip its coin `trials` times; return the wins.

    This function is the definition. In practice use `sample_wins`, which has the same distribution.

    Args:
        logits: shape (..., C).
        trials: the number of flips, k.
        dim: the class axis; by default the last.
        generator: makes the flips reproducible; it must be on the device of `logits`.

    Returns:
        Whole numbers in float64 (float32 on MPS), NaN for a row with NaN or +inf.

    >>> flip_coins(torch.tensor([[0.0, 200.0, 0.0]]), trials=7)  # a top that never loses
    tensor([7.], dtype=torch.float64)
    """
    trials, dim = check_trials(trials), check_logits(logits, dim)
    z = logits.movedim(dim, -1).to(accumulation_dtype(logits.dtype))
    top, prediction = z.max(-1, keepdim=True)
    wins = to_wide(top - top)
    for _ in range(trials):
        rival = torch.randint(z.shape[-1] - 1, prediction.shape, generator=generator, device=z.device)
        rival = rival + (rival >= prediction)  # skip the top class itself
        chance = torch.sigmoid(top - z.gather(-1, rival)).nan_to_num(0.0)
        wins = wins + torch.bernoulli(chance, generator=generator)
    return wins.squeeze(-1)


def log_p_value(coins: Coins, trials: int = 100, *, wins: Tensor | None = None) -> Tensor:
    """The logarithm of `p_value`, which does not underflow.

    >>> log_p_value(bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]])))
    tensor([-12.4672], dtype=torch.float64)
    """
    if wins is None:
        return dispatch.log_p_value(coins, check_trials(trials))
    return binomial_log_tail(wins, trials, coins.odds)


def p_value(coins: Coins, trials: int = 100, *, wins: Tensor | None = None) -> Tensor:
    """Pr{Binomial(trials, confidence) >= wins}: the chance of so many wins if dominance = confidence.

    Args:
        coins: from `bag_of_coins`, of the top or of a given class.
        trials: the number of flips, k.
        wins: the number of wins. With wins from `sample_wins` the result is a valid p-value of the null hypothesis.
            The default is the expected wins W*; then the result is the paper's deterministic p*, which is a score and
            not a valid p-value.

    Returns:
        float64 (float32 on MPS), in [0, 1].

    >>> p_value(bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]])))
    tensor([3.8509e-06], dtype=torch.float64)
    """
    return log_p_value(coins, trials, wins=wins).exp()


def structural_score(coins: Coins, trials: int = 100) -> Tensor:
    """The paper's s_BoC = 1 - p*. As a detector it ranks backwards: it is larger for less confident predictions.

    That holds for confidences above 1 / (1 + √(C - 1)), where `p_value` and minus the gap rise with confidence. The
    dominance always rises with it.

    >>> structural_score(bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0], [9.0, 0.0, 0.0, 0.0]])))
    tensor([1.0000, 0.0363], dtype=torch.float64)
    """
    return -torch.expm1(log_p_value(coins, trials))


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
    wide = to_wide(probability)
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
    wide, count = torch.broadcast_tensors(to_wide(odds), to_wide(wins).ceil().clamp(0.0, trials + 1.0))
    return dispatch.log_tail(count, trials, wide)
