"""The numbers of each token that a language model emits."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.dtypes import to_wide
from ..core.schema import COINS
from ..core.tally import is_class, log_loss
from ..core.topk import find_top_k
from ..kernels.dispatch import columns
from .checks import check_target, classes_last
from .per_sample import SampleStats
from .registry import entropy

# How many of the likeliest classes are kept for each token, unless another number is given.
RIVALS = 5


class TokenNumbers(NamedTuple):
    """What is kept of each token, without the class axis: a fixed number of floats, whatever the vocabulary is.

    Attributes:
        log_probability: the logarithm of the probability of the token.
        rank: 1 for the likeliest token, 2 for the next; the number of likelier tokens plus 1.
        confidence: the largest probability. This and all that follows is about the prediction, not about the token.
        odds: the odds against the prediction, (1 - confidence) / confidence.
        lost_coins: how many of its C - 1 coin flips the prediction is expected to lose, the sum of u / (1 + u).
        gap: the coherence gap of the prediction.
        concentration: where the dominance lies between the bounds that the confidence forces, in [0, 1].
        entropy: of the distribution, in nats.
        rivals: (..., k), the likeliest tokens, the prediction first.
        rival_log_probabilities: (..., k), the logarithms of their probabilities.
    """

    log_probability: Tensor
    rank: Tensor
    confidence: Tensor
    odds: Tensor
    lost_coins: Tensor
    gap: Tensor
    concentration: Tensor
    entropy: Tensor
    rivals: Tensor
    rival_log_probabilities: Tensor


# The numbers of a token that are no lists.
TOKEN_COLUMNS = TokenNumbers._fields[:8]


def token_numbers(logits: Tensor, token: Tensor, *, rivals: int = RIVALS) -> TokenNumbers:
    """The numbers of each emitted token, from the logits that it was chosen from. They have no gradient.

    Args:
        logits: shape (..., C).
        token: (...) in int64, the tokens. One that is no class, such as -100, has a log-probability of NaN and rank 0.
        rivals: how many of the likeliest tokens to keep.

    Returns:
        Numbers in float64 (float32 on MPS); rank and rivals in int64.

    >>> numbers = token_numbers(torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([1]), rivals=2)
    >>> numbers.log_probability, numbers.rank, numbers.lost_coins, numbers.rivals
    (tensor([-1.4402], dtype=torch.float64), tensor([2]), tensor([0.4356], dtype=torch.float64), tensor([[0, 1]]))
    """
    rows = classes_last(logits.detach(), -1)
    token = check_target(token, rows.shape[:-1], "token")
    numbers = columns(rows, (*COINS, "entropy_sum", "distance", "ahead"), token)
    coins = Coins(*(numbers[name] for name in COINS))
    values, places = find_top_k(rows, min(rivals, rows.shape[-1]))
    is_token = is_class(token, rows.shape[-1])
    normaliser = torch.log1p(coins.odds)
    below = to_wide(values) - to_wide(values[..., :1])
    return TokenNumbers(
        torch.where(is_token, -log_loss(coins.odds, numbers["distance"]), torch.nan),
        torch.where(is_token, numbers["ahead"] + 1, 0),
        (1.0 + coins.odds).reciprocal(),
        coins.odds,
        coins.loss * (rows.shape[-1] - 1.0),
        coins.gap,
        coins.concentration,
        -entropy(SampleStats(coins, rows.shape[-1], entropy_sum=numbers["entropy_sum"])),
        places,
        below - normaliser.unsqueeze(-1),
    )
