"""The logits are found where they are, and never guessed."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from torch_boc.nn import find_logits

LOGITS = torch.zeros(2, 3)


@dataclass
class Answer:
    logits: Tensor
    extra: int = 0


def model_output():
    from transformers.modeling_outputs import SequenceClassifierOutput

    return SequenceClassifierOutput(loss=torch.tensor(0.5), logits=LOGITS)


OUTPUTS = {
    "tensor": lambda: LOGITS,
    "dict": lambda: {"loss": torch.tensor(0.5), "logits": LOGITS},
    "ordered dict": lambda: OrderedDict(features=torch.ones(1), logits=LOGITS),
    "ModelOutput": model_output,
    "dataclass": lambda: Answer(LOGITS),
    "named tuple": lambda: namedtuple("Outputs", "logits aux")(LOGITS, None),
    "namespace": lambda: SimpleNamespace(logits=LOGITS),
}


@pytest.mark.parametrize("make", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_found(make):
    assert find_logits(make()) is LOGITS


REFUSED = {
    "tuple": ((LOGITS, torch.ones(1)), "got a tuple"),
    "list": ([LOGITS], "got a list"),
    "other keys": ({"out": LOGITS, "aux": LOGITS}, "got a dict with keys out, aux"),
    "empty mapping": ({}, "got a dict with keys none"),
    "no tensor": ({"logits": [0.0, 1.0]}, "got a dict with keys logits"),
    "nothing": (None, "got a NoneType"),
}


@pytest.mark.parametrize(("output", "found"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(output, found):
    with pytest.raises(TypeError, match=rf"expected a model output that is a tensor.*{found}; wrap the model"):
        find_logits(output)
