"""Which label a position of a model predicts: the next one, as in causal language models, or its own."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import nn
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

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


class Causality(NamedTuple):
    """Whether the positions of a model predict the next label.

    Attributes:
        answer: True, or False if they predict their own; None if it is not known.
        classes: the answer holds for logits with so many classes only; None if it holds for all.
    """

    answer: bool | None = None
    classes: int | None = None

    def of(self, num_classes: int) -> bool | None:
        """The answer for logits with so many classes."""
        return self.answer if self.classes in (None, num_classes) else None


def find_causality(model: nn.Module) -> Causality:
    """What the class of a model says, or else its config.

    Wrappers of torch and of peft are opened. Any other wrapper is if it has the config of the model inside. If no class
    is known, the config says what it was made for. The head may still be another one, so the answer then holds for
    logits with a class for each word of the vocabulary only.
    """
    config: Any = getattr(model, "config", None)
    inner = [] if config is None else [part for part in model.modules() if getattr(part, "config", None) is config]
    for part in (model, *inner):
        if (answer := is_causal(part)) is not None:
            return Causality(answer)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    classes = getattr(text, "vocab_size", None)
    if classes is None:
        return Causality()
    names = getattr(config, "architectures", None)  # the classes it was made for, or that its family has decoders only
    kind = getattr(config, "model_type", None)
    others = (MODEL_FOR_MASKED_LM_MAPPING_NAMES, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    if not names and not any(kind in known for known in others):
        names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind)
    return Causality(_names_are_causal([names] if isinstance(names, str) else names or ()), classes)


def is_causal(model: Any) -> bool | None:
    """Whether the positions of a model of transformers predict the next label (True) or their own; None if unknown."""
    while True:  # open a wrapper of torch (compiled, distributed) or of peft, whose models with adapters have a base
        base = getattr(model, "get_base_model", None)
        inner = base() if callable(base) else getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if not isinstance(inner, nn.Module) or inner is model:
            break
        model = inner
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):  # the decoder's input is shifted
        return False
    return _names_are_causal([kind.__name__ for kind in type(model).__mro__])


def _names_are_causal(names: Iterable[str]) -> bool | None:
    """What the names of classes say."""
    names = list(names)
    if any(name.endswith(OWN_LABEL) or name in UNSHIFTED for name in names):
        return False
    return True if any(name.endswith(NEXT_LABEL) for name in names) else None
