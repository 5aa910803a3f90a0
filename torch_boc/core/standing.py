"""How one given class of each row stands among the others: for `bag_of_coins(logits, index=...)`.

With x_j = z_j - z_i for a given class i, over the other classes j:

    lost     sum_j sigmoid(x_j), how many of its C - 1 coin flips the class is expected to lose
    ahead    how many x_j are positive

Everything else of a class follows from the sums of `rows.py` and from d = z_top - z_i: its odds are
R exp(d) + exp(d) - 1, in which nothing cancels, and its log-probability is -d - log(1 + R).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .blocks import blockwise, fill_blockwise
from .coins import Coins, gap_of
from .precision import accumulator, is_plain, widen

# exp of this, times the largest number of classes, is still a float64.
LARGEST_DISTANCE = 690.0


class ClassCoins(NamedTuple):
    """The coins of one given class of each row, without the class axis.

    Attributes:
        prediction: the given class, int64.
        odds: the odds against it, (1 - p) / p for its probability p. They can be very large: beyond the range of their
            dtype, they are the largest number of this dtype.
        loss: the chance that it loses one coin flip, 1 - dominance. It is NaN for a class whose logit is -inf, because
            two such classes have no coin; the log-probability of this class is -inf, and its rank 0.
        concentration: that of `Coins` if the class has the largest logit. It is NaN otherwise, because the upper bound
            of the dominance is known only for a class that no rival exceeds.
        free_gap: that of `Coins` if the class has the largest logit, NaN otherwise.
        log_probability: the logarithm of its probability, also where that underflows.
        rank: the number of classes with a larger logit, plus 1, int64; 0 where the row or the class is undefined.
    """

    prediction: Tensor
    odds: Tensor
    loss: Tensor
    concentration: Tensor
    free_gap: Tensor
    log_probability: Tensor
    rank: Tensor

    @property
    def confidence(self) -> Tensor:
        """The probability of the class, 1 / (1 + odds)."""
        return (1.0 + self.odds).reciprocal()

    @property
    def dominance(self) -> Tensor:
        """The mean chance that the class beats another, 1 - loss."""
        return 1.0 - self.loss

    @property
    def gap(self) -> Tensor:
        """The coherence gap of the class, dominance - confidence; never negative, and 0 for two classes."""
        return gap_of(self.odds, self.loss)

    @property
    def forced_gap(self) -> Tensor:
        """The part of the gap that the confidence alone forces, NaN where `free_gap` is."""
        return gap_of(self.odds, self.loss) - self.free_gap


def class_coins(
    coins: Coins, index: Tensor, distance: Tensor, own: Tensor, standing: tuple[Tensor, Tensor], num_classes: int
) -> ClassCoins:
    """The coins of the given class from those of the top.

    Args:
        coins: those of the top class.
        index: the given class.
        distance: how far its logit is below the top, in float64; NaN if it is no class.
        own: its logit, in float64.
        standing: `lost` and `ahead`.
        num_classes: C.
    """
    dtype, rest = coins.odds.dtype, widen(coins.odds)
    undefined = (rest - rest) + (own - own) + (distance - distance)  # NaN if the row or the class is undefined
    near = distance.clamp_max(LARGEST_DISTANCE)
    odds = (rest * near.exp() + near.expm1()).clamp_max(torch.finfo(dtype).max).to(dtype)
    lost, ahead = standing
    top = distance == 0.0
    if num_classes == 2:
        loss = odds / (1.0 + odds)
    else:
        loss = torch.where(top, coins.loss, (lost / (num_classes - 1.0)).to(dtype))
    nan = torch.full_like(loss, torch.nan)
    return ClassCoins(
        index,
        odds,
        loss + undefined.to(dtype),
        torch.where(top, coins.concentration, nan),
        torch.where(top, coins.free_gap, nan),
        (-distance - rest.log1p()).to(dtype),
        torch.where(undefined == 0.0, ahead + 1, 0),
    )


def standing(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """`lost`, in float64 (float32 on MPS), and `ahead`, in int64, of the class `index` of each row.

    An index that is no class gives numbers without a meaning. Only the logits and the index are kept for backward.
    """
    if is_plain(logits):
        return blockwise(_standing, logits, index.unsqueeze(-1))  # type: ignore[return-value]
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or not logits.requires_grad:
        return _standing(logits, index.unsqueeze(-1))
    lost, ahead = _Standing.apply(logits, index.unsqueeze(-1))
    return lost, ahead


class _Standing(torch.autograd.Function):
    """Saves the logits and the index, and computes the rest again, so that nothing else is kept for backward."""

    @staticmethod
    def forward(logits: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        return blockwise(_standing, logits, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, on_lost: Tensor, _: Tensor) -> tuple[Tensor, None]:
        logits, index = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative, by operations that autograd follows
            return _gradient(logits, index, on_lost.unsqueeze(-1)), None
        return fill_blockwise(torch.empty_like(logits), _gradient, logits, index, on_lost.unsqueeze(-1)), None


def _standing(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    ahead, is_own = _ahead(logits, index)
    chances = torch.sigmoid(ahead).masked_fill(is_own, 0.0)
    return widen(chances.sum(-1)), (ahead > 0.0).sum(-1)


def _gradient(logits: Tensor, index: Tensor, on_lost: Tensor) -> Tensor:
    """The gradient of the logits from that of `lost`: sigmoid' for the others, and minus their sum for the class."""
    ahead, is_own = _ahead(logits, index)
    pulls = (torch.sigmoid(ahead) * torch.sigmoid(-ahead)).masked_fill(is_own, 0.0) * on_lost.to(ahead.dtype)
    return torch.where(is_own, -pulls.sum(-1, keepdim=True), pulls).to(logits.dtype)


def _ahead(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """How far each logit is above that of the given class, and which of them is its own."""
    z, classes = logits.to(accumulator(logits.dtype)), logits.shape[-1]
    place = index.clamp(0, classes - 1)
    return z - z.gather(-1, place), torch.arange(classes, device=z.device) == place
