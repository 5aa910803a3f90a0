"""The native gradient: rows do not depend on each other, on threads or on what lies beside them in memory."""

import pytest
import torch

from tests.functional.cases import random_logits
from tests.kernels.cases import needs_native
from torch_boc.functional import bag_of_coins
from torch_boc.kernels import row_sums, row_sums_backward, use

pytestmark = needs_native
CLASSES = (2, 3, 7, 8, 9, 10, 15, 16, 17, 100, 1000, 1025)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
over_dtypes = pytest.mark.parametrize("dtype", DTYPES)
over_classes = pytest.mark.parametrize("classes", CLASSES)


@pytest.fixture
def threads():
    """Sets the number of threads, and sets it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def mixed_logits(rows, classes, dtype):
    """Rows that are flat, usual and sharp in turn, and in between some that have no geometry."""
    scale = torch.tensor([0.01, 3.0, 40.0, 200.0]).repeat(rows // 4 + 1)[:rows, None]
    logits = (random_logits(rows, classes, scale=1.0, dtype=torch.float32, seed=classes) * scale).to(dtype)
    logits[5 % rows, 0] = torch.nan
    logits[6 % rows, -1] = -torch.inf
    return logits


def gradient(logits, *, extras=True, factor=1.0):
    """From gradients of all sums that are of the order of `factor`."""
    prediction, top, odds, _, mass, *_ = row_sums(logits, extras)
    pulls = [factor * x for x in (-1.0, -0.6, -0.2, 0.15, 0.55, 0.9, 1.3)]
    size = mass.clamp(1e-100, 1e9)
    wide = [pulls[2] + 0 * mass, pulls[3] / size, pulls[4] / size**2]
    narrow = [(pulls[i] + 0 * mass).to(top.dtype) for i in (0, 1, 5, 6)]
    last = narrow[2:] if extras else [None, None]
    return row_sums_backward(logits, prediction, top, odds, mass, *narrow[:2], *wide, *last)


def assert_identical(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@over_dtypes
@over_classes
def test_a_row_has_its_gradient_wherever_it_is(classes, dtype):
    logits = mixed_logits(13, classes, dtype)
    found = gradient(logits)
    assert_identical(torch.stack([gradient(row) for row in logits]), found)
    order = torch.arange(12, -1, -1)
    assert_identical(gradient(logits[order])[order], found)


@over_dtypes
@over_classes
def test_strides(classes, dtype):
    logits = mixed_logits(12, classes, dtype)
    expected = gradient(logits)
    beside = torch.cat([logits, logits.flip(0)], 1)[:, :classes]
    cube = logits.unflatten(0, (3, 4)).transpose(0, 1).contiguous().transpose(0, 1)
    assert_identical(gradient(beside), expected)
    assert_identical(gradient(logits.T.contiguous().T), expected)
    assert_identical(gradient(logits.repeat_interleave(2, 0)[::2]), expected)
    assert_identical(gradient(cube).flatten(0, 1), expected)
    assert_identical(gradient(logits[1:2].expand(12, -1)), expected[1:2].expand(12, -1))


@over_dtypes
@pytest.mark.parametrize(("rows", "classes"), [(20_001, 3), (9_001, 10), (2_001, 17), (101, 1000), (3, 50_257)])
def test_several_threads_give_what_one_gives(rows, classes, dtype, threads):
    logits = mixed_logits(rows, classes, dtype)
    threads(1)
    expected = gradient(logits)
    for count in (2, 3):
        threads(count)
        assert_identical(gradient(logits), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("factor", [1e-7, 1e-4, 1.0, 1e4, 1e5])
def test_narrow_gradients_are_rounded_as_torch_does(dtype, factor):
    """From subnormal numbers of float16, 6e-8, to those beyond its largest, 65504; NaN too."""
    logits = mixed_logits(40, 33, dtype)
    wide = gradient(logits.float(), extras=False, factor=factor)
    assert_identical(gradient(logits, extras=False, factor=factor), wide.to(dtype))
    if dtype == torch.float16:
        tiny, huge = wide.abs() < 6e-5, wide.abs() > 65520
        assert tiny.any()
        assert factor < 1e5 or huge.any()


@over_dtypes
@pytest.mark.parametrize("extras", [False, True])
def test_a_row_of_the_gradient_sums_to_that_of_the_top(extras, dtype):
    """Shifting all logits changes nothing but the top."""
    logits = mixed_logits(8, 100, torch.float64)[:4].to(dtype)
    found = gradient(logits, extras=extras).double()
    size = found.abs().sum(-1)
    rounding = {torch.bfloat16: 4e-3, torch.float16: 5e-4, torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    torch.testing.assert_close((found.sum(-1) + 1.0) / size, torch.zeros(4).double(), rtol=0, atol=rounding)


def test_no_rows():
    assert gradient(torch.zeros(0, 5)).shape == (0, 5)
    assert gradient(torch.zeros(3, 0, 5)).shape == (3, 0, 5)


@pytest.mark.parametrize("path", ["auto", "native"])
@over_dtypes
def test_the_mean_gap_and_the_concentration_have_the_gradient_of_torch(path, dtype):
    grads = {}
    for way in (path, "torch"):
        leaf = random_logits(64, 100, scale=2.0, dtype=dtype).requires_grad_()
        with use(way):
            coins = bag_of_coins(leaf)
        (coins.gap.mean() + coins.concentration.mean() + coins.free_gap.mean()).backward()
        grads[way] = leaf.grad.double()
    size = grads["torch"].abs().amax(-1, keepdim=True)
    limit = {torch.float32: 1e-5, torch.float64: 1e-13, torch.float16: 2e-3, torch.bfloat16: 8e-3}[dtype]
    torch.testing.assert_close(grads[path] / size, grads["torch"] / size, rtol=0, atol=limit)
