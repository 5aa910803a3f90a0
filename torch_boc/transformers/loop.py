"""What Trainer does not say: where an evaluation begins."""

import weakref
from typing import Any

from accelerate.state import GradientState


class Loop:
    """Tells the first call of an evaluation with `batch_eval_metrics=True` from those that follow.

    An evaluation that was interrupted had no last call. The next one is recognised by its pass over the data:
    accelerate, from which Trainer also learns which batch is the last, lists the loaders that are being iterated over.
    A loader is listed once for each pass that began and did not end.
    """

    def __init__(self) -> None:
        self._finished = True
        self._pass: tuple[Any, int] = (None, 0)

    def begins(self, compute_result: bool | None) -> bool:
        """Whether a call with this `compute_result` is the first of an evaluation."""
        current = _current_pass()
        first = self._finished or compute_result is None or current != self._pass
        self._finished, self._pass = compute_result is not False, current
        return first


def _current_pass() -> tuple[Any, int]:
    """A weak reference to the loader that is being iterated over, and how many passes of it are open."""
    loaders = GradientState().dataloader_references
    active = loaders[-1]
    return (None, 0) if active is None else (weakref.ref(active), sum(loader is active for loader in loaders))
