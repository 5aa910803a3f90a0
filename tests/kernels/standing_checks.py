"""How a given class stands, by the kernels, against torch's operations in float64. Run by `test_kernels.py`."""

import pytest
import torch

from tests.kernels.cases import DEVICE, DTYPES, INTERPRETED, make_logits
from tests.kernels.forward import STRIDES
from torch_boc.core.standing import standing as by_formula
from torch_boc.kernels import standing
from torch_boc.kernels.triton import launch_standing

CLASSES = (2, 3, 10, 17, 1023, 1025, 20000)


def some_index(logits):
    generator = torch.Generator().manual_seed(logits.shape[-1])
    return torch.randint(logits.shape[-1], logits.shape[:-1], generator=generator).to(DEVICE)


def assert_same_standing(logits, index=None):
    index = some_index(logits) if index is None else index
    lost, ahead = standing(logits, index)
    wide, count = by_formula(logits.double(), index)
    limit = 1e-12 if logits.dtype == torch.float64 else 3e-6
    torch.testing.assert_close(lost, wide, rtol=limit, atol=0)
    assert torch.equal(ahead, count)
    assert lost.shape == ahead.shape == logits.shape[:-1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", CLASSES)
def test_standing(classes, dtype):
    assert_same_standing(make_logits(5, classes, dtype))


@pytest.mark.parametrize("cut", STRIDES.values(), ids=STRIDES.keys())
def test_any_strides(cut):
    assert_same_standing(cut(make_logits(7, 40)))


@pytest.mark.parametrize("count", [0, 1, 300])
def test_any_number_of_rows(count):
    assert_same_standing(make_logits(count, 5))


def test_small_losses_are_not_lost_beside_the_own_coin():
    logits = make_logits(4, 1000, scale=1.0)
    logits[:, 3] = 60.0
    index = torch.full((4,), 3, device=DEVICE)
    assert_same_standing(logits, index)
    assert (standing(logits, index)[0] < 1e-20).all()


def test_ties_and_classes_that_are_ruled_out():
    logits = make_logits(4, 100)
    logits[0] = 1.5
    logits[1, ::2] = 7.0
    logits[2, 50:] = -torch.inf
    assert_same_standing(logits, torch.tensor([5, 4, 7, 0], device=DEVICE))


@pytest.mark.skipif(not INTERPRETED and DEVICE == "cpu", reason="rows are split on a GPU only")
@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_are_split(rows, monkeypatch):
    monkeypatch.setattr(launch_standing, "processors", lambda device: 108)
    assert launch_standing.parts_of(rows, 50272, 108) > 1
    assert_same_standing(make_logits(rows, 50272))
    assert_same_standing(make_logits(rows, 33333))
