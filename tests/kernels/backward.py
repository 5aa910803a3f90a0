"""Gradients of the kernels against the path in torch and the definitions. Run by `test_kernels.py`."""

import mpmath
import pytest
import torch

from tests.functional.cases import confident_logits
from tests.kernels.cases import CLASSES, DEVICE, DTYPES, UNDEFINED, make_logits, odd_rows, sums
from torch_boc.core import rows
from torch_boc.functional.paths import coins_from_rows, decide
from torch_boc.kernels import row_sums

# Of the largest gradient of the row: two roundings of the logits' dtype (the interpreter truncates to bfloat16), or
# the errors of the accumulator.
LIMIT = {torch.float32: 2e-6, torch.float64: 2e-14, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


FEW, SPREAD = ("top", "odds", "squares"), ("mass", "mass_squares")
EVERY = (*FEW, *SPREAD, "surprise", "margin")


def gradients(logits, pulls, function):
    """The gradient of the logits from those of some sums, by name; each is divided by the mass as often as it grows."""
    leaf = logits.detach().requires_grad_()
    rows = function(leaf, extras=not {"surprise", "margin"}.isdisjoint(pulls))
    powers = {"mass": 1, "mass_squares": 2}
    outputs = [getattr(rows, name) for name in pulls]
    powers = [rows.mass.detach() ** powers.get(name, 0) for name in pulls]
    given = [  # nothing where its division would overflow
        (pull / power).where(power > 1e-300, 0.0).to(output.dtype)
        for pull, power, output in zip(pulls.values(), powers, outputs, strict=True)
    ]
    torch.autograd.backward(outputs, given)
    return leaf.grad


def random_pulls(logits, names):
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn((len(names), *logits.shape[:-1]), generator=generator, dtype=torch.float64).to(DEVICE)
    return dict(zip(names, drawn, strict=True))


def assert_same_gradients(logits, names=EVERY, *, exact=False):
    """As the path in torch, or as the same in float64."""
    pulls = random_pulls(logits, names)
    actual = gradients(logits, pulls, sums).double()
    expected = gradients(logits.double() if exact else logits, pulls, rows.row_sums).double()
    scale = expected.abs().amax(-1, keepdim=True)
    scale = scale.where(scale > 0, 1.0)  # all is 0 where there are neither odds nor leads
    torch.testing.assert_close(actual / scale, expected / scale, rtol=0, atol=LIMIT[logits.dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", CLASSES)
def test_gradients(classes, dtype):
    assert_same_gradients(make_logits(7 if classes < 50257 else 2, classes, dtype, scale=1.0))


@pytest.mark.parametrize("classes", [2, 1025, 17000])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_gradients_without_extras(classes, count):
    assert_same_gradients(make_logits(count, classes), FEW)


@pytest.mark.parametrize("classes", [40, 17000])
def test_gradients_of_rows_with_strides(classes):
    logits = make_logits(7, classes)
    for view in (logits[::2], logits[:, 3:-4], logits.T.contiguous().T, logits[0], logits[:6].unflatten(0, (2, 3))):
        assert_same_gradients(view)
    sequences = logits[:6].unflatten(0, (2, 3))
    for view in (sequences[:, :-1], sequences.mT.contiguous().mT, sequences.mT.contiguous().mT[:, 1:]):
        assert_same_gradients(view)


UNDEFINED_CASES = [(5, dtype, names) for dtype in DTYPES for names in (FEW, SPREAD, EVERY)]
UNDEFINED_CASES += [(classes, torch.float32, EVERY) for classes in (16, 1025, 17001)]


@pytest.mark.parametrize(("classes", "dtype", "names"), UNDEFINED_CASES)
def test_an_undefined_row_has_no_gradient(classes, dtype, names):
    logits = odd_rows(classes, dtype)
    found = gradients(logits, dict.fromkeys(names, torch.ones(8, device=DEVICE)), sums)
    assert found.isnan().all(-1).tolist() == UNDEFINED
    assert found.isnan().any(-1).tolist() == UNDEFINED
    # Of several equal tops, each may be the one.
    assert_same_gradients(logits[[4, 7]] if "margin" not in names else logits[7:], names)


@pytest.mark.parametrize("names", [(name,) for name in EVERY], ids=EVERY)
def test_one_gradient_alone(names):
    for classes in (3, 100):
        assert_same_gradients(make_logits(7, classes), names)


@pytest.mark.parametrize(
    ("classes", "dtype"), [*((17, dtype) for dtype in DTYPES), *((classes, torch.float32) for classes in (2, 3, 1025))]
)
@pytest.mark.parametrize("scale", [1e-20, 1e-3, 0.3, 30.0, 300.0])
def test_gradients_of_flat_and_of_sharp_rows(scale, classes, dtype):
    logits = make_logits(7, classes, dtype, scale=scale)
    logits[0, 1] = -torch.inf
    for names in (SPREAD, EVERY[:5]):
        assert_same_gradients(logits, names, exact=True)


def exact_gradient(row, on_mass, on_squares):
    """From on_mass / M and on_squares / M^2 as the gradients of M and M2, the sums of `core/spread.py`."""
    with mpmath.workdps(60):
        top = max(row)
        odds = [mpmath.exp(mpmath.mpf(z) - top) for z in row]
        place = row.index(top)
        rivals = [u for j, u in enumerate(odds) if j != place]
        flat = sum(rivals) > mpmath.mpf(len(rivals)) / 2
        each = [1 - u for u in rivals] if flat else rivals
        mass = sum(each)
        sign, base = (-1, 2) if flat else (1, 1)
        found = []
        for x in each:
            # d x = sign u, and d(x^2 / (base + sign x)) = x (2 base + sign x) / (base + sign x)^2 d x
            u = 1 - x if flat else x
            slope = x * (2 * base + sign * x) / (base + sign * x) ** 2
            found.append(sign * u * (on_mass / mass + on_squares * slope / mass**2))
        found.insert(place, -sum(found))
        return [float(x) for x in found]


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 0.3, 3.0, 40.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_agree_with_the_definitions(scale, dtype):
    logits = make_logits(3, 10, scale=scale).to(dtype)
    pulls = {"mass": torch.full((3,), 0.75, device=DEVICE), "mass_squares": torch.full((3,), 0.5, device=DEVICE)}
    actual = gradients(logits, pulls, sums).double().cpu()
    rows_ = [exact_gradient(row, 0.75, 0.5) for row in logits.double().tolist()]
    expected = torch.tensor(rows_, dtype=torch.float64)
    size = expected.abs().amax(-1, keepdim=True)
    limit = {torch.float32: 2e-6, torch.float64: 1e-13}[dtype]
    torch.testing.assert_close(actual / size, expected / size, rtol=0, atol=limit)


def test_gradients_that_are_not_contiguous():
    """A mean gives one number to all rows, a transposed tensor its numbers in another order."""
    leaf = make_logits(6, 10).requires_grad_()
    pulls = torch.randn(3, 2, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    grads = []
    for pull in (pulls.T, pulls.T.contiguous()):
        rows_ = sums(leaf.unflatten(0, (2, 3)))
        grads.append(torch.autograd.grad([rows_.odds, rows_.mass], leaf, [pull, pull.double()])[0])
    torch.testing.assert_close(grads[0], grads[1], rtol=0, atol=0)
    (mean,) = torch.autograd.grad(sums(leaf).odds.mean(), leaf)
    (each,) = torch.autograd.grad(sums(leaf).odds, leaf, torch.full((6,), 1 / 6, device=DEVICE))
    torch.testing.assert_close(mean, each, rtol=1e-6, atol=0)


@pytest.mark.parametrize("odds", [1e-3, 1e-12, 1e-25])
def test_the_gradient_of_a_tiny_gap(odds):
    grads = []
    for dtype in (torch.float32, torch.float64):
        leaf = confident_logits(10, odds).float().to(DEVICE, dtype).requires_grad_()
        coins_from_rows(sums(leaf), 10, decide(leaf)).gap.log().backward()
        grads.append(leaf.grad.double())
    torch.testing.assert_close(grads[0], grads[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("scale", [0.2, 3.0], ids=["flat", "usual"])
def test_gradcheck_twice(scale):
    leaf = make_logits(3, 4, torch.float64, scale=scale).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: row_sums(z, True)[1:], leaf)
    assert torch.autograd.gradgradcheck(lambda z: row_sums(z, True)[1:], leaf)
