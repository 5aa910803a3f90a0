"""Few long rows that several programs share: the checks of whole rows hold for them too. Run by `test_kernels.py`."""

import pytest
import torch

from tests.kernels import backward, forward
from tests.kernels.cases import DEVICE, DTYPES, UNDEFINED, make_logits, odd_rows, sums
from tests.kernels.recorded import watch
from torch_boc.kernels.triton import launch
from torch_boc.kernels.triton.geometry import parts_of

over_dtypes = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture(autouse=True)
def processors(monkeypatch):
    """So many that rows of 17,000 classes have five parts, which is as many as they can have."""
    monkeypatch.setattr(launch, "processors", lambda device: 40)


def test_rows_are_split(monkeypatch):
    started = watch(monkeypatch)
    leaf = make_logits(3, 17000).requires_grad_()
    sums(leaf).odds.sum().backward()
    assert started == ["long_rows"] * 3 + ["spread"] * 2 + ["long_gradients"] * 2


@over_dtypes
@pytest.mark.parametrize(("processors", "parts"), [(8, 4), (24, 12), (10_000, 13)])
def test_sums(processors, parts, dtype, monkeypatch):
    """Also where parts have more than one block, or none."""
    assert parts_of(2, 50257, processors) == parts
    monkeypatch.setattr(launch, "processors", lambda device: processors)
    forward.assert_same_sums(make_logits(2, 50257, dtype))


def test_sums_without_extras():
    forward.assert_same_sums(make_logits(3, 16385), extras=False)


@pytest.mark.parametrize("cut", forward.STRIDES.values(), ids=forward.STRIDES.keys())
def test_any_strides(cut):
    forward.assert_same_sums(cut(make_logits(7, 17000)))


@over_dtypes
def test_undefined_rows_and_ties(dtype):
    """The first NaN comes before all tops, also if another part has them."""
    logits = odd_rows(17001, dtype)
    logits[1, 17001 // 2 + 1 :] = torch.nan
    logits[2, [5000, 5002, 17000]] = torch.nan
    actual = sums(logits, extras=True)
    for value in actual[1:]:
        assert value.isnan().tolist() == UNDEFINED
    assert actual.prediction.tolist() == logits.cpu().argmax(-1).tolist()
    forward.assert_same_sums(logits[4:])


@over_dtypes
def test_the_prediction_is_the_first_of_several_tops(dtype):
    logits = forward.tied_rows(17001, dtype)
    assert sums(logits).prediction.tolist() == logits.cpu().argmax(-1).tolist()


@pytest.mark.parametrize(
    ("scale", "dtype"), [*((1.0, x) for x in DTYPES), *((x, torch.float32) for x in (1e-20, 1e-3))]
)
def test_the_sums_of_flat_and_of_sharp_rows(scale, dtype):
    logits = make_logits(3, 17000, dtype, scale=scale)
    logits[0, 1] = -torch.inf
    logits[1, 9000] = logits[1].max() + 79.0
    logits[2, :12_000] = -torch.inf  # a part without any class
    logits[2, 15_000] = 160.0
    forward.assert_same_sums(logits)


@pytest.mark.parametrize("names", [backward.FEW, backward.SPREAD, backward.EVERY], ids=["few", "spread", "every"])
@over_dtypes
def test_gradients(dtype, names):
    backward.assert_same_gradients(make_logits(3, 17001, dtype, scale=1.0), names)


def test_gradients_of_rows_with_strides():
    logits = make_logits(4, 17000)
    for view in (logits[::2], logits[:, 3:-4], logits.T.contiguous().T, logits.unflatten(0, (2, 2))[:, :1]):
        backward.assert_same_gradients(view)


def test_an_undefined_row_has_no_gradient():
    logits = odd_rows(17001, torch.float32)[:4]
    found = backward.gradients(logits, dict.fromkeys(backward.EVERY, torch.ones(4, device=DEVICE)), sums)
    assert found.isnan().all()


def test_every_run_gives_the_same_bits():
    logits = make_logits(3, 17001)
    first, *others = (sums(logits, extras=True) for _ in range(3))
    for other in others:
        for value, expected in zip(other, first, strict=True):
            assert torch.equal(value, expected)
