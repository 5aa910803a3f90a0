"""Logits and targets are found where they are, and never guessed; every loop finds them by the same rules."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from tests.inference.cases import predictor
from tests.nn.models import roberta
from torch_boc import BoCClassifier, BoCPredictor, functional, watch
from torch_boc.data.extract import TARGET_NAMES, check_head, find_logits, find_target, split_batch
from torch_boc.inference.batches import BatchReader
from torch_boc.lightning.logit_source import LogitSource

LOGITS, TARGET = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
LOSS = torch.tensor(0.5)


@dataclass
class Answer:
    logits: Tensor
    extra: int = 0


def model_output():
    from transformers.modeling_outputs import SequenceClassifierOutput

    return SequenceClassifierOutput(loss=LOSS, logits=LOGITS)


OUTPUTS = {
    "tensor": lambda: LOGITS,
    "dict": lambda: {"loss": LOSS, "logits": LOGITS},
    "segmentation": lambda: OrderedDict(out=LOGITS, aux=torch.ones(4, 3)),
    "ModelOutput": model_output,
    "dataclass": lambda: Answer(LOGITS),
    "named tuple": lambda: namedtuple("Outputs", "logits aux_logits")(LOGITS, torch.ones(4, 3)),
    "tuple of one": lambda: (LOGITS,),
    "loss and logits": lambda: (LOSS, LOGITS),
    "logits and classes": lambda: [LOGITS, TARGET],
    "logits and nothing": lambda: (LOGITS, None, ()),
}


class Model(nn.Module):
    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, x):
        return self.output


@pytest.mark.parametrize("make", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_logits_are_found_by_every_loop(make):
    model, x = Model(make()), torch.zeros(4, 2)
    gap = functional.bag_of_coins(LOGITS).gap
    assert find_logits(make()) is LOGITS
    assert BoCClassifier(model)(x).gap.equal(gap)
    with watch(model) as watching:
        model(x)
    torch.testing.assert_close(watching.compute()["gap"], gap.double().mean())
    (table,) = predictor(model).predict([x])
    torch.testing.assert_close(table["gap"].float(), gap)
    assert LogitSource().extract(make(), None, nn.Identity()).rows.equal(LOGITS)


REFUSED = {
    "two tensors": ((LOGITS, torch.ones(4, 8)), r"a tuple of Tensor \(4, 3\), Tensor \(4, 8\), in which \[0\] and"),
    "nested": ((LOGITS, (LOGITS,)), r"a tuple of Tensor \(4, 3\), tuple, in which \[0\] and \[1\] may be"),
    "only nested": (((LOGITS,),), "a tuple of tuple"),
    "two names": ({"logits": LOGITS, "out": LOGITS}, r"a dict with .*, in which 'logits' and 'out' may be the logits"),
    "other keys": ({"pred": LOGITS, "aux": 3}, r"a dict with 'pred': Tensor \(4, 3\), 'aux': int"),
    "empty mapping": ({}, "a dict with no keys"),
    "no tensor": ({"logits": [0.0, 1.0]}, "a dict with 'logits': list"),
    "no logits": ((LOSS, TARGET), r"a tuple of Tensor \(\), Tensor \(4,\)"),
    "nothing": (None, "nothing"),
}


@pytest.mark.parametrize(("output", "found"), REFUSED.values(), ids=REFUSED.keys())
def test_what_may_not_be_the_logits_is_refused_by_every_loop(output, found):
    with pytest.raises(TypeError, match=rf"expected a model output that is a tensor.* got {found}.*; wrap the model"):
        find_logits(output)
    with pytest.raises(
        TypeError, match=f"expected logits in a step of Identity, which returned {found.partition(', in which')[0]}"
    ):
        LogitSource().extract(output, None, nn.Identity())
    for run in (BoCClassifier(Model(output)), lambda x: list(predictor(Model(output)).predict([x]))):
        with pytest.raises(TypeError, match=found):
            run(torch.zeros(4, 2))


BATCHES = {
    **{name: {"x": torch.zeros(4, 2), name: TARGET} for name in TARGET_NAMES},
    "pair": (torch.zeros(4, 2), TARGET),
    "list": [torch.zeros(4, 2), TARGET],
    "the same twice": {"x": torch.zeros(4, 2), "label": TARGET, "labels": TARGET},
    "one is empty": {"x": torch.zeros(4, 2), "label": None, "y": TARGET},
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
def test_targets_are_found_by_every_loop(batch):
    inputs, target = split_batch(batch)
    assert target is TARGET
    assert not isinstance(inputs, dict) or set(inputs) == {"x"}
    assert find_target(None, batch, LOGITS) is TARGET
    assert find_target({"targets": TARGET + 1}, batch, LOGITS)[0] == 1  # those in the outputs come first
    assert LogitSource().extract(LOGITS, batch, nn.Identity()).target is TARGET
    (table,) = predictor(Model(LOGITS)).predict([batch])
    assert table["target"].equal(TARGET)


def test_two_different_targets_are_refused_by_every_loop():
    batch = {"x": torch.zeros(4, 2), "label": TARGET, "y": TARGET + 1}
    for find in (split_batch, lambda batch: find_target(None, batch, LOGITS), BatchReader(Model(LOGITS)).read):
        with pytest.raises(ValueError, match=r"expected one target.* got 'label' and 'y'; rename the one that is not"):
            find(batch)


def test_what_the_model_cannot_do_without_is_no_target():
    class Pair(nn.Module):
        def forward(self, x, y, labels=None):
            return x + y

    batch = BatchReader(Pair()).read({"x": LOGITS, "y": LOGITS, "labels": TARGET})
    assert set(batch.kwargs) == {"x", "y"}
    assert batch.columns["target"].equal(TARGET)


@pytest.mark.parametrize(
    "batch",
    [
        (LOGITS, LOGITS),
        (LOGITS, TARGET[:2]),
        (LOGITS, TARGET > 0),
        {"labels": nn.functional.one_hot(TARGET)},
    ],
)
def test_what_may_be_a_target_and_does_not_fit_is_refused(batch):
    with pytest.raises(ValueError, match=r"expected targets of shape \(4,\), as integer"):
        find_target(None, batch, LOGITS)


@pytest.mark.parametrize(
    "batch", [{"other": TARGET}, TARGET, None, (LOGITS, ["a", "b"]), (LOGITS, LOGITS, "c"), (LOGITS, TARGET, TARGET)]
)
def test_what_is_no_target(batch):
    assert find_target(None, batch, LOGITS) is None


def test_only_what_can_be_the_target_is_ambiguous():
    batch = {"label": TARGET, "y": nn.functional.one_hot(TARGET), "target": LOGITS}
    assert find_target(None, batch, LOGITS) is TARGET


@pytest.mark.parametrize("make", [BoCClassifier, BoCPredictor, lambda model: check_head(nn.DataParallel(model))])
@pytest.mark.parametrize("kind", ["multi_label_classification", "regression"])
def test_heads_without_a_softmax_are_refused(make, kind):
    """Their outputs have the shape of logits, and a softmax of them is a number without a meaning."""
    model = roberta(3)
    make(model)
    model.config.problem_type = "single_label_classification"
    make(model)
    model.config.problem_type = kind
    with pytest.raises(ValueError, match=rf"one class per sample, got .*type='{kind}' and num_labels=3; for one label"):
        make(model)


def test_a_head_that_its_first_labels_make_multi_label():
    with pytest.raises(ValueError, match="problem_type='multi_label_classification'"):
        BoCClassifier(roberta(3))(torch.ones(2, 5, dtype=torch.long), labels=torch.ones(2, 3))


def test_one_label_is_binary_only_if_that_is_said():
    model = roberta(1)
    model.config.problem_type = "multi_label_classification"
    check_head(model, binary=True)
    for kind, binary in (("multi_label_classification", False), ("regression", True)):
        model.config.problem_type = kind
        with pytest.raises(ValueError, match="num_labels=1"):
            check_head(model, binary=binary)
