"""Where the logits and the targets of a step come from."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from ..data.extract import describe, fields, find_logits, find_submodule, find_target, fit_target
from ..data.label_shift import predicts_next
from ..data.losses import LossCall, capture_losses, class_targets, same_memory
from ..functional.checks import as_binary, class_axis
from ..metrics.watching import Hook
from ._compat import log_info
from .step import ModuleCalls

LogitFunction = Callable[[Any, Any, Any], tuple[Tensor, Tensor | None]]
TargetSource = str | int | Callable[[Any, Any, Any], Tensor | None]


class ExtractedLogits(NamedTuple):
    """The logits of a step, of shape (N, ..., C), and what belongs to them.

    Attributes:
        rows: the logits.
        target: class indices of shape (N, ...), or None.
        ignore_index: samples with this target do not count.
        binary: whether the rows are (0, z) of single logits z.
        misfit: why a target that is there could not be used, or "".
    """

    rows: Tensor
    target: Tensor | None
    ignore_index: int | None
    binary: bool
    misfit: str


class LogitSource:
    """Finds the logits of a step: what the user names, what the step returned, the input of its loss, or of a module.

    Args:
        logits: None to find them; a submodule's name; or a function of outputs, batch and module that returns logits
            and targets; the targets may be None.
        target: None to find it; a key or index of the batch, or a function of outputs, batch and module.
        dim: the class axis of what the step returns or the user names; by default that of its loss, or that which the
            shape of the target implies.
        ignore_index: "loss" for that of the loss, or -100.
        binary: whether each sample has a single logit z, which stands for the logits (0, z) of two classes.
        num_classes: how many classes the logits of a module must have; None for any number.

    >>> source = LogitSource()
    >>> extracted = source.extract({"logits": torch.zeros(2, 3)}, (torch.zeros(2, 5), torch.tensor([0, 1])), None)
    >>> extracted.rows.shape, extracted.target
    (torch.Size([2, 3]), tensor([0, 1]))
    """

    def __init__(
        self,
        logits: str | LogitFunction | None = None,
        target: TargetSource | None = None,
        dim: int | None = None,
        *,
        ignore_index: int | str | None = "loss",
        binary: bool = False,
        num_classes: int | None = None,
    ) -> None:
        if not (logits is None or isinstance(logits, str) or callable(logits)):
            raise TypeError(
                f"expected logits as None, a submodule's name or a function of 3 arguments, got {type(logits).__name__}"
            )
        self.logits, self.target, self.dim, self.ignore_index = logits, target, dim, ignore_index
        self.binary, self.num_classes = binary, num_classes
        self._handle: RemovableHandle | None = None
        self.detach()

    def attach(self, module: nn.Module) -> None:
        """Put a hook on the named submodule, if there is one; calling it twice does no harm."""
        if not isinstance(self.logits, str) or self._handle is not None:
            return
        submodule = find_submodule(module, self.logits)
        self._handle = submodule.register_forward_hook(Hook(lambda output: self._named.append(output)))

    def detach(self) -> None:
        """Remove the hook, and forget what is known of the model."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._classes: int | None = None  # of the first logits, which were logged
        self._single = False  # whether they were the single logits of a binary loss
        self._settled = set[Any]()  # the loaders whose logits are not those of a module
        self._one_hot = dict[Any, bool]()  # whether the first targets of a loader were one-hot floats
        self.forget()

    def forget(self) -> None:
        """Drop what is known of a step."""
        self._named: list[Any] = []  # what the named submodule returned
        self._calls: list[LossCall] = []
        self._modules: list[tuple[nn.Module, Any]] = []
        self._hidden = False  # whether compiled code hides the calls of modules

    @contextmanager
    def watch(self, module: nn.Module, loader: Any, *, wrapped: bool) -> Iterator[None]:
        """Watch a step of a loader."""
        self.forget()
        with ExitStack() as stack:
            losses = stack.enter_context(capture_losses())
            if self.logits is None and loader not in self._settled:
                parts = [*module.modules()]
                compiled = [getattr(part, "_compiled_call_impl", None) for part in parts]
                self._hidden = any([getattr(module, "_compiler_ctx", None), *compiled])
                if not self._hidden:
                    wraps = any(hasattr(part, "_orig_mod") for part in parts)
                    self._modules = stack.enter_context(ModuleCalls(wrapped=wrapped, compiled=wraps)).outputs
            yield
        self._calls = losses.calls

    def extract(self, outputs: Any, batch: Any, module: Any, *, loader: Any = 0, ood: bool = False) -> ExtractedLogits:
        """The logits of a step and their targets, if there are some; neither is kept. The first origin is logged.

        With `ood`, the target of a whole sample is left out, because it is a class that the model does not have. The
        targets of pixels and tokens may still say which of them do not count.

        Args:
            outputs: what the step returned.
            batch: what the loader gave.
            module: the user's module.
            loader: which loader the batch is from, as in `watch`.
            ood: whether its samples are out-of-distribution.
        """
        step = (outputs, batch, module)
        try:
            logits, target, call, origin = self._choose(*step)
        finally:
            self.forget()
        if not origin.startswith("the module"):
            self._settled.add(loader)
        binary, dim, misfit = self.binary or (self._single if call is None else call.binary), self.dim, ""
        if call is not None and dim is None:
            if (logits.shape, logits.stride()) != (call.logits.shape, call.logits.stride()):
                logits = call.logits  # such as flattened or transposed tokens
            dim = None if call.binary else 1
        guessed = call is None and self.target is None and not callable(self.logits)
        if call is not None and self.target is None:
            target = self._loss_target(call, batch, loader)
        elif guessed or self.target is not None:
            try:
                target = self._find(step, logits, dim, binary=binary)
            except ValueError as error:
                misfit = str(error)
        if binary:
            rows, target = as_binary(logits, target, dim=dim)
        else:
            rows = logits.movedim(class_axis(logits, target) if dim is None else dim, -1) if logits.ndim else logits
        if rows.shape[-1:] == (1,):
            got = f"single logits of shape {tuple(logits.shape)}"
            raise ValueError(f"expected at least 2 classes, got {got}; BoCCallback(binary=True) takes them")
        ignore_index: Any = -100 if self.ignore_index == "loss" else self.ignore_index
        if call is not None:
            if target is not None and target.numel() * rows.shape[-1] == rows.numel():
                target = target.reshape(rows.shape[:-1])  # the loss may have had another view
            samples = len(next(iter(_tensors(batch)), ()))
            if rows.ndim == 2 and 0 < samples < len(rows) and len(rows) % samples == 0:
                rows = rows.unflatten(0, (samples, -1))  # the tokens of a sample stay together
                target = None if target is None else target.unflatten(0, (samples, -1))
            if self.ignore_index == "loss" and call.ignore_index is not None:
                ignore_index = call.ignore_index
        elif guessed and target is not None and rows.ndim == 3:
            shifts = any(predicts_next(part, rows.shape[-1]) for part in module.modules())
            if shifts:
                target = None
                misfit = "expected the loss of a causal language model, which shifts the labels, got none"
        if self._classes is None and rows.ndim > 1:
            self._classes, self._single = rows.shape[-1], binary
            log_info(f"torch_boc: the logits of {self._classes} classes are from {origin}")
        return ExtractedLogits(rows, None if ood and rows.ndim == 2 else target, ignore_index, binary, misfit)

    def _choose(self, outputs: Any, batch: Any, module: Any) -> tuple[Tensor, Tensor | None, LossCall | None, str]:
        """The logits, their target if the user gives both, the loss that got them, and where they are from."""
        calls = [call for call in self._calls if not call.refused]
        if callable(self.logits):
            result: Any = self.logits(outputs, batch, module)
            match result:
                case (Tensor() as logits, Tensor() | None as target):
                    return logits.detach(), target, None, "the logits function"
            count = f", {len(result)} in all" if isinstance(result, tuple | list) else ""
            raise TypeError(f"expected a tuple of two, (logits, target or None), got {describe(result)}{count}")
        if self.logits is not None:
            if len(self._named) != 1:
                why = "in chunks, for several views, or for each new token" if self._named else "compiled code hides it"
                got = f"{len(self._named)} ({why})"
                raise TypeError(f"expected one call of the submodule {self.logits!r} in a step, got {got}")
            logits = find_logits(self._named[0]).detach()
            return logits, None, _call_of(logits, self._calls), f"the submodule {self.logits!r}"
        returned = None if outputs is None else self._as_logits(outputs)
        if returned is not None:
            call, named = _call_of(returned, self._calls), not isinstance(outputs, Tensor | tuple | list)
            # Without a name, what has other classes than the loss may be anything, such as features.
            if call or named or len(calls) != 1 or calls[0].logits.shape[1:2] == returned.shape[1:2]:
                return returned, None, call, "what the step returned"
        if len(calls) == 1:
            return calls[0].logits, None, calls[0], calls[0].loss
        outputs_of = self._module_outputs(module)
        fitting = [(name, x) for name, x in outputs_of if self._fits(x, (outputs, batch, module))]
        if len(fitting) == 1 and not self._calls:
            ((name, logits),) = fitting
            return logits, None, None, f"the module {name or type(module).__name__!r}"
        seen = [call.refused or f"{call.loss} of logits {tuple(call.logits.shape)}" for call in self._calls]
        seen += [f"module {name or type(module).__name__!r} returning {tuple(x.shape)}" for name, x in outputs_of]
        names = [name for name, _ in fitting or outputs_of if name]
        if (self._modules or self._hidden) and not names:
            names = [name for name, part in module.named_children() if any(True for _ in part.parameters())]
        # The output of a module would be what the refused loss got, or there are several.
        if len(calls) < len(self._calls) or len({name for name, _ in outputs_of}) < len(outputs_of):
            names = []
        remedy = repr(names[-1]) if names else "lambda outputs, batch, module: (logits, target)"
        several = "logits of one loss" if len(calls) > 1 else "logits"
        raise TypeError(
            f"expected {several} in a step of {type(module).__name__}, which returned {describe(outputs)}\n"
            f"seen: {', '.join(seen) or 'no loss of torch.nn.functional, and no module that returned logits'}\n"
            f"name the logits: BoCCallback(logits={remedy})"
        )

    def _as_logits(self, output: Any) -> Tensor | None:
        try:
            logits = find_logits(output).detach()
        except TypeError:
            return None
        return logits if logits.is_floating_point() and logits.ndim + self.binary > 1 else None

    def _module_outputs(self, module: nn.Module) -> list[tuple[str, Tensor]]:
        """What the modules returned that the step called, with their names; the same logits once."""
        names, different = {part: name for name, part in module.named_modules()}, list[tuple[str, Tensor]]()
        for part, output in self._modules:
            logits = self._as_logits(output)
            if logits is not None and part in names and not any(same_memory(logits, x) for _, x in different):
                different.append((names[part], logits))
        return different

    def _fits(self, logits: Tensor, step: tuple[Any, Any, Any]) -> bool:
        """Whether logits fit the target, or without one the samples and the known number of classes."""
        classes, binary = self.num_classes or self._classes, self.binary or self._single
        if classes and not binary and classes not in (logits.shape[1], logits.shape[-1]):
            return False
        with suppress(ValueError):
            if self._find(step, logits, self.dim, binary=binary) is not None:
                return True
        return bool(classes and len(logits) == len(next(iter(_tensors(step[1])), ())))

    def _find(self, step: tuple[Any, Any, Any], logits: Tensor, dim: int | None, *, binary: bool) -> Tensor | None:
        """The target that the user names, or the one that is found."""
        outputs, batch, _ = step
        if self.target is None:
            return find_target(outputs, batch, logits, dim=dim, binary=binary)
        if callable(self.target):
            target = self.target(*step)
        else:
            try:
                target = (batch if isinstance(self.target, int) else fields(batch) | fields(outputs))[self.target]
            except (LookupError, TypeError):
                raise ValueError(f"expected a target {self.target!r}, got {describe(batch)}") from None
        return None if target is None else fit_target(target, logits, dim=dim, binary=binary)

    def _loss_target(self, call: LossCall, batch: Any, loader: Any) -> Tensor | None:
        """The class indices that a loss got. The values of the first batch of a loader are read."""
        target, size = call.target, len(call.logits)
        if loader not in self._one_hot and target is not None and size > 1 and call.logits.shape == (size, size):
            made = not any(x.numel() == size and same_memory(x, target) for x in _tensors(batch))
            if made and target.equal(torch.arange(size, device=target.device)):
                got = f"{size} × {size} similarities with targets 0 to {size - 1}"
                raise TypeError(
                    f"expected logits of classes, got {got}: {call.loss} is a contrastive loss here\n"
                    "name the logits of a classifier: BoCCallback(logits='head')"
                )
        if target is not None and target.is_floating_point():
            target, self._one_hot[loader] = class_targets(call, self._one_hot.get(loader))
        else:
            self._one_hot.setdefault(loader, False)
        return target


def _call_of(logits: Tensor, calls: list[LossCall]) -> LossCall | None:
    """The call of a loss that got these logits: the same memory, or a copy in another precision."""
    same = [call for call in calls if same_memory(call.logits, logits)] or [
        call for call in calls if call.logits.dtype != logits.dtype and call.logits.numel() == logits.numel()
    ]
    if len(same) == 1 and same[0].refused:
        raise TypeError(f"expected logits with one class for each sample, got {same[0].refused}")
    return same[0] if len(same) == 1 else None


def _tensors(batch: Any) -> list[Tensor]:
    inside = fields(batch) if isinstance(batch, Mapping) or hasattr(batch, "__dataclass_fields__") else batch
    return [x for x in tree_leaves(inside) if isinstance(x, Tensor) and x.ndim]
