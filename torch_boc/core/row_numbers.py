"""The numbers of each row by name, in torch's operations: the reference for the operator `columns` of the kernels."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from .chunking import map_chunks, recompute_in_backward
from .coins import coins_of_sums, gap_of_sums
from .dtypes import accumulation_dtype, is_eager_without_grad, to_wide
from .row_sums import RowSums, row_sums
from .schema import QUANTITIES
from .score_terms import EXTRAS, extra_numbers


def columns(
    logits: Tensor,
    names: Sequence[str],
    index: Tensor | None = None,
    *,
    keep_dtype: bool = False,
    sums: Callable[[Tensor, bool], RowSums] = row_sums,
) -> dict[str, Tensor]:
    """The numbers with these names for each row of logits (..., C).

    Args:
        logits: shape (..., C).
        names: some of `schema.QUANTITIES` and `score_terms.EXTRAS`, each once.
        index: a class of each row in int64, for the numbers of `schema.OF_A_CLASS`.
        keep_dtype: whether real numbers have the dtype in which the sums are taken; otherwise float64 (float32 on MPS).
        sums: what computes the sums of each row.
    """

    def compute(z: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        extras = [name for name in names if name in EXTRAS]
        numbers = dict(zip(extras, extra_numbers(z, tuple(extras)), strict=True)) if extras else {}
        if len(numbers) < len(names):
            rows = sums(z, "entropy_sum" in names or "margin" in names)
            if not keep_dtype:
                rows = RowSums(rows.prediction, *(None if x is None else to_wide(x) for x in rows[1:]))  # type: ignore[arg-type]
            numbers.update({name: x for name, x in rows._asdict().items() if x is not None})
            if not {"loss", "concentration", "free_gap"}.isdisjoint(names):
                numbers.update(coins_of_sums(rows, z.shape[-1])._asdict())
            if "gap" in names:
                numbers["gap"] = gap_of_sums(rows.odds, rows.squares, z.shape[-1])
        if given and "distance" in names:
            numbers["distance"] = distance_below_top(z, given[0], numbers["prediction"])
        if given and ("lost" in names or "ahead" in names):
            lost, ahead = _differentiable_class_rank(z, given[0])
            numbers["lost"], numbers["ahead"] = lost, ahead.long()  # whole numbers in floats: vjp knows no others
        return tuple(numbers[name] for name in names)

    columns = () if index is None else (index.unsqueeze(-1),)
    results = map_chunks(compute, logits, *columns) if is_eager_without_grad(logits) else compute(logits, *columns)
    return dict(zip(names, results, strict=True))


@lru_cache
def dtypes_of(names: tuple[str, ...], dtype: torch.dtype, keep_dtype: bool) -> list[torch.dtype]:
    """The dtypes of the numbers with these names of `schema.QUANTITIES`, for logits of this dtype."""
    kinds = {
        "index": torch.int64,
        "wide": torch.float64,
        "real": accumulation_dtype(dtype) if keep_dtype else torch.float64,
    }
    return [kinds[QUANTITIES[name]] for name in names]


def distance_below_top(logits: Tensor, index: Tensor, prediction: Tensor) -> Tensor:
    """How far the logit of the given class is below the top; 0 for an index that is no class."""
    best = prediction.unsqueeze(-1)
    classes = torch.where(index == index.clamp(0, logits.shape[-1] - 1), index, best)
    top, given = to_wide(logits.gather(-1, torch.cat([best, classes], -1))).unbind(-1)
    return top - given


def _class_rank_and_losses(logits: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    """How the class `index` of each row stands among the others: `lost` and `ahead`.

    With x_j = z_j - z_i for a given class i, over the other classes j:

        lost     sum_j sigmoid(x_j), how many of its C - 1 coin flips the class is expected to lose
        ahead    how many x_j are positive

    An index that is no class gives numbers without a meaning.
    """
    z, classes = logits.to(accumulation_dtype(logits.dtype)), logits.shape[-1]
    place = index.clamp(0, classes - 1)
    above = z - z.gather(-1, place)
    chances = torch.sigmoid(above).masked_fill(torch.arange(classes, device=z.device) == place, 0.0)
    return to_wide(chances.sum(-1)), to_wide((above > 0.0).sum(-1))


_differentiable_class_rank = recompute_in_backward(_class_rank_and_losses)
