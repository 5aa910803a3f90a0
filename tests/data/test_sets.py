"""A LogitSet holds what it says, or is not made."""

import numpy as np
import pytest
import torch

from torch_boc.data.files import logit_set
from torch_boc.data.sets import TARGET_NAMES, LogitSet

LOGITS = [[2.0, 0.0, 1.0], [0.0, 1.0, -float("inf")]]


@pytest.mark.parametrize(
    "source",
    [
        torch.tensor(LOGITS),
        np.array(LOGITS, dtype=np.float32),
        LOGITS * 2,
        torch.tensor(LOGITS, requires_grad=True),
        LogitSet(torch.tensor(LOGITS)),
    ],
)
def test_logits_alone(source):
    data = logit_set(source, "test")
    assert torch.equal(data.logits[:2], torch.tensor(LOGITS))
    assert not data.logits.requires_grad
    assert (data.target, data.columns, data.name, data.num_classes) == (None, {}, "test", 3)


@pytest.mark.parametrize("target", [[0, 2], (0, 2), np.array([0, 2]), torch.tensor([0, 2]), [0.0, 2.0]])
def test_a_pair(target):
    data = logit_set((torch.tensor(LOGITS), target), "test")
    assert data.target.tolist() == [0, 2]
    assert data.target.dtype == torch.int64
    assert len(data) == 2


@pytest.mark.parametrize("key", TARGET_NAMES)
def test_a_mapping(key):
    data = logit_set({"logits": LOGITS, key: [0, 2], "odin": [1, 2]}, "test")
    assert data.target.tolist() == [0, 2]
    assert {name: x.tolist() for name, x in data.columns.items()} == {"odin": [1.0, 2.0]}
    assert logit_set({"logits": LOGITS, key: None}, "test").target is None


def test_a_path(tmp_path):
    np.save(tmp_path / "a.npy", np.array(LOGITS))
    for path in (tmp_path / "a.npy", str(tmp_path / "a.npy")):
        data = logit_set(path, "test")
        assert data.name == "test"
        assert torch.equal(data.logits, torch.tensor(LOGITS, dtype=torch.float64))


def test_a_set_is_renamed_and_keeps_the_rest():
    first = logit_set({"logits": LOGITS, "y": [0, 1], "odin": [1.0, 2.0]}, "first")
    second = logit_set(first, "second")
    assert (first.name, second.name) == ("first", "second")
    assert second.logits is first.logits
    assert second.target is first.target
    assert second.columns == first.columns


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (torch.zeros(3), r"expected logits of shape \(N, C\)"),
        (torch.zeros(2, 3, 4), r"expected logits of shape \(N, C\)"),
        (torch.zeros(0, 3), "at least one row"),
        (torch.zeros(2, 1), "at least 2 classes"),
        (
            torch.tensor([[0.0, 1.0], [float("nan"), 0.0]]),
            "expected finite logits .*NaN.* in 1 of 2 rows, first in row 1",
        ),
        (torch.tensor([[float("inf"), 1.0]]), "first in row 0"),
        (torch.tensor([[1.0, 0.0], [-float("inf")] * 2]), "only -inf in 1 of 2 rows, first in row 1"),
        ((torch.zeros(2, 3), [0, 3]), r"expected targets in \[0, 3\), got 1 outside, such as 3"),
        ((torch.zeros(2, 3), [0, -1]), "such as -1"),
        ((torch.zeros(2, 3), [0, 1, 2]), r"expected target of shape \(2,\)"),
        ({"outputs": torch.zeros(2, 3)}, "expected a mapping with 'logits', got the keys outputs"),
        ({"logits": torch.zeros(2, 3), "y": [0, 1], "label": [0, 1]}, "expected one of labels.*, got y and label"),
        ({"logits": torch.zeros(2, 3), "odin": [1.0]}, r"expected column 'odin' as 2 finite numbers, got shape \(1,\)"),
        ({"logits": torch.zeros(2, 3), "odin": [1.0, float("nan")]}, "'odin' .* with NaN or inf"),
    ],
)
def test_what_is_refused(source, message):
    with pytest.raises(ValueError, match=message):
        logit_set(source, "test")


def test_targets_between_classes_are_refused():
    with pytest.raises(TypeError, match="integer class indices"):
        logit_set((torch.zeros(2, 3), [0.5, 1.0]), "test")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            [torch.ones(2, 3), torch.zeros(2)],
            r"val: expected logits as a tensor .* got a list .*tuple \(logits, target\)",
        ),
        (None, "val: expected logits as a tensor or an array of numbers, got a NoneType"),
        ((LOGITS, ["a", "b"]), "val: expected target as a tensor or an array of numbers, got a list"),
        ((LOGITS, [0, 1, 2]), r"val: expected target of shape \(2,\)"),
        ((LOGITS, [0.5, 1.0]), "val: expected target as integer class indices"),
        (torch.ones(3, 1), "val: expected at least 2 classes"),
        ({"logits": LOGITS, "knn": ["a", "b"]}, "val: expected column 'knn' as a tensor"),
        ({"logits": LOGITS, 5: [1.0, 2.0]}, "val: expected names of columns as strings, got 5"),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_set(source, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        logit_set(source, "val")
