"""Where the logits and the targets of a step come from."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..data.finding import describe, find_logits, find_target

LogitFunction = Callable[[Any, Any, Any], tuple[Tensor, Tensor | None]]


class LogitSource:
    """Finds the logits of a step: in its outputs, in the output of a submodule, or with a function of the user.

    Args:
        logits: None for the step's outputs; a submodule's name; or a function of outputs, batch and module that returns
            logits and targets; the targets may be None.
        dim: the class axis of the logits, which `take` moves to the second place.
        binary: whether each sample has a single logit z, which stands for the logits (0, z) of two classes.

    >>> source = LogitSource()
    >>> logits, target = source.take({"logits": torch.zeros(2, 3)}, (torch.zeros(2, 5), torch.tensor([0, 1])), None)
    >>> logits.shape, target
    (torch.Size([2, 3]), tensor([0, 1]))
    """

    def __init__(self, logits: str | LogitFunction | None = None, dim: int = 1, *, binary: bool = False) -> None:
        if not (logits is None or isinstance(logits, str) or callable(logits)):
            raise TypeError(
                "expected logits as None (the step's outputs), the name of a submodule or a function of "
                f"(outputs, batch, module), got {type(logits).__name__}"
            )
        self.logits, self.dim, self.binary = logits, dim, binary
        self._latest: Tensor | Exception | None = None
        self._handle: RemovableHandle | None = None

    def attach(self, module: nn.Module) -> None:
        """Put a hook on the named submodule, if there is one; calling it twice does no harm."""
        if isinstance(self.logits, str) and self._handle is None:
            self._handle = _submodule(module, self.logits).register_forward_hook(self._keep)

    def detach(self) -> None:
        """Remove the hook."""
        self.forget()
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def forget(self) -> None:
        """Drop the logits of a step that were not taken."""
        self._latest = None

    def take(self, outputs: Any, batch: Any, module: Any) -> tuple[Tensor, Tensor | None]:
        """Logits of shape (N, C) or (N, C, ...) and their targets, if found; the logits are not kept."""
        latest, self._latest = self._latest, None
        if callable(self.logits):
            logits, target = _pair(self.logits(outputs, batch, module))
            logits = self._arranged(logits, "from the logits function")
            return logits, self._as_classes(target, logits)
        if isinstance(self.logits, str):
            logits = self._arranged(self._named(latest), f"from submodule {self.logits!r}")
        else:
            logits = self._arranged(_returned(outputs), "in what the step returned")
        target = find_target(outputs, batch, (*logits.shape[:1], *logits.shape[2:]), binary=self.binary)
        return logits, self._as_classes(target, logits)

    def _keep(self, module: nn.Module, args: Any, output: Any) -> None:
        try:
            self._latest = find_logits(output)
        except Exception as error:  # raised when the logits are asked for, and not in the forward pass
            self._latest = error.with_traceback(None)

    def _named(self, latest: Tensor | Exception | None) -> Tensor:
        if isinstance(latest, Exception):
            raise TypeError(f"expected logits from submodule {self.logits!r}; {latest}") from latest
        if latest is None:
            raise TypeError(
                f"expected submodule {self.logits!r} to run in this step, got no call of it (parts of a compiled "
                f"module may not tell: name the compiled module itself then); {_remedies()}"
            )
        return latest

    def _arranged(self, logits: Tensor, origin: str) -> Tensor:
        """The logits with the class axis second, and at least two classes."""
        got = f"got shape {tuple(logits.shape)}, dtype {logits.dtype}"
        has_axis = logits.ndim > 1 and -logits.ndim <= self.dim < logits.ndim
        single = logits.ndim == 1 or (has_axis and logits.shape[self.dim] == 1)
        if not logits.is_floating_point() or not (has_axis or single) or (single and not self.binary):
            hint = "binary=True takes a single logit of each sample for two classes; " if single else ""
            shape = f"with two classes or more on dim={self.dim}, as in (N, C)"
            raise TypeError(f"expected logits {origin}, {shape}, {got}; {hint}{_remedies()}")
        if self.binary and not single:
            raise ValueError(f"expected a single logit of each sample {origin}, as binary=True says, {got}")
        logits = logits.detach().unsqueeze(1) if logits.ndim == 1 else logits.detach().movedim(self.dim, 1)
        return torch.cat([torch.zeros_like(logits), logits], 1) if self.binary else logits

    def _as_classes(self, target: Tensor | None, logits: Tensor) -> Tensor | None:
        """Binary targets as class indices. They are often floating-point, with a class axis; 0.5 is not a class."""
        if target is None or not self.binary:
            return target
        whole = target.long()
        return torch.where(whole == target, whole, -1).reshape(*logits.shape[:1], *logits.shape[2:])


def _returned(outputs: Any) -> Tensor:
    try:
        return find_logits(outputs)
    except TypeError:
        raise TypeError(f"expected logits in what the step returned, got {describe(outputs)}; {_remedies()}") from None


def _remedies() -> str:
    return (
        "return {'loss': loss, 'logits': logits} from the step, or name the submodule that makes them, as in "
        "logits='model.classifier', or give a function, logits=lambda outputs, batch, module: (logits, target)"
    )


def _pair(result: Any) -> tuple[Tensor, Tensor | None]:
    if isinstance(result, tuple) and len(result) == 2:
        logits, target = result
        if isinstance(logits, Tensor) and (target is None or isinstance(target, Tensor)):
            return logits, target
    count = f", {len(result)} in all" if isinstance(result, tuple | list) else ""
    raise TypeError(
        "expected the logits function to return a tuple of two, (logits, target or None), "
        f"got {describe(result)}{count}"
    )


def _submodule(module: nn.Module, name: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        near = get_close_matches(name, [other for other, _ in module.named_modules() if other], 3, 0.4)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(f"expected the name of a submodule of {type(module).__name__}, got {name!r}{hint}") from None
