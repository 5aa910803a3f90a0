"""The logits and targets of classification losses, recorded while other code computes them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class LossCall(NamedTuple):
    """A call of a classification loss.

    Attributes:
        loss: the name of the function, such as "cross_entropy".
        logits: its detached input, not a copy. The class axis is 1, also of a single sample; binary losses have one
            logit per sample.
        target: class indices; class probabilities of the shape of the logits; 0 and 1 of a binary loss. None if the
            same logits were compared with different targets, as in mixup.
        ignore_index: samples with this target do not count; None if the loss has no such target.
        binary: whether the loss is for one logit per sample.
        refused: why these logits cannot be used, or "".
    """

    loss: str
    logits: Tensor
    target: Tensor | None
    ignore_index: int | None = None
    binary: bool = False
    refused: str = ""


class capture_losses(TorchFunctionMode):  # noqa: N801, it is used as a function
    """Record the logits and targets of the classification losses that are computed in a `with` block.

    These are `torch.nn.functional.cross_entropy`, `nll_loss` and `binary_cross_entropy_with_logits`, however they are
    called: as `nn.CrossEntropyLoss`, in a model of transformers, or in compiled code. Tensors are not copied, no value
    is read from the device, and nothing is replaced globally.

    Several calls with the same logits count once; if their targets differ, there is no target. Logits with several
    classes in `binary_cross_entropy_with_logits` are multi-label: they are recorded as refused.

    It cannot see losses in TorchScript, in other threads (`nn.DataParallel`) or in transforms of `torch.func`; fused
    losses (`F.linear_cross_entropy`, Liger); and losses made of other functions, such as `log_softmax` and `gather`.
    Logits or targets that are changed in place after the loss are refused. In compiled code and in inference mode torch
    does not count such changes, and they are not noticed. Inside of the block, torch does not use its fast paths of
    `nn.MultiheadAttention` and `nn.TransformerEncoder` in eval mode, as in training; small batches take longer.

    Args:
        on_call: called with each `LossCall`, for a block of many steps, whose logits are then not kept. A call is
            handed over when the loss of other logits is computed, or at the end of the block.

    >>> with capture_losses() as losses:
    ...     loss = torch.nn.CrossEntropyLoss()(torch.zeros(8, 3), torch.ones(8).long())
    >>> [(call.loss, call.logits.shape, call.ignore_index) for call in losses.calls]
    [('cross_entropy', torch.Size([8, 3]), -100)]
    """

    def __init__(self, on_call: Callable[[LossCall], object] | None = None) -> None:
        super().__init__()
        self._on_call, self._streams = on_call, on_call is not None
        self._seen: list[Any] = []
        self._pending: list[LossCall] = []

    @property
    def calls(self) -> list[LossCall]:
        """The calls so far in this block, or in the last one; calls with the same logits are one."""
        calls: list[LossCall] = []
        for seen in self._seen:
            _add(calls, *seen)
        return calls

    def __enter__(self) -> "capture_losses":
        self._seen = []  # compiled code would be compiled again for each length of a list that grows
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._streams and error[0] is None:
            self._hand_over(rest=True)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, and record it if it is a loss."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        # Dynamo of torch 2.7 does not know `in`.
        binary = func is functional.binary_cross_entropy_with_logits
        is_loss = binary or func is functional.cross_entropy or func is functional.nll_loss
        if is_loss and not torch._C._are_functorch_transforms_active():
            logits = args[0] if args else kwargs["input"]
            target = args[1] if len(args) > 1 else kwargs["target"]
            ignore_index = args[4] if len(args) > 4 else kwargs.get("ignore_index", -100)
            versions = None if torch.compiler.is_compiling() else (_version(logits), _version(target))
            self._seen.append(
                (func.__name__, logits.detach(), target.detach(), None if binary else ignore_index, versions)
            )
        if self._streams and self._seen and not torch.compiler.is_compiling():
            self._hand_over()
        return result

    def _hand_over(self, *, rest: bool = False) -> None:
        latest, self._seen = self._seen, []
        for seen in latest:
            _add(self._pending, *seen)
        while self._on_call is not None and len(self._pending) > (not rest):
            self._on_call(self._pending.pop(0))


def _version(x: Tensor) -> int | None:
    return None if x.is_inference() else x._version


def _add(
    calls: list[LossCall],
    loss: str,
    logits: Tensor,
    target: Tensor,
    ignore_index: int | None,
    versions: tuple[int | None, ...] | None,
) -> None:
    """Add a call to a list, in which calls with the same logits are one."""
    shape, binary, refused = tuple(logits.shape), ignore_index is None, ""
    if versions is not None and versions != (_version(logits), _version(target)):
        refused = f"logits or targets of {loss} that were changed in place after it"
    elif binary and len(shape) > 1 and 1 not in (shape[1], shape[-1]):
        refused = f"multi-label logits of shape {shape} in {loss}"
    if len(shape) == 1 and not binary:
        logits, target = logits[None], target[None]
    for i, call in enumerate(calls):
        if same_memory(call.logits, logits):
            if call.target is not None and not same_memory(call.target, target):
                calls[i] = call._replace(target=None)
            return
    calls.append(LossCall(loss, logits, target, ignore_index, binary, refused))


def class_targets(call: LossCall, one_hot: bool | None = None) -> tuple[Tensor | None, bool]:
    """The target of a loss, with class indices for one-hot floats, and whether it holds such floats.

    Soft labels name no class, so there is no target. Float targets are read from the device if `one_hot` is None: pass
    the returned value with the next calls.

    >>> class_targets(LossCall("cross_entropy", torch.zeros(2, 3), torch.eye(3)[1:]))
    (tensor([1, 2]), True)
    """
    target = call.target
    if target is None or not target.is_floating_point():
        return target, bool(one_hot)
    hard = target == target.round() if call.binary else target.amax(1) == 1
    if not (bool(hard.all()) if one_hot is None else one_hot):
        return None, False
    return target if call.binary else torch.where(hard, target.argmax(1), -1), True


def same_memory(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors, both in memory, are the same numbers, or views of the same numbers."""
    return x is y or (x.numel() == y.numel() and x.data_ptr() == y.data_ptr())
