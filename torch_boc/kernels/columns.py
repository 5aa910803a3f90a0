"""An operator of torch that computes numbers of each sample by name, for columns and scores without a gradient."""

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
    """The QUANTITIES with these names for each row of logits (..., C): prediction in int64, others in float64."""
    found: list[Tensor] = kernels_for(logits).columns(logits, names, trials)
    return found


@columns.register_fake
def _(logits: Tensor, names: Sequence[str], trials: int) -> list[Tensor]:
    shape = logits.shape[:-1]
    dtypes = [torch.int64 if name == "prediction" else torch.float64 for name in names]
    return [logits.new_empty(shape, dtype=dtype) for dtype in dtypes]
