"""The call of the native gradient with tensors on the CPU."""

from collections.abc import Sequence

from torch import Tensor

from ..triton.launch import empty_gradient
from .interface import describe, native, place


def gradient(logits: Tensor, sums: Sequence[Tensor], grads: Sequence[Tensor | None]) -> Tensor:
    """The gradient of the logits in one pass: `kernels.rows.row_sums_backward` on a CPU.

    `sums` are prediction, top, odds and mass; `grads` are the gradients of all sums except the prediction, in the
    order and the dtypes of `row_sums`, or None where there is no gradient.
    """
    out = empty_gradient(logits)
    if logits.numel():
        _kept, described = describe(logits if logits.stride(-1) == 1 else logits.contiguous())
        vectors = [None if x is None else x.contiguous() for x in (*sums, *grads)]
        native().boc_gradient(*described, *map(place, vectors), out.data_ptr())
    return out
