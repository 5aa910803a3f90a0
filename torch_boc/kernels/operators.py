"""The five operators of the kernels, registered for compilation, FakeTensor, autograd and vmap.

`row_sums` with its backward, `columns`, `tally` and `log_tails`: each runs the native library on the CPU and Triton on
other devices. `core.schema` has the names and dtypes of what they compute. `martingale` is for Triton only.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..core import tails
from ..core.martingale import StreamState, place_bets
from ..core.row_numbers import dtypes_of
from ..core.row_sums import gradient_of_all
from ..core.schema import OF_A_CLASS, SUMS, Labels, Tally
from .cpu import bindings as native
from .cpu import loader
from .triton import launch as triton

# The schemas are written out because older versions of torch do not infer all of them, and because torch would infer
# SymInt for the trials, on which the number of steps depends.
_operator = torch.library.custom_op


def _kernels(x: Tensor) -> Any:
    """The module whose functions compute on the device of `x`: Triton's not on the CPU, except in tests."""
    return triton if x.device.type != "cpu" or triton.interpreted() else native


def _check_rows(x: Tensor | None, kind: torch.dtype, logits: Tensor) -> None:
    """Raise unless `x` has a number for each row. Kernels get pointers, and cannot check this."""
    if x is not None and (x.dtype != kind or x.shape != logits.shape[:-1] or x.device != logits.device):
        raise ValueError(
            f"expected a tensor of shape {tuple(logits.shape[:-1])}, in {kind} on {logits.device}, "
            f"got shape {tuple(x.shape)}, {x.dtype} on {x.device}"
        )


def _check_states(states: Sequence[Tensor], kinds: Sequence[torch.dtype], device: torch.device) -> None:
    """Raise unless kernels can write these tensors in place."""
    for x, kind in zip(states, kinds, strict=True):
        if x.dtype != kind or not x.is_contiguous() or x.device != device:
            got = f"{x.dtype} with strides {x.stride()} on {x.device}"
            raise ValueError(f"expected contiguous states in {kind} on {device}, got {got}")


@_operator(
    "torch_boc::columns",
    mutates_args=(),
    schema="(Tensor logits, str[] names, Tensor? index, bool keep_dtype) -> Tensor[]",
)
def columns(logits: Tensor, names: Sequence[str], index: Tensor | None, keep_dtype: bool) -> list[Tensor]:
    """`core.row_numbers.columns` in one pass over logits (..., C), without a gradient."""
    if index is None and not OF_A_CLASS.isdisjoint(names):
        raise ValueError(f"expected an index for {', '.join(OF_A_CLASS & {*names})}, got None")
    _check_rows(index, torch.int64, logits)
    return _kernels(logits).columns(logits, names, index, keep_dtype)  # type: ignore[no-any-return]


@columns.register_fake
def _(logits: Tensor, names: Sequence[str], index: Tensor | None, keep_dtype: bool) -> list[Tensor]:
    return [
        logits.new_empty(logits.shape[:-1], dtype=kind) for kind in dtypes_of(tuple(names), logits.dtype, keep_dtype)
    ]


@_operator("torch_boc::row_sums", mutates_args=(), schema="(Tensor logits, bool extras) -> Tensor[]")
def row_sums(logits: Tensor, extras: bool) -> list[Tensor]:
    """The sums of `core.row_sums.row_sums` in one pass, in the order of `schema.SUMS`, the last two with `extras`."""
    return _kernels(logits).columns(logits, SUMS if extras else SUMS[:-2], None, True)  # type: ignore[no-any-return]


@_operator(
    "torch_boc::row_sums_backward",
    mutates_args=(),
    schema="(Tensor logits, Tensor prediction, Tensor top, Tensor odds, Tensor mass, "
    + ", ".join(f"Tensor? on_{name}" for name in SUMS[1:])
    + ") -> Tensor",
)
def row_sums_backward(
    logits: Tensor, prediction: Tensor, top: Tensor, odds: Tensor, mass: Tensor, *grads: Tensor | None
) -> Tensor:
    """The gradient of the logits from those of the sums but the prediction, of which any may be None.

    It is computed again from the logits and their tops. The odds and masses tell which rows are flat or sharp.
    """
    kinds = dtypes_of(SUMS, logits.dtype, True)
    for x, kind in zip((prediction, top, odds, mass, *grads), (*kinds[:3], kinds[4], *kinds[1:]), strict=True):
        _check_rows(x, kind, logits)
    out = logits.new_empty(logits.shape)  # contiguous even if the logits are not
    if logits.numel():
        _kernels(logits).gradient(logits, (prediction, top, odds, mass), grads, out)
    return out


@row_sums.register_fake
def _(logits: Tensor, extras: bool) -> list[Tensor]:
    kinds = dtypes_of(SUMS if extras else SUMS[:-2], logits.dtype, True)
    return [logits.new_empty(logits.shape[:-1], dtype=kind) for kind in kinds]


@row_sums_backward.register_fake
def _(logits: Tensor, *rest: Any) -> Tensor:
    return logits.new_empty(logits.shape)


