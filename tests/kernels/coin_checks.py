"""Loss, concentration and free gap of the kernels against the formulas in torch. Run by `test_kernels.py`."""

import pytest
import torch
from torch.func import vmap

from tests.kernels.cases import DEVICE, make_logits, odd_rows, sums
from torch_boc.functional.coins import coins_by_formula
from torch_boc.kernels import coins


def sums_of(rows):
    return rows.odds, rows.squares, rows.mass, rows.mass_squares


def assert_same_coins(rows, classes):
    expected = coins_by_formula(rows, classes)
    actual = coins(*sums_of(rows), classes)
    # The order of operations is the same; a compiler may spare a rounding.
    limit = {torch.float32: 1e-6, torch.float64: 1e-13}[rows.odds.dtype]
    torch.testing.assert_close(actual[0], expected.loss, rtol=limit, atol=0, equal_nan=True)
    torch.testing.assert_close(actual[1], expected.concentration, rtol=limit, atol=1e-12, equal_nan=True)
    torch.testing.assert_close(actual[2], expected.free_gap, rtol=limit, atol=1e-13, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("classes", "count"), [(3, 0), (3, 1), (10, 600), (1000, 7)])
@pytest.mark.parametrize("scale", [1e-8, 3.0, 40.0])
def test_coins(classes, dtype, count, scale):
    assert_same_coins(sums(make_logits(count, classes, dtype, scale=scale)), classes)


@pytest.mark.parametrize("classes", [5, 1025])
def test_undefined_rows_and_ties(classes):
    assert_same_coins(sums(odd_rows(classes, torch.float32)), classes)


def test_the_ends_of_the_concentration():
    """Evenly matched rivals, all on one rival, and nothing to place."""
    logits = torch.tensor([[2.0, 0, 0, 0], [2.0, 1.5, -200, -200], [0, 0, 0, 0], [900.0, 0, 0, 0]], device=DEVICE)
    rows = sums(logits)
    torch.testing.assert_close(
        coins(*sums_of(rows), 4)[1], torch.tensor([0.0, 1, 0, 0], device=DEVICE), rtol=0, atol=1e-5
    )


def test_shapes_and_strides():
    rows = sums(make_logits(24, 10).unflatten(0, (4, 6)).transpose(0, 1))
    assert_same_coins(rows, 10)
    halves = {name: getattr(rows, name)[::2] for name in ("odds", "squares", "mass", "mass_squares")}
    assert_same_coins(rows._replace(**halves), 10)


def test_opcheck_and_vmap():
    rows = sums(make_logits(6, 5))
    torch.library.opcheck(coins, (*sums_of(rows), 5))
    mapped = vmap(lambda *sums: coins(*sums, 5))(*sums_of(rows))
    for value, expected in zip(mapped, coins(*sums_of(rows), 5), strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=0)


def test_what_does_not_fit_is_refused():
    rows = sums(make_logits(6, 5))
    with pytest.raises(ValueError, match="expected two tensors of one shape on one device"):
        coins(rows.odds, rows.squares[:2], rows.mass, rows.mass_squares, 5)
    with pytest.raises(TypeError, match="expected odds in float32 or float64 and squares and masses in float64"):
        coins(rows.odds, rows.squares.float(), rows.mass, rows.mass_squares, 5)
