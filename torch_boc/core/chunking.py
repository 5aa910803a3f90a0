"""Work on a large tensor chunk by chunk, in temporary memory that is bounded and stays in cache."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .dtypes import is_eager_without_grad, is_transformed

# How many elements one piece has. On a CPU, 2 MB per thread are enough to hide the cost of starting each operation, and
# still fit in the last-level cache. An accelerator needs few launches, and 64 MB are a small part of its memory.
CPU_ELEMENTS_PER_THREAD = 2**19
ACCELERATOR_ELEMENTS = 2**24


def block_elements(device: torch.device) -> int:
    """How many elements one piece may have on `device`."""
    if device.type == "cpu":
        return CPU_ELEMENTS_PER_THREAD * torch.get_num_threads()
    return ACCELERATOR_ELEMENTS


def chunks(*tensors: Tensor, limit: int | None = None, weight: int = 1) -> Iterator[tuple[Tensor, ...]]:
    """The tensors in pieces of at most `limit` elements of the first, as views, in the order of the rows.

    Each element counts `weight` times. The tensors have the same axes except the last one, which is never cut.
    """
    axis, size = _cut(tensors[0], limit, weight)
    if axis is None:
        yield tensors
        return
    for piece in zip(*(x.split(size, axis) for x in tensors), strict=True):
        yield from chunks(*piece, limit=limit, weight=weight)


def map_chunks(
    function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor, limit: int | None = None, weight: int = 1
) -> tuple[Tensor, ...]:
    """`function(*tensors)`, computed on pieces of at most `limit` elements and joined again.

    Each element counts `weight` times. The tensors have the same axes except the last one, which is never split. The
    pieces are views, for any strides. Under torch.compile nothing is split, because the compiler fuses everything.
    """
    axis, size = _cut(tensors[0], limit, weight)
    if axis is None:
        return function(*tensors)
    cut = zip(*(x.split(size, axis) for x in tensors), strict=True)
    parts = [map_chunks(function, *piece, limit=limit, weight=weight) for piece in cut]
    return tuple(torch.cat(part, axis) for part in zip(*parts, strict=True))


def _cut(lead: Tensor, limit: int | None, weight: int = 1) -> tuple[int | None, int]:
    """The axis along which a tensor is cut, or None, and the size of a piece."""
    if is_transformed():
        return None, 0
    limit = max(1, (block_elements(lead.device) if limit is None else limit) // weight)
    axis = next((i for i, size in enumerate(lead.shape[:-1]) if size > 1), None)
    if axis is None or lead.numel() <= limit:
        return None, 0
    return axis, max(1, lead.shape[axis] * limit // lead.numel())


def recompute_in_backward(
    function: Callable[..., tuple[Tensor, ...]], gradient: Callable[..., Tensor] | None = None, weight: int = 1
) -> Callable[..., tuple[Tensor, ...]]:
    """`function(logits, *rest)` for autograd, which keeps the logits and the results and computes all else again.

    Forward and backward work chunk by chunk: backward needs as little memory as forward. The results have the
    shape of the logits without the classes; tensors among the `rest` have one number for each row, on a last axis of 1.

    Args:
        function: the formula for a piece.
        gradient: gradient(logits, results, gradients of the results, *rest) is the gradient of the logits. What is not
            the logits has a last axis of 1, and a gradient may be None. By default torch differentiates the formula.
        weight: how many numbers the formula needs for each logit; more make the pieces smaller.
    """
    if gradient is None and is_transformed():  # which knows what to do, and cannot make a class
        return function

    def by_torch(logits: Tensor, results: list[Tensor], grads: list[Tensor | None], *rest: Any) -> Tensor:
        pull = torch.func.vjp(lambda z: function(z, *rest), logits)[1]
        pairs = zip(results, grads, strict=True)
        given = tuple((torch.zeros_like(x) if grad is None else grad).squeeze(-1) for x, grad in pairs)
        return pull(given)[0]  # type: ignore[no-any-return]

    formula = gradient or by_torch

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(logits: Tensor, *rest: Any) -> tuple[Tensor, ...]:
            return map_chunks(function, logits, *rest, weight=weight)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*(x for x in output if not x.is_floating_point()))
            ctx.results, ctx.inputs = len(output), len(inputs)
            ctx.save_for_backward(inputs[0], *output, *inputs[1:])

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
            nothing = [None] * (ctx.inputs - 1)
            if all(grad is None for grad in grads):
                return None, *nothing
            logits, *kept = ctx.saved_tensors
            results, rest = kept[: ctx.results], kept[ctx.results :]
            given = [grad is not None for grad in grads]
            columns = [x.unsqueeze(-1) for x in (*results, *(grad for grad in grads if grad is not None))]

            def piece(z: Tensor, *parts: Tensor) -> Tensor:
                columns = iter(parts[ctx.results : ctx.results + sum(given)])
                on = [next(columns) if here else None for here in given]
                return formula(z, [*parts[: ctx.results]], on, *parts[ctx.results + sum(given) :])

            if is_transformed():
                return piece(logits, *columns, *rest), *nothing
            out = torch.empty_like(logits)
            for part, *others in chunks(out, logits, *columns, *rest, weight=weight):
                part.copy_(piece(*others))
            return out, *nothing

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], int]:
            moved = zip(inputs, in_dims, strict=True)
            batched = (x.expand(info.batch_size, *x.shape) if at is None else x.movedim(at, 0) for x, at in moved)
            return Again.apply(*batched), 0

    def apply(logits: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        if is_eager_without_grad(logits):
            return map_chunks(function, logits, *rest, weight=weight)
        if gradient is None and (is_transformed() or not logits.requires_grad):
            return function(logits, *rest)
        return Again.apply(logits, *rest)  # type: ignore[no-any-return]

    return apply