def _save_sums(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.set_materialize_grads(False)  # a sum that was not used has no gradient: the kernel has less to do
    prediction, top, odds, _, mass, *_ = output
    ctx.save_for_backward(inputs[0], prediction, top, odds, mass)


def _sums_backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Tensor | None, None]:
    given = [*grads[1:], None, None][: len(SUMS) - 1]
    if all(grad is None for grad in given):
        return None, None
    logits, *sums = ctx.saved_tensors
    kinds = dtypes_of(SUMS, logits.dtype, True)[1:]
    cast = [x if x is None else x.to(kind) for x, kind in zip(given, kinds, strict=True)]
    # Otherwise there can be a second derivative, or the gradients are those of vmap.
    if not torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active():
        with suppress(triton.NotLoadedError):
            return row_sums_backward(logits, *sums, *cast), None
    _, _, *which = (x.detach().unsqueeze(-1) for x in sums)
    return gradient_of_all(logits, *which, *(x if x is None else x.unsqueeze(-1) for x in cast)), None


row_sums.register_autograd(_sums_backward, setup_context=_save_sums)


def _in_place(names: tuple[str, ...]) -> str:
    return ", ".join(f"Tensor({chr(97 + place)}!) {name}" for place, name in enumerate(names))


@_operator(
    "torch_boc::tally",
    mutates_args=Tally._fields,
    schema="(Tensor[] given, Tensor?[] labels, int num_classes, int trials, float alpha, "
    f"{_in_place(Tally._fields)}) -> ()",
)
def tally(
    given: Sequence[Tensor], labels: Labels, num_classes: int, trials: int, alpha: float, *states: Tensor
) -> None:
    """`core.tally.add_samples`: add samples to the tensors of a `Tally`, in place.

    `given` are the first five fields of coins or, on the CPU, only the logits, which need no distance.
    Prediction and target are int64, `counted` is bool, all other numbers of the samples are float64. With 0 trials,
    nothing is added to what is about p-values.
    """
    if len(given) == 1:
        for x, kind in zip(labels, (torch.int64, torch.float64, torch.bool), strict=True):
            _check_rows(x, kind, given[0])
    wide, count = torch.float64, torch.int64
    _check_states(states, (count, wide, count, count, wide), given[0].device)
    _kernels(given[0]).tally(given, labels, num_classes, trials, alpha, *states)


tally.register_fake(lambda *_: None)


@_operator(
    "torch_boc::martingale",
    mutates_args=StreamState._fields,
    schema="(Tensor p, Tensor number, Tensor[] mixed, float bound, bool endless, "
    f"{_in_place(StreamState._fields)}) -> Tensor",
)
def martingale(
    p: Tensor, number: Tensor, mixed: Sequence[Tensor], bound: float, endless: bool, *states: Tensor
) -> Tensor:
    """`core.martingale.place_bets` with p-values in float64, without Triton by torch's operations."""
    wide, count = torch.float64, torch.int64
    _check_states(states, (wide, wide, *[count] * 3, wide, wide, count, count, wide), p.device)
    place = triton.martingale if _kernels(p) is triton else place_bets
    return place(p, number, mixed, bound, endless, *states)


martingale.register_fake(lambda p, *_: torch.empty_like(p))


class LogTail(torch.autograd.Function):
    """`core.tails.log_tails`, whose derivative has a closed form: nothing of the continued fraction has to be saved."""

    generate_vmap_rule = True

    @staticmethod
    def forward(wins: Tensor, trials: int, odds: Tensor) -> tuple[Tensor, ...]:
        return tails.log_tails(wins, trials, odds)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[None, None, Tensor]:
        (slope,) = ctx.saved_tensors
        return None, None, grad * slope


@_operator(
    "torch_boc::log_tails",
    mutates_args=(),
    schema="(Tensor wins, int trials, Tensor odds) -> (Tensor log_tail, Tensor slope)",
)
def log_tails(wins: Tensor, trials: int, odds: Tensor) -> tuple[Tensor, ...]:
    """The log of Pr{Binomial(trials, 1 / (1 + odds)) >= wins} and its derivative in `odds`, in float64.

    It can be differentiated once, in `odds`. The derivative that it returns has no gradient. Where no kernel is there,
    and for more trials than the native library takes, the formulas of `core` are used.
    """
    if wins.shape != odds.shape or wins.device != odds.device or (wins.dtype, odds.dtype) != (torch.float64,) * 2:
        got = ", ".join(f"{tuple(x.shape)} in {x.dtype} on {x.device}" for x in (wins, odds))
        raise ValueError(f"expected two tensors of one shape in float64 on one device, got {got}")
    kernels = _kernels(odds)
    by_library = kernels is native and trials <= native.MOST_TRIALS and loader.variant() is not None
    takes = by_library or (kernels is triton and triton.available(odds.device.type))
    return (kernels if takes else tails).log_tails(wins, trials, odds)  # type: ignore[no-any-return]


@log_tails.register_fake
def _(wins: Tensor, trials: int, odds: Tensor) -> tuple[Tensor, Tensor]:
    return odds.new_empty(odds.shape), odds.new_empty(odds.shape)


log_tails.register_autograd(LogTail.backward, setup_context=LogTail.setup_context)


@log_tails.register_vmap
def _(info: Any, in_dims: tuple[int | None, None, int | None], wins: Tensor, trials: int, odds: Tensor) -> Any:
    pairs = ((wins, in_dims[0]), (odds, in_dims[2]))
    first, last = (x.expand(info.batch_size, *x.shape) if at is None else x.movedim(at, 0) for x, at in pairs)
    return log_tails(first, trials, last), (0, 0)
