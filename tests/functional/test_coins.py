"""The interface of `bag_of_coins`: shapes, axes, dtypes, empty batches, copies, and rows that have no geometry."""

import copy
import pickle

import pytest
import torch

import torch_boc
from tests.functional.cases import FLOAT_FIELDS, INF, NAN, as_dict, fields, random_logits
from torch_boc.functional import Coins, bag_of_coins

BAD_ROWS = {
    "nan": [NAN, 1.0, 0.0, 2.0],
    "nan at the end": [3.0, 1.0, 0.0, NAN],
    "plus infinity": [0.0, INF, 1.0, 2.0],
    "both infinities": [-INF, INF, 1.0, 2.0],
    "nan and infinity": [NAN, INF, 1.0, 2.0],
    "nothing but minus infinity": [-INF, -INF, -INF, -INF],
}


def test_the_worked_example():
    coins = torch_boc.bag_of_coins(torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64))
    coin = torch.sigmoid(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    softmax = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64).softmax(-1)
    assert coins.prediction.tolist() == [0]
    torch.testing.assert_close(coins.dominance, coin.mean()[None], rtol=1e-15, atol=0)
    torch.testing.assert_close(coins.confidence, softmax[:, 0], rtol=1e-15, atol=0)
    torch.testing.assert_close(coins.gap, coin.mean()[None] - softmax[:, 0], rtol=1e-14, atol=0)
    torch.testing.assert_close(coins.odds, softmax[:, 1:].sum(-1) / softmax[:, 0], rtol=1e-15, atol=0)


def test_log_probabilities_serve_as_logits():
    z = random_logits(4, 7)
    logs = fields(z.log_softmax(-1))
    for name, value in fields(z).items():
        torch.testing.assert_close(value, logs[name], rtol=1e-12, atol=1e-14)


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
def test_a_row_without_geometry_is_nan_and_leaves_the_others_alone(row, dtype):
    clean = random_logits(3, 4, dtype=dtype)
    mixed = torch.stack([clean[0], torch.tensor(row, dtype=dtype), clean[1], clean[2]])
    outputs, expected = fields(mixed), fields(clean)
    for name in FLOAT_FIELDS:
        assert outputs[name][1].isnan(), name
        torch.testing.assert_close(outputs[name][[0, 2, 3]], expected[name], rtol=0, atol=0)


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS.keys())
@pytest.mark.parametrize("name", FLOAT_FIELDS)
def test_a_row_without_geometry_leaves_the_gradients_of_the_others_alone(row, name):
    clean = random_logits(2, 4)
    mixed = torch.stack([clean[0], torch.tensor(row, dtype=torch.float64), clean[1]])
    grads = []
    for z in (mixed, clean):
        z.requires_grad_()
        getattr(bag_of_coins(z), name).sum().backward()
        grads.append(z.grad)
    torch.testing.assert_close(grads[0][[0, 2]], grads[1], rtol=0, atol=0)


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


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_coins_can_be_copied_and_pickled(duplicate):
    coins = bag_of_coins(random_logits(3, 4))
    twin = duplicate(coins)
    assert type(twin) is Coins
    for name, value in as_dict(coins).items():
        torch.testing.assert_close(getattr(twin, name), value, rtol=0, atol=0)


def test_public_names():
    assert torch_boc.bag_of_coins is bag_of_coins
    assert torch_boc.Coins is Coins
    assert Coins._fields[:5] == ("prediction", "odds", "loss", "concentration", "free_gap")
    assert all(hasattr(torch_boc.functional, name) for name in torch_boc.functional.__all__)
