"""A LogitSet holds what it says, or is not made."""

import numpy as np
import pytest
import torch

from torch_boc.data.extract import TARGET_NAMES
from torch_boc.data.files import read_logits
from torch_boc.data.logit_set import LogitSet

LOGITS = [[2.0, 0.0, 1.0], [0.0, 1.0, -float("inf")]]


SOURCES = {
    "tensor": (torch.tensor(LOGITS, requires_grad=True), None),
    "array": (np.array(LOGITS, dtype=np.float32), None),
    "list": (LOGITS, None),
    **{
        f"pair with {type(x).__name__}": ((torch.tensor(LOGITS), x), [0, 2]) for x in ([0, 2], (0, 2), np.array([0, 2]))
    },
    "pair with floats": ((LOGITS, torch.tensor([0.0, 2.0])), [0, 2]),
    **{f"mapping with {key}": ({"logits": LOGITS, key: [0, 2], "odin": [1, 2]}, [0, 2]) for key in TARGET_NAMES},
    "mapping with None": ({"logits": LOGITS, "target": None}, None),
}


@pytest.mark.parametrize(("source", "target"), SOURCES.values(), ids=SOURCES.keys())
def test_every_form_of_a_set(source, target):
    data = read_logits(source, "test")
    assert torch.equal(data.logits, torch.tensor(LOGITS))
    assert not data.logits.requires_grad
    assert (data.target is None) if target is None else torch.equal(data.target, torch.tensor(target))
    assert (data.name, data.num_classes, len(data)) == ("test", 3, 2)
    assert {name: x.tolist() for name, x in data.columns.items()} in ({}, {"odin": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (torch.zeros(2, 3, 4), r"expected several numbers a row in 'logits', got torch.float32 of shape \(2, 3, 4\)"),
        (None, "expected 'logits'"),
        ([torch.ones(2, 3), torch.zeros(2)], r"expected logits as a tensor .* got a list .*tuple \(logits, target\)"),
        ((LOGITS, [0, -1]), r"expected targets in \[0, 3\), got 1 outside, such as -1"),
        ((LOGITS, [True, False]), "expected one class a row in 'target', got torch.bool"),
        ((LOGITS, ["a", "b"]), "expected target as a tensor or an array of numbers, got a list"),
        ({"outputs": LOGITS}, "expected 'logits'.* got outputs"),
        ({"logits": LOGITS, "odin": [1.0, float("nan")]}, "expected column 'odin' as 2 finite .* or NaN or inf"),
        ({"logits": LOGITS, "knn": ["a", "b"]}, "expected knn as a tensor"),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_set(source, message):
    with pytest.raises((TypeError, ValueError), match=f"^val: {message}"):
        read_logits(source, "val")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_are_no_part_of_a_set(value):
    logits = torch.tensor([[0.0, 3.0], [value, 0.0], [-float("inf")] * 2, [-float("inf"), 1.0]])
    with pytest.raises(ValueError, match=r"^logits: expected finite logits .* in 2 of 4 rows, first in row 1"):
        LogitSet(logits)
    with pytest.warns(UserWarning, match="test: left out 2 of 4 rows"):
        assert read_logits(logits, "test").row_numbers.tolist() == [0, 3]
