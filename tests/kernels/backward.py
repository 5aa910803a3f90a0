"""Gradients of the kernels, and what torch asks of an operator. Run by `test_kernels.py`."""

import pytest
import torch
from torch.func import vmap

from tests.functional.cases import confident_logits
from tests.kernels.cases import CLASSES, DEVICE, DTYPES, UNDEFINED, make_logits, odd_rows, sums
from torch_boc.core import rows
from torch_boc.functional.paths import coins_from_rows, decide
from torch_boc.kernels import row_sums, row_sums_backward

# Of the largest gradient of the row: two roundings of the logits' dtype (the interpreter truncates to bfloat16), or
# the errors of the accumulator.
LIMIT = {torch.float32: 2e-6, torch.float64: 1e-14, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def gradients(logits, pulls, function):
    leaf = logits.detach().requires_grad_()
    outputs = function(leaf, extras=len(pulls) == 5)[1 : 1 + len(pulls)]
    torch.autograd.backward(outputs, [pull.to(x.dtype) for x, pull in zip(outputs, pulls, strict=True)])
    return leaf.grad


def assert_same_gradients(logits, *, extras=True):
    generator = torch.Generator().manual_seed(1)
    shape = (5 if extras else 3, *logits.shape[:-1])
    pulls = torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE)
    actual, expected = (gradients(logits, pulls, function).double() for function in (sums, rows.row_sums))
    scale = expected.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(actual / scale, expected / scale, rtol=0, atol=LIMIT[logits.dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", CLASSES)
def test_gradients(classes, dtype):
    assert_same_gradients(make_logits(7 if classes < 50257 else 2, classes, dtype, scale=1.0))


@pytest.mark.parametrize("classes", [2, 1025, 17000])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_gradients_without_extras(classes, count):
    assert_same_gradients(make_logits(count, classes), extras=False)


@pytest.mark.parametrize("classes", [40, 17000])
def test_gradients_of_rows_with_strides(classes):
    logits = make_logits(7, classes)
    for view in (logits[::2], logits[:, 3:-4], logits.T.contiguous().T, logits[0], logits[:6].unflatten(0, (2, 3))):
        assert_same_gradients(view)


@pytest.mark.parametrize("classes", [5, 1025, 17001])
def test_an_undefined_row_has_no_gradient(classes):
    logits = odd_rows(classes, torch.float32)
    pulls = torch.ones(3, 8, device=DEVICE)
    assert gradients(logits, pulls, sums).isnan().all(-1).tolist() == UNDEFINED
    assert gradients(logits, pulls, sums).isnan().any(-1).tolist() == UNDEFINED
    assert_same_gradients(logits[[4, 7]], extras=False)


@pytest.mark.parametrize("odds", [1e-3, 1e-12, 1e-25])
def test_the_gradient_of_a_tiny_gap(odds):
    grads = []
    for dtype in (torch.float32, torch.float64):
        leaf = confident_logits(10, odds).float().to(DEVICE, dtype).requires_grad_()
        coins_from_rows(sums(leaf), 10, decide(leaf)).gap.log().backward()
        grads.append(leaf.grad.double())
    torch.testing.assert_close(grads[0], grads[1], rtol=0, atol=1e-5)


def test_gradcheck_twice():
    leaf = make_logits(3, 4, torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: row_sums(z, True)[1:], leaf)
    assert torch.autograd.gradgradcheck(lambda z: row_sums(z, True)[1:], leaf)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_vmap_is_a_loop(axis):
    logits = make_logits(24, 5).unflatten(0, (4, 6))
    mapped = vmap(lambda z: tuple(row_sums(z, True)), in_dims=axis)(logits)
    loop = [torch.stack(parts) for parts in zip(*(row_sums(z, True) for z in logits.unbind(axis)), strict=True)]
    for value, expected in zip(mapped, loop, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)


def test_vmap_over_gradients():
    """The Jacobian in one sweep: the gradients are batched, the logits are not."""
    leaf = make_logits(3, 5, torch.float64).requires_grad_()
    odds = sums(leaf).odds
    (batched,) = torch.autograd.grad(odds, leaf, torch.eye(3, dtype=odds.dtype, device=DEVICE), is_grads_batched=True)
    for row in range(3):
        (expected,) = torch.autograd.grad(sums(leaf).odds[row], leaf)
        torch.testing.assert_close(batched[row], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_opcheck(dtype, extras):
    logits = make_logits(3, 6, dtype)
    torch.library.opcheck(row_sums, (logits, extras))
    # Its fourth check adds the outputs to the first, which is of integers; the test below takes its place.
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(row_sums, (logits.clone().requires_grad_(), extras), test_utils=checks)
    prediction, top, *rest = row_sums(logits, extras)
    pulls = [top, *rest, None, None][:5]
    torch.library.opcheck(row_sums_backward, (logits, prediction, top, *pulls))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("extras", [False, True])
def test_compiled_is_eager(extras, dynamic):
    def probe(z):
        return tuple(x * 2 for x in row_sums(z.sin(), extras)[1:])

    results = []
    for function in (probe, torch.compile(probe, backend="aot_eager", fullgraph=True, dynamic=dynamic)):
        leaf = make_logits(3, 6).requires_grad_()
        outputs = function(leaf)
        sum(x.double().sum() for x in outputs).backward()
        results.append([*outputs, leaf.grad])
    for value, expected in zip(*results, strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
