"""What torch asks of the operators of the sums: schemas, fake tensors, vmap, compilation. Run by `test_kernels.py`."""

import pytest
import torch
from torch.func import vmap

from tests.kernels.cases import DEVICE, make_logits, sums
from torch_boc.kernels import row_sums, row_sums_backward


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_vmap_is_a_loop(axis):
    logits = make_logits(24, 5).unflatten(0, (4, 6))
    mapped = vmap(lambda z: tuple(row_sums(z, True)), in_dims=axis)(logits)
    loop = [torch.stack(parts) for parts in zip(*(row_sums(z, True) for z in logits.unbind(axis)), strict=True)]
    for value, expected in zip(mapped, loop, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["odds", "mass_squares"])
def test_vmap_over_gradients(name):
    """The Jacobian in one sweep: the gradients are batched, the logits are not."""
    leaf = make_logits(3, 5, torch.float64).requires_grad_()
    value = getattr(sums(leaf), name)
    (batched,) = torch.autograd.grad(value, leaf, torch.eye(3, dtype=value.dtype, device=DEVICE), is_grads_batched=True)
    for row in range(3):
        (expected,) = torch.autograd.grad(getattr(sums(leaf), name)[row], leaf)
        torch.testing.assert_close(batched[row], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_opcheck(dtype, extras):
    logits = make_logits(3, 6, dtype)
    torch.library.opcheck(row_sums, (logits, extras))
    # Its fourth check adds the outputs to the first, which is of integers; the test below takes its place.
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(row_sums, (logits.clone().requires_grad_(), extras), test_utils=checks)
    prediction, top, odds, squares, mass, *rest = row_sums(logits, extras)
    pulls = [top, odds, squares, mass, *rest, None, None][:7]
    torch.library.opcheck(row_sums_backward, (logits, prediction, top, odds, mass, *pulls))
    torch.library.opcheck(row_sums_backward, (logits, prediction, top, odds, mass, None, odds, *[None] * 5))


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


def test_a_sum_that_nobody_used_has_no_gradient():
    """Then the kernel has less to do; and of an integer there is none."""
    seen = []

    class Backward(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "row_sums_backward" in func.name():
                seen.append([x is not None for x in args[5:]])
            return func(*args, **(kwargs or {}))

    rows = sums(make_logits(3, 5).requires_grad_(), extras=True)
    assert [x.requires_grad for x in rows] == [False] + [True] * 7
    with Backward():
        rows.odds.sum().backward(retain_graph=True)
        (rows.mass.sum() + rows.margin.sum()).backward()
    assert seen == [[False, True, *[False] * 5], [False, False, False, True, False, False, True]]


@pytest.mark.parametrize("wrong", [lambda x: x[:2], lambda x: x.to(torch.float16)], ids=["shape", "dtype"])
@pytest.mark.parametrize("place", [1, 2, 3, 4, 5, 6])
def test_tensors_that_do_not_fit_are_refused(place, wrong):
    logits = make_logits(3, 5)
    prediction, top, odds, _, mass, *_ = row_sums(logits, False)
    arguments = [logits, prediction, top, odds, mass, top, odds, *[None] * 5]
    arguments[place] = wrong(arguments[place])
    with pytest.raises(ValueError, match=r"expected sums and gradients of shape \(3,\)"):
        row_sums_backward(*arguments)
