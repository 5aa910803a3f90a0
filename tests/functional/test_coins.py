"""The interface of `bag_of_coins`: shapes, axes, dtypes, empty batches, and rows that have no geometry."""

import pytest
import torch

from tests.functional.cases import FLOAT_FIELDS, INF, NAN, as_dict, random_logits
from torch_boc.functional import bag_of_coins

BAD_ROWS = {
    "nan": [NAN, 1.0, 0.0, 2.0],
    "nan at the end": [3.0, 1.0, 0.0, NAN],
    "plus infinity": [0.0, INF, 1.0, 2.0],
    "both infinities": [-INF, INF, 1.0, 2.0],
    "nan and infinity": [NAN, INF, 1.0, 2.0],
    "nothing but minus infinity": [-INF, -INF, -INF, -INF],
}


@pytest.mark.parametrize(("shape", "dim"), [((0, 5), -1), ((5, 0), 0), ((3, 0, 5), -1), ((0, 4000), -1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_an_empty_batch_is_empty(shape, dim, dtype):
    z = torch.empty(shape, dtype=dtype, requires_grad=True)
    coins = bag_of_coins(z, dim=dim)
    lead = z.movedim(dim, -1).shape[:-1]
    assert {value.shape for value in as_dict(coins).values()} == {lead}
    coins.gap.sum().backward()
    assert z.grad.shape == shape


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS.keys())
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_without_geometry_is_nan_and_leaves_the_others_and_their_gradients_alone(row, dtype):
    clean = random_logits(3, 4, dtype=dtype)
    mixed = torch.stack([clean[0], torch.tensor(row, dtype=dtype), clean[1], clean[2]])
    found, expected = (as_dict(bag_of_coins(z.requires_grad_())) for z in (mixed, clean))
    for name in FLOAT_FIELDS:
        assert found[name][1].isnan(), name
        torch.testing.assert_close(found[name][[0, 2, 3]], expected[name], rtol=0, atol=0)
        pairs = ((found, mixed), (expected, clean))
        grads = [torch.autograd.grad(x[name].sum(), z, retain_graph=True)[0] for x, z in pairs]
        torch.testing.assert_close(grads[0][[0, 2, 3]], grads[1], rtol=0, atol=0)


@pytest.mark.parametrize("row", [[1.0, -INF, 0.5, 0.0], [0.0, -INF, -INF, -INF], [0.0, 0.0, -INF, -INF]])
@pytest.mark.parametrize("name", FLOAT_FIELDS)
def test_minus_infinity_is_a_class_that_always_loses(row, name):
    z = torch.tensor([row], dtype=torch.float64, requires_grad=True)
    far = torch.tensor([row], dtype=torch.float64).clamp_min(-1e4)
    value = getattr(bag_of_coins(z), name)
    torch.testing.assert_close(value, getattr(bag_of_coins(far), name), rtol=1e-15, atol=0)
    value.sum().backward()
    assert z.grad.isfinite().all()
    assert (z.grad[z.isinf()] == 0).all()
