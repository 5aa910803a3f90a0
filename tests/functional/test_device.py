"""Everything stays on the device of the logits: tensors that pretend to be on a GPU go through the whole library."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.dispatch import NoHostSync
from tests.functional.cases import FLOAT_FIELDS, SCORES, random_logits
from torch_boc.core import rows, tails
from torch_boc.functional import (
    bag_of_coins,
    binomial_log_tail,
    binomial_tail,
    compute_scores,
    dominance_bounds,
    expected_wins,
    forced_gap,
    log_p_value,
    p_value,
    structural_score,
)
from torch_boc.kernels import use

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# One block, several blocks of the accelerator's size, and a class axis in the middle.
SHAPES = {"small": ((5, 10), -1), "blocks": ((300, 128256), -1), "axis": ((3, 7, 4), 1), "empty": ((0, 10), -1)}
over_shapes = pytest.mark.parametrize(("shape", "dim"), SHAPES.values(), ids=SHAPES.keys())


@pytest.fixture
def fake_cuda():
    with FakeTensorMode(), NoHostSync():
        yield


def assert_on_cuda(tensors, shape, dtype):
    for tensor in tensors:
        assert tensor.device.type == "cuda"
        assert tensor.shape == shape
        assert tensor.dtype == dtype


def lead(shape, dim):
    return torch.empty(shape, device="meta").movedim(dim, -1).shape[:-1]


@over_shapes
@pytest.mark.parametrize("dtype", DTYPES)
def test_coins_stay_on_the_gpu(fake_cuda, shape, dim, dtype):
    coins = bag_of_coins(torch.empty(shape, device="cuda", dtype=dtype), dim=dim)
    assert_on_cuda([coins.prediction], lead(shape, dim), torch.int64)
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert_on_cuda([getattr(coins, name) for name in FLOAT_FIELDS], lead(shape, dim), expected)


@over_shapes
@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_p_values_stay_on_the_gpu(fake_cuda, shape, dim, dtype):
    coins = bag_of_coins(torch.empty(shape, device="cuda", dtype=dtype), dim=dim)
    outputs = [function(coins, 20) for function in (expected_wins, log_p_value, p_value, structural_score)]
    outputs += [p_value(coins, 20, wins=torch.tensor(3, device="cuda"))]
    assert_on_cuda(outputs, lead(shape, dim), torch.float64)


@over_shapes
@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_scores_stay_on_the_gpu(fake_cuda, shape, dim, dtype):
    values = compute_scores(torch.empty(shape, device="cuda", dtype=dtype), dim=dim, trials=20)
    assert tuple(values) == SCORES
    assert_on_cuda(values.values(), lead(shape, dim), torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds_and_tails_stay_on_the_gpu(fake_cuda, dtype):
    odds = torch.empty(4, 1, device="cuda", dtype=dtype)
    wins = torch.empty(3, device="cuda", dtype=torch.int64)
    assert_on_cuda([*dominance_bounds(odds, 10), forced_gap(odds, 10)], (4, 1), dtype)
    assert_on_cuda([binomial_tail(wins, 2000, odds), binomial_log_tail(wins, 7, odds)], (4, 3), torch.float64)


@over_shapes
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_the_sums_stays_on_the_gpu(fake_cuda, shape, dim, dtype):
    """The body of backward, called by hand: without a GPU the autograd engine refuses to start on one."""
    logits = torch.empty(shape, device="cuda", dtype=dtype).movedim(dim, -1)
    sums = [x.unsqueeze(-1) for x in rows.row_sums(logits, extras=True)[1:6]]
    assert_on_cuda([rows.gradient(logits, *sums)], logits.shape, dtype)


def test_the_slope_of_the_tail_stays_on_the_gpu(fake_cuda):
    odds = torch.empty(4, device="cuda", dtype=torch.float64)
    assert_on_cuda(tails.log_tail_and_slope(odds, 100, odds), (4,), torch.float64)


@over_shapes
@pytest.mark.parametrize("dtype", DTYPES)
def test_backward_needs_no_values(shape, dim, dtype):
    """On the meta device there are none: whatever reads one fails."""
    z = torch.empty(shape, device="meta", dtype=dtype, requires_grad=True)
    with NoHostSync():
        coins = bag_of_coins(z, dim=dim)
        outputs = [*coins[1:5], coins.gap, p_value(coins, 20), *compute_scores(z, dim=dim, trials=20).values()]
        sum(x.double().sum() for x in outputs).backward()
    assert z.grad.device.type == "meta"
    assert z.grad.shape == z.shape
    assert z.grad.dtype == dtype


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("classes", [3, 100, 4099])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_gives_what_the_cpu_gives(classes, dtype):
    """The CPU computes in float64 and by torch's operations, the GPU by the kernels."""
    grads, values = [], []
    for device, wide, path in (("cpu", torch.float64, "torch"), ("cuda", dtype, "triton")):
        z = random_logits(6, classes, dtype=dtype).to(device, wide).requires_grad_()
        with use(path):
            coins = bag_of_coins(z)
            outputs = torch.stack([coins.odds.double(), coins.loss.double(), *compute_scores(z).values()])
            outputs.sum().backward()
        values.append(outputs.cpu())
        grads.append(z.grad.cpu().to(dtype))
    torch.testing.assert_close(values[1], values[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grads[1], grads[0], rtol=10 * torch.finfo(dtype).eps, atol=1e-4)
