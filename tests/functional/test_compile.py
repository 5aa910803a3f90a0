"""torch.compile gives what eager gives, in one graph, with fixed and with symbolic shapes.

The graph holds the native library's operators where there is one, and otherwise the formulas, which take paths of
their own. A compilation costs half a minute, so one function holds everything and is compiled once for each kind of
shape.
"""

import pytest
import torch

from tests import reference
from tests.functional.cases import INF, NAN, SCORES, confident_logits, random_logits, relative_error
from tests.kernels.cases import needs_native
from torch_boc.functional import (
    bag_of_coins,
    binomial_tail,
    compute_scores,
    dominance_bounds,
    forced_gap,
    log_p_value,
    p_value,
)
from torch_boc.kernels import use

PATHS = ["torch", pytest.param("native", marks=needs_native)]
TRIALS = 2
NAMES = ("prediction", "odds", "loss", "concentration", "free_gap", "gap", "log_p_value", *SCORES)


def whole_probe(z):
    coins = bag_of_coins(z)
    values = compute_scores(z, trials=TRIALS).values()
    return (*coins[:5], coins.gap, log_p_value(coins, TRIALS), *values)


def compile_once(function, path="torch", **options):
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, **options)

    def run(z):
        with use(path):
            return compiled(z)

    return run


@pytest.fixture(scope="module", autouse=True)
def no_recompilation():
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield
    torch.compiler.reset()


@pytest.fixture(scope="module", params=PATHS)
def static(request):
    return compile_once(whole_probe, request.param, dynamic=False)


def outputs_and_gradient(function, z):
    """Every output, and the gradient of a random mixture of the floating-point ones."""
    z = z.clone().requires_grad_()
    outputs = function(z)
    floats = torch.stack([x.double() for x in outputs if x.is_floating_point()])
    (grad,) = torch.autograd.grad(floats, z, random_logits(*floats.shape, seed=3))
    return [x.detach() for x in outputs], grad


def assert_same(function, z, *, rtol, atol):
    outputs, grad = outputs_and_gradient(function, z)
    expected, expected_grad = outputs_and_gradient(whole_probe, z)
    for name, value, other in zip(NAMES, outputs, expected, strict=True):
        assert value.dtype == other.dtype
        torch.testing.assert_close(value, other, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")
    torch.testing.assert_close(grad, expected_grad, rtol=rtol, atol=atol)


SHAPE = (8, 37)


def test_static_shapes(static):
    assert_same(static, random_logits(*SHAPE, dtype=torch.float32), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("scale", [1e-7, 1e-3, 0.3, 60.0])
def test_the_concentration_is_right_for_flat_and_sharp_rows(static, scale):
    z = random_logits(*SHAPE, scale=scale, dtype=torch.float32)
    z[0] = z[0].clamp_max(0.0)
    z[0, [5, 9]] = 0.0
    z[1, 3] = 90.0 + z[1].max()
    expected = [probe.concentration for probe in map(reference.probe, z.tolist())]
    error = static(z.requires_grad_())[3].detach().double() - torch.tensor([float(x) for x in expected]).double()
    assert error.abs().max() <= 2e-6
    results = [outputs_and_gradient(f, z.detach())[0][3] for f in (static, whole_probe)]
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=2e-6)


def test_the_first_of_several_tops_and_the_first_nan(static):
    z = random_logits(*SHAPE, dtype=torch.float32).round()
    z[0] = 0.0
    z[1, [7, 8]] = NAN
    z[2] = -INF
    z[3, [4, 30]] = torch.tensor([-0.0, 0.0])
    z[3] = z[3].clamp_max(0.0)
    assert static(z.requires_grad_())[0].tolist() == z.argmax(-1).tolist()


def test_static_shapes_are_as_accurate_as_eager(static):
    rows = [confident_logits(SHAPE[1], 10.0**-i) for i in (1, 3, 6, 9, 12, 18, 22, 25)]
    z = torch.stack(rows).float()
    probes = [reference.probe(row) for row in z.tolist()]
    results = dict(zip(NAMES[:6], static(z.requires_grad_())[:6], strict=True))
    for name in ("odds", "loss", "gap", "concentration"):
        expected = [getattr(probe, name) for probe in probes]
        assert relative_error(results[name], expected).max() <= 5e-6, name
    assert results["prediction"].tolist() == [probe.prediction for probe in probes]


def test_static_shapes_with_rows_that_have_no_geometry(static):
    z = random_logits(*SHAPE, dtype=torch.float32)
    z[1, 5], z[2, 36], z[3] = NAN, INF, -INF
    z[4, :9] = -INF
    z[5, 7] = z[5, 30] = 20.0
    z[6] = 1.5
    z[7, 3] = 300.0
    for name, value, expected in zip(NAMES, static(z.requires_grad_()), whole_probe(z), strict=True):
        if name == "prediction":
            good = [0, 4, 5, 6, 7]
            value, expected = (z.gather(-1, x[:, None])[good] for x in (value, expected))
        torch.testing.assert_close(value, expected, rtol=2e-5, atol=2e-5, equal_nan=True)


@pytest.mark.parametrize("path", PATHS)
def test_symbolic_shapes(path):
    """One compilation serves them all, or it is an error."""
    dynamic = compile_once(whole_probe, path, dynamic=True)
    for shape in ((7, 33), (3, 129), (12, 5), (2, 4099)):
        assert_same(dynamic, random_logits(*shape), rtol=1e-9, atol=1e-10)


TRACED = {
    "two classes": (lambda z: tuple(bag_of_coins(z[:, :2])), torch.float32),
    "another axis": (lambda z: tuple(bag_of_coins(z, dim=0)), torch.float64),
    "bfloat16": (lambda z: tuple(bag_of_coins(z)), torch.bfloat16),
    "bounds": (lambda z: (*dominance_bounds(z.exp(), 100), forced_gap(z.exp(), 100)), torch.float64),
    "tail": (lambda z: (binomial_tail(torch.arange(6), 40, z[0].sigmoid()),), torch.float64),
    "many trials": (lambda z: (log_p_value(bag_of_coins(z), 5000),), torch.float64),
    "given wins": (lambda z: (p_value(bag_of_coins(z), 9, wins=torch.arange(4)),), torch.float64),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("function", "dtype"), TRACED.values(), ids=TRACED.keys())
def test_other_ways_to_call_trace_in_one_graph(function, dtype, dynamic, path):
    """Traced forward and backward without code generation, which is the slow part."""
    z = random_logits(4, 6, scale=1.0, dtype=dtype).requires_grad_()
    traced = compile_once(function, path, dynamic=dynamic, backend="aot_eager")
    results = []
    for f in (traced, function):
        outputs = f(z)
        total = sum(x.double().sum() for x in outputs if x.requires_grad)
        results.append((*outputs, *torch.autograd.grad(total, z)))
    rtol = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    for value, expected in zip(*results, strict=True):
        torch.testing.assert_close(value, expected, rtol=rtol, atol=rtol)
