"""All public functions in one graph: compiled, mapped, differentiated, and on a device that has no values."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from tests.dispatch import NoHostSync, needs_fake_gpu
from tests.functional.cases import FLOAT_FIELDS, as_dict, everything, over_paths, random_logits
from tests.kernels.cases import needs_native
from torch_boc import kernels
from torch_boc.functional import (
    auroc,
    bag_of_coins,
    bag_of_dice,
    boc_summary,
    choose_temperature,
    compute_scores,
    flip_coins,
    p_value,
    scores,
    update_martingale,
)
from torch_boc.functional.conformal import flagged_share
from torch_boc.functional.martingale import empty_martingale
from torch_boc.functional.score_bins import ScoreConfig, bin_scores


def of_sets(z):
    """What takes a set of samples, and gives numbers of other shapes."""
    p, places = z.sigmoid()[:, 0], bin_scores(z, ScoreConfig("energy", groups="confidence"))
    counts = torch.ones(2, 9, dtype=torch.int64, device=z.device)
    return {
        "auroc": auroc(z[:, 0], z[:, 1]),
        "bets": update_martingale(p.detach(), empty_martingale(), torch.zeros((), dtype=torch.int64)).evidence,
        "flagged": flagged_share(counts, counts, 0.05),
        "place": places.bin.double(),
        "dice": bag_of_dice(z, [1, 6]),
        "class": bag_of_coins(z, index=torch.zeros_like(z[:, 0], dtype=torch.int64)).loss,
        **boc_summary(z, torch.zeros_like(z[:, 0], dtype=torch.int64)),
    }


def values_and_gradient(function, z):
    """Every output, and the gradient of a random mixture of the floating-point ones."""
    z = z.clone().requires_grad_()
    found = function(z)
    floats = torch.stack([x.double() for x in found.values() if x.requires_grad])
    (grad,) = torch.autograd.grad(floats, z, random_logits(*floats.shape, seed=3))
    return {name: x.detach() for name, x in found.items()}, grad


def probe(z):
    coins = bag_of_coins(z)
    return {**as_dict(coins), **compute_scores(z, trials=2), "p": p_value(coins, 2)}


@pytest.mark.parametrize(
    ("path", "dynamic", "backend"),
    [
        pytest.param("torch", False, "inductor", marks=pytest.mark.slow),
        ("torch", False, "aot_eager"),
        ("torch", True, "aot_eager"),
        pytest.param("native", True, "inductor", marks=needs_native),
    ],
)
def test_one_compiled_graph_gives_what_eager_gives(path, dynamic, backend):
    """With symbolic shapes, one compilation serves all shapes, or it is an error."""
    torch.compiler.reset()
    compiled = torch.compile(probe, fullgraph=True, dynamic=dynamic, backend=backend)
    shapes = [(7, 33), (3, 129), (12, 5), (2, 2051)] if dynamic else [(8, 37)]
    with torch._dynamo.config.patch(error_on_recompile=True), kernels.use(path):
        for shape in shapes:
            z = random_logits(*shape)
            z[1, 2:4] = z[1].max()
            (found, grad), (expected, expected_grad) = (values_and_gradient(f, z) for f in (compiled, probe))
            for name, value in found.items():
                torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-10, msg=name)
            plain = [i for i in range(len(z)) if i != 1]  # a tie at the top has several gradients
            torch.testing.assert_close(grad[plain], expected_grad[plain], rtol=1e-8, atol=1e-9)
    torch.compiler.reset()


def test_functions_of_sets_and_narrow_logits_compile():
    torch.compiler.reset()
    z = random_logits(9, 5, dtype=torch.bfloat16)
    found = torch.compile(of_sets, fullgraph=True, backend="aot_eager")(z.float())
    coins = torch.compile(lambda x: tuple(bag_of_coins(x)), fullgraph=True, backend="aot_eager")(z)
    torch.compiler.reset()
    expected = of_sets(z.float())
    for name in found.keys() - {"place"}:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6, equal_nan=True, msg=name)
    torch.testing.assert_close(coins, tuple(bag_of_coins(z)), rtol=1e-5, atol=1e-6)


def test_vmap_gives_what_a_batch_gives():
    z = random_logits(3, 4, 5)
    for in_dims in (0, 1):
        mapped = torch.func.vmap(everything, in_dims=in_dims)(z)
        torch.testing.assert_close(mapped, everything(z.movedim(in_dims, 0)), rtol=1e-10, atol=1e-12)
    nested = torch.func.vmap(torch.func.vmap(lambda row: bag_of_coins(row).gap))(z)
    torch.testing.assert_close(nested, bag_of_coins(z).gap, rtol=1e-12, atol=1e-14)


@over_paths
def test_gradients_per_sample_and_hessians(path):
    z = random_logits(4, 5)
    with kernels.use(path):
        for name in ("gap", "log_odds", "gen", "log p", "tempered", "class loss"):
            each = torch.func.vmap(torch.func.grad(lambda row, n=name: everything(row)[n]))(z)
            (whole,) = torch.autograd.grad(everything(z.requires_grad_())[name].sum(), z)
            torch.testing.assert_close(each, whole, rtol=1e-10, atol=1e-12, msg=name)
            z = z.detach()
        hessian = torch.func.jacrev(torch.func.jacrev(lambda row: bag_of_coins(row).gap))(z[0])
    expected = torch.autograd.functional.hessian(lambda row: bag_of_coins(row).gap, z[0])
    torch.testing.assert_close(hessian, expected, rtol=1e-10, atol=1e-12)


@over_paths
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_gradients_are_those_of_finite_differences(classes, path):
    z = random_logits(3, classes, scale=1.5, seed=classes).requires_grad_()

    def differentiable(x):
        return tuple(value for value in everything(x).values() if value.requires_grad)

    with kernels.use(path):
        assert gradcheck(differentiable, z)
        assert gradgradcheck(lambda x: tuple(as_dict(bag_of_coins(x))[name] for name in FLOAT_FIELDS), z[:2])


@over_paths
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # by torch itself
def test_forward_mode_is_refused_and_loses_nothing_in_silence(path):
    with kernels.use(path), forward_ad.dual_level():
        z = forward_ad.make_dual(random_logits(3, 5), random_logits(3, 5, seed=1))
        for function in (bag_of_coins, compute_scores):
            with pytest.raises(NotImplementedError, match="jvp"):
                function(z)


ROWS = {
    "flat": [0.0] * 4,
    "nearly flat": [5.0, 5.0, 5.0, 4.0],
    "minus infinity": [1.0, 1.0, -torch.inf, 0.0],
    "odds underflow in float32": [300.0, 0.0, 1.0, 2.0],
    "odds underflow in float64": [900.0, 0.0, 0.0, 1.0],
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_of_scores_are_finite_for_every_row_that_has_a_geometry(dtype, row):
    z = torch.tensor([row], dtype=dtype, requires_grad=True)
    for name, value in compute_scores(z).items():
        (grad,) = torch.autograd.grad(value.sum(), z, retain_graph=True)
        assert grad.isfinite().all(), name


@over_paths
@pytest.mark.parametrize("shape", [(7, 2), (7, 10), (3, 2099)])
def test_no_value_is_read_back(shape, path):
    z = random_logits(*shape, dtype=torch.float32).requires_grad_()
    with kernels.use(path), NoHostSync():
        found = everything(z)
        sum(x.double().sum() for x in found.values() if x.requires_grad).backward()
        of_sets(z.detach())
        choose_temperature(z)
    assert z.grad.isfinite().all()


@needs_fake_gpu
@pytest.mark.parametrize(("shape", "dim"), [((5, 10), -1), ((300, 128256), -1), ((3, 7, 4), 1), ((0, 10), -1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_everything_stays_on_the_device(shape, dim, dtype):
    with FakeTensorMode(), NoHostSync():
        z = torch.empty(shape, device="cuda", dtype=dtype)
        found = everything(z, dim=dim)
    lead = torch.empty(shape, device="meta").movedim(dim, -1).shape[:-1]
    assert {(x.device.type, x.shape) for x in found.values()} == {("cuda", lead)}
    keep_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    assert {found[name].dtype for name in FLOAT_FIELDS if name not in scores} == {keep_dtype}
    assert {found[name].dtype for name in scores} == {torch.float64}
    z = torch.empty(shape, device="meta", dtype=dtype)  # the random numbers of a GPU need one
    flips = flip_coins(z, 3, dim=dim)
    assert (flips.device.type, flips.shape) == ("meta", lead)
