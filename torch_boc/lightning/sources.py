"""Where the logits and the targets of a step come from."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..data.finding import describe, find_logits, find_submodule, find_target
from ..functional.checks import as_binary, classes_last
from ..functional.tokens import next_labels, predicts_next
from ..metrics.hook import Hook

REMEDIES = (
    "return {'loss': loss, 'logits': logits, 'targets': target} from the step, or name the submodule that makes the "
    "logits, as in logits='model.classifier', or give a function, "
    "logits=lambda outputs, batch, module: (logits, target), with None for no target"
)
LogitFunction = Callable[[Any, Any, Any], tuple[Tensor, Tensor | None]]


class LogitSource:
    """Finds the logits of a step: in its outputs, in the output of a submodule, or with a function of the user.

    Args:
        logits: None for the step's outputs; a submodule's name; or a function of outputs, batch and module that returns
            logits and targets; the targets may be None.
        dim: the class axis of the logits, which `take` moves to the end; by default the target's shape tells it.
        binary: whether each sample has a single logit z, which stands for the logits (0, z) of two classes.
        causal: whether each position of (N, T, C) predicts the next label; by default the model says so.

    >>> source = LogitSource()
    >>> logits, target = source.take({"logits": torch.zeros(2, 3)}, (torch.zeros(2, 5), torch.tensor([0, 1])), None)
    >>> logits.shape, target
    (torch.Size([2, 3]), tensor([0, 1]))
    """

    def __init__(
        self,
        logits: str | LogitFunction | None = None,
        dim: int | None = None,
        *,
        binary: bool = False,
        causal: bool | None = None,
    ) -> None:
        if not (logits is None or isinstance(logits, str) or callable(logits)):
            raise TypeError(
                "expected logits as None (the step's outputs), the name of a submodule or a function of "
                f"(outputs, batch, module), got {type(logits).__name__}"
            )
        self.logits, self.dim, self.binary, self.causal = logits, dim, binary, causal
        self._latest: Any = None  # what the submodule returned at its last call
        self._calls = 0
        self._handle: RemovableHandle | None = None
        self._next: dict[int, bool] = {}  # whether positions predict the next label, by the number of classes

    def attach(self, module: nn.Module) -> None:
        """Put a hook on the named submodule, if there is one; calling it twice does no harm."""
        if not isinstance(self.logits, str) or self._handle is not None:
            return
        self._handle = find_submodule(module, self.logits).register_forward_hook(Hook(self._keep))

    def detach(self) -> None:
        """Remove the hook, and forget what is known of the model."""
        self.forget()
        self._next = {}
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def forget(self) -> None:
        """Drop the logits of a step that were not taken."""
        self._latest, self._calls = None, 0

    def take(self, outputs: Any, batch: Any, module: Any, *, ood: bool = False) -> tuple[Tensor, Tensor | None]:
        """Logits of shape (N, ..., C) and their targets, if there are some; the logits are not kept.

        With `ood`, the target of a whole sample is left out, because it is a class that the model does not have. The
        targets of pixels and tokens may still say which of them do not count.
        """
        origin = "in what the step returned" if self.logits is None else "from the logits function"
        origin = f"from submodule {self.logits!r}" if isinstance(self.logits, str) else origin
        try:
            logits, target = self._found(outputs, batch, module)
            if not self.binary and logits.shape[1:].numel() == 1:
                got = f"{tuple(logits.shape)}; binary=True takes a single logit of each sample for two classes"
                raise ValueError(f"expected logits of shape (N, C), got shape {got}")
            if not callable(self.logits) and not (ood and logits.ndim < 3):
                target = find_target(outputs, batch, logits, dim=self.dim, binary=self.binary)
            if self.binary:
                rows, target = as_binary(logits, target, dim=self.dim)
            else:
                rows = classes_last(logits, self.dim, target)
        except (TypeError, ValueError) as error:
            raise type(error)(f"logits {origin}: {error}; {REMEDIES}") from None
        if ood and rows.ndim == 2:
            return rows, None
        if target is not None and rows.ndim == 3 and self._predicts_next(rows, target, batch, module):
            rows, target = rows[:, :-1], next_labels(target)[:, :-1]
        return rows, target

    def _found(self, outputs: Any, batch: Any, module: Any) -> tuple[Tensor, Tensor | None]:
        latest, calls = self._latest, self._calls
        self.forget()
        if callable(self.logits):
            result: Any = self.logits(outputs, batch, module)
            match result:
                case (Tensor() as logits, Tensor() | None as target):
                    return logits.detach(), target
            count = f", {len(result)} in all" if isinstance(result, tuple | list) else ""
            raise TypeError(f"expected a tuple of two, (logits, target or None), got {describe(result)}{count}")
        if self.logits is not None and calls != 1:
            why = "parts of a compiled module may not tell: name the compiled module itself then"
            why = why if calls == 0 else "in chunks, for several views, or for each new token"
            raise TypeError(f"expected one call of the submodule in a step, got {calls} ({why})")
        return find_logits(outputs if self.logits is None else latest).detach(), None

    def _keep(self, output: Any) -> None:
        self._latest = output  # what it holds is looked at in `take`: in training it may be something else
        self._calls += 1

    def _predicts_next(self, rows: Tensor, target: Tensor, batch: Any, module: Any) -> bool:
        """Whether the label of a position is that of the next one: transformers' causal models shift it."""
        if self.causal is not None or callable(self.logits) or not isinstance(module, nn.Module):
            return bool(self.causal)
        classes = rows.shape[-1]
        if classes not in self._next:
            answers = (predicts_next(part, classes) for part in module.modules())
            self._next[classes] = next((answer for answer in answers if answer is not None), False)
        if not self._next[classes]:
            return False
        given = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else ()
        if not any(x is target for x in given):
            raise ValueError(
                "expected causal=True if each position predicts the label of the next one, or causal=False if the step "
                "has shifted the labels, got neither, and targets that are not those of the batch"
            )
        return True
