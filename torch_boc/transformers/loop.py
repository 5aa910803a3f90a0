"""Two things that Trainer does not say: where an evaluation begins, and which label a position predicts."""

import weakref
from typing import Any

from accelerate.state import GradientState
from torch import nn

# How the names of classes end whose positions predict their own label, or the next one.
OWN_LABEL = ("ForTokenClassification", "ForMaskedLM", "WithLMHeadModel")
NEXT_LABEL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
# Classes with the same ending whose loss compares each position with its own label: their users shift the labels.
UNSHIFTED = (
    *(f"{family}ForCausalLM" for family in ("Bart", "BigBirdPegasus", "Blenderbot", "BlenderbotSmall", "CpmAnt")),
    *(f"{family}ForCausalLM" for family in ("Marian", "MBart", "Mvp", "Pegasus", "PLBart", "ProphetNet", "TrOCR")),
    "WhisperForCausalLM",
    "XLNetLMHeadModel",
)


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


def is_causal(model: nn.Module) -> bool | None:
    """Whether the positions of a model of transformers predict the next label (True) or their own; None if unknown."""
    base: Any = getattr(model, "get_base_model", None)  # models with adapters of peft have it
    inner = model if base is None else base()
    names = [kind.__name__ for kind in type(inner).__mro__]
    paired = getattr(getattr(inner, "config", None), "is_encoder_decoder", False)  # the decoder's input is shifted
    if paired or any(name.endswith(OWN_LABEL) or name in UNSHIFTED for name in names):
        return False
    return True if any(name.endswith(NEXT_LABEL) for name in names) else None
