"""Where the logits and the targets of a step come from."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..data.finding import describe, find_logits, find_target

REMEDIES = (
    "return {'loss': loss, 'logits': logits} from the step, or name the submodule that makes them, as in "
    "logits='model.classifier', or give a function, logits=lambda outputs, batch, module: (logits, target)"
)
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
        self._latest: list[Any] = []  # what the submodule returned at its last call
        self._handle: RemovableHandle | None = None

    def attach(self, module: nn.Module) -> None:
        """Put a hook on the named submodule, if there is one; calling it twice does no harm."""
        if not isinstance(self.logits, str) or self._handle is not None:
            return
        try:
            submodule = module.get_submodule(self.logits)
        except AttributeError:
            near = get_close_matches(self.logits, [name for name, _ in module.named_modules() if name], 3, 0.4)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            kind = type(module).__name__
            raise ValueError(f"expected the name of a submodule of {kind}, got {self.logits!r}{hint}") from None
        self._handle = submodule.register_forward_hook(self._keep)

    def detach(self) -> None:
        """Remove the hook."""
        self.forget()
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def forget(self) -> None:
        """Drop the logits of a step that were not taken."""
        self._latest = []

    def take(self, outputs: Any, batch: Any, module: Any) -> tuple[Tensor, Tensor | None]:
        """Logits of shape (N, C) or (N, C, ...) and their targets, if found; the logits are not kept."""
        latest = self._latest.pop() if self._latest else None
        if callable(self.logits):
            logits, target = self._called(self.logits(outputs, batch, module))
        else:
            origin, source = "in what the step returned", outputs
            if self.logits is not None:
                origin, source = f"from submodule {self.logits!r}", latest
                if latest is None:
                    raise TypeError(
                        f"expected submodule {self.logits!r} to run in this step, got no call of it (parts of a "
                        f"compiled module may not tell: name the compiled module itself then); {REMEDIES}"
                    )
            try:
                found = find_logits(source)
            except TypeError as error:
                raise TypeError(f"expected logits {origin}; {error}; {REMEDIES}") from None
            logits = self._arranged(found, origin)
            target = find_target(outputs, batch, (*logits.shape[:1], *logits.shape[2:]), binary=self.binary)
        if self.binary and target is not None:
            # Binary targets are often floating-point, with a class axis; 0.5 is not a class.
            whole = target.long()
            target = torch.where(whole == target, whole, -1).reshape(*logits.shape[:1], *logits.shape[2:])
        return logits, target

    def _keep(self, module: nn.Module, args: Any, output: Any) -> None:
        self._latest = [output]  # what it holds is looked at in `take`: in training it may be something else

    def _called(self, result: Any) -> tuple[Tensor, Tensor | None]:
        if isinstance(result, tuple) and len(result) == 2:
            logits, target = result
            if isinstance(logits, Tensor) and isinstance(target, Tensor | None):
                return self._arranged(logits, "from the logits function"), target
        count = f", {len(result)} in all" if isinstance(result, tuple | list) else ""
        raise TypeError(
            "expected the logits function to return a tuple of two, (logits, target or None), "
            f"got {describe(result)}{count}"
        )

    def _arranged(self, logits: Tensor, origin: str) -> Tensor:
        """The logits with the class axis second, and at least two classes."""
        got = f"got shape {tuple(logits.shape)}, dtype {logits.dtype}"
        has_axis = logits.ndim > 1 and -logits.ndim <= self.dim < logits.ndim
        single = logits.ndim == 1 or (has_axis and logits.shape[self.dim] == 1)
        if not logits.is_floating_point() or not (has_axis or single) or (single and not self.binary):
            hint = "binary=True takes a single logit of each sample for two classes; " if single else ""
            shape = f"with two classes or more on dim={self.dim}, as in (N, C)"
            raise TypeError(f"expected logits {origin}, {shape}, {got}; {hint}{REMEDIES}")
        if self.binary and not single:
            raise ValueError(f"expected a single logit of each sample {origin}, as binary=True says, {got}")
        logits = logits.detach().unsqueeze(1) if logits.ndim == 1 else logits.detach().movedim(self.dim, 1)
        return torch.cat([torch.zeros_like(logits), logits], 1) if self.binary else logits
