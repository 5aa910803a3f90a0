"""Where the logits and the targets of a step come from."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..finding import describe, find_logits, find_target

LogitFunction = Callable[[Any, Any, Any], tuple[Tensor, Tensor | None]]


class LogitSource:
    """Takes the logits of a step, once, from what the step returned, from a submodule, or from a user's function.

    Args:
        logits: None for the step's outputs; a submodule's name; or a function of outputs, batch and module that gives
            logits and targets (or None).
        dim: the class axis of the logits, which `take` moves to the second place.

    >>> source = LogitSource()
    >>> logits, target = source.take({"logits": torch.zeros(2, 3)}, (torch.zeros(2, 5), torch.tensor([0, 1])), None)
    >>> logits.shape, target
    (torch.Size([2, 3]), tensor([0, 1]))
    """

    def __init__(self, logits: str | LogitFunction | None = None, dim: int = 1) -> None:
        if not (logits is None or isinstance(logits, str) or callable(logits)):
            raise TypeError(
                "expected logits as None (the step's outputs), the name of a submodule or a function of "
                f"(outputs, batch, module), got {type(logits).__name__}"
            )
        self.logits, self.dim = logits, dim
        self._latest: Tensor | None = None
        self._handle: RemovableHandle | None = None

    def attach(self, module: nn.Module) -> None:
        """Begin to listen to the named submodule, if there is one; harmless when done twice."""
        if isinstance(self.logits, str) and self._handle is None:
            self._handle = _submodule(module, self.logits).register_forward_hook(self._keep)

    def detach(self) -> None:
        """Stop listening."""
        self.forget()
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def forget(self) -> None:
        """Let go of the logits of a step that nobody asked for."""
        self._latest = None

    def take(self, outputs: Any, batch: Any, module: Any) -> tuple[Tensor, Tensor | None]:
        """Logits of shape (N, C) or (N, C, ...) and their targets, if found; the logits are not kept."""
        if callable(self.logits):
            logits, target = _pair(self.logits(outputs, batch, module))
            return self._arranged(logits), target
        logits = self._arranged(self._named() if isinstance(self.logits, str) else _returned(outputs))
        return logits, find_target(outputs, batch, (*logits.shape[:1], *logits.shape[2:]))

    def _keep(self, module: nn.Module, args: Any, output: Any) -> None:
        self._latest = find_logits(output)

    def _named(self) -> Tensor:
        latest, self._latest = self._latest, None
        if latest is None:
            raise TypeError(
                f"expected submodule {self.logits!r} to run in this step, got no call of it (parts of a compiled "
                f"module may not tell: name the compiled module itself then); {_remedies()}"
            )
        return latest

    def _arranged(self, logits: Tensor) -> Tensor:
        logits = logits.detach()
        if self.dim == 1 or logits.ndim < 2:
            return logits
        return logits.movedim(self.dim, 1)


def _returned(outputs: Any) -> Tensor:
    try:
        logits = find_logits(outputs)
        found = f"a tensor of shape {tuple(logits.shape)}"
    except TypeError:
        logits, found = None, describe(outputs)
    if logits is None or logits.ndim < 2 or not logits.is_floating_point():
        raise TypeError(f"expected logits in what the step returned, got {found}; {_remedies()}")
    return logits


def _remedies() -> str:
    return (
        "return {'loss': loss, 'logits': logits} from the step, or name the submodule that makes them, as in "
        "logits='model.classifier', or give a function, logits=lambda outputs, batch, module: (logits, target)"
    )


def _pair(result: Any) -> tuple[Tensor, Tensor | None]:
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor)):
        raise TypeError(f"expected the logits function to return (logits, target or None), got {describe(result)}")
    return result


def _submodule(module: nn.Module, name: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        near = get_close_matches(name, [other for other, _ in module.named_modules() if other], 3, 0.4)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(f"expected the name of a submodule of {type(module).__name__}, got {name!r}{hint}") from None
