"""Whether the positions of a model predict their own label or the next one, by the class of transformers."""

from typing import Any

from torch import nn

# How the names of classes of transformers end whose positions predict their own label, or the next one.
OWN_LABEL = ("ForTokenClassification", "ForMaskedLM", "WithLMHeadModel")
NEXT_LABEL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
# Classes with the same ending whose loss compares each position with its own label: their users shift the labels.
UNSHIFTED = (
    *(f"{family}ForCausalLM" for family in ("Bart", "BigBirdPegasus", "Blenderbot", "BlenderbotSmall", "CpmAnt")),
    *(f"{family}ForCausalLM" for family in ("Marian", "MBart", "Mvp", "Pegasus", "PLBart", "ProphetNet", "TrOCR")),
    "WhisperForCausalLM",
    "XLNetLMHeadModel",
)


def predicts_next(model: nn.Module, num_classes: int) -> bool | None:
    """Whether the positions of a model predict the label of the next position (True) or their own (False).

    The class of transformers tells, even inside a wrapper of torch or peft, or of another that has the config of the
    model. None for other models, and if the number of logits is not the size of the vocabulary.
    """
    model = getattr(model, "module", model)
    config: Any = getattr(model, "config", None)
    for part in model.modules():
        if getattr(part, "config", None) is not config:
            continue
        if any(getattr(x, "is_encoder_decoder", False) for x in (config, getattr(config, "text_config", None))):
            return False  # the input of the decoder is shifted already
        # The names of peft's classes say nothing of the model inside.
        names = [] if hasattr(part, "get_base_model") else [kind.__name__ for kind in type(part).__mro__]
        if any(name.endswith(OWN_LABEL) or name in UNSHIFTED for name in names):
            return False
        if any(name.endswith(NEXT_LABEL) for name in names):
            text = getattr(config, "get_text_config", lambda: config)()
            return True if getattr(text, "vocab_size", None) == num_classes else None
    return None
