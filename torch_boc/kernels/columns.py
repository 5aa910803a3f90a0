"""Numbers of each sample by name as one operator of torch, for columns and scores that need no gradient."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .cpu.calls import QUANTITIES
from .tally import kernels_for

__all__ = ["QUANTITIES", "columns"]


# The schema is written out because older versions of torch do not infer it from list[Tensor].
@torch.library.custom_op(
    "torch_boc::columns", mutates_args=(), schema="(Tensor logits, str[] names, int trials) -> Tensor[]"
)
def columns(logits: Tensor, names: Sequence[str], trials: int) -> list[Tensor]:
    """The QUANTITIES of these names for each row of logits (..., C), in float64, the prediction in int64."""
    found: list[Tensor] = kernels_for(logits).columns(logits, names, trials)
    return found


@columns.register_fake
def _(logits: Tensor, names: Sequence[str], trials: int) -> list[Tensor]:
    shape = logits.shape[:-1]
    dtypes = [torch.int64 if name == "prediction" else torch.float64 for name in names]
    return [logits.new_empty(shape, dtype=dtype) for dtype in dtypes]
