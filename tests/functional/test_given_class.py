"""`bag_of_coins(logits, index=...)`: the coins of a given class, by every path, with the laws of those of the top."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from tests import reference
from tests.functional.cases import INF, NAN, as_tensor, over_paths, random_logits
from torch_boc.functional import bag_of_coins, token_numbers
from torch_boc.kernels import use

LIMIT = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 3e-6, torch.float16: 3e-6}
NUMBERS = ("odds", "loss", "log_probability")


def some_index(logits, seed=0):
    return torch.randint(logits.shape[-1], logits.shape[:-1], generator=torch.Generator().manual_seed(seed))


def assert_same(actual, expected, limit=1e-12):
    for name, value, other in zip(actual._fields, actual, expected, strict=True):
        torch.testing.assert_close(value, other, rtol=limit, atol=limit * 1e-3, equal_nan=True, msg=name)


@over_paths
@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("classes", [2, 3, 7, 15, 16, 17, 40, 1001])
@pytest.mark.parametrize("scale", [0.01, 3.0, 30.0])
def test_agrees_with_the_definitions(path, dtype, classes, scale):
    logits = random_logits(6, classes, scale=scale, dtype=dtype, seed=classes)
    index = some_index(logits)
    index[0] = logits[0].argmax()
    index[1] = logits[1].argmin()
    with use(path):
        coins = bag_of_coins(logits, index=index)
    expected = [reference.class_probe(row, i) for row, i in zip(logits.tolist(), index.tolist(), strict=True)]
    for name in NUMBERS:
        values = as_tensor([min(getattr(x, name), torch.finfo(coins.odds.dtype).max) for x in expected])
        torch.testing.assert_close(getattr(coins, name).double(), values, rtol=LIMIT[dtype], atol=1e-37)
    # A class that loses nearly all coins has a dominance of a few units of rounding, and so has its gap.
    for name in ("confidence", "dominance", "gap"):
        values = as_tensor([getattr(x, name) for x in expected])
        torch.testing.assert_close(getattr(coins, name).double(), values, rtol=LIMIT[dtype], atol=LIMIT[dtype])
    assert coins.rank.tolist() == [x.rank for x in expected]
    assert coins.prediction.tolist() == index.tolist()
    if classes == 2:
        assert (coins.gap == 0).all()


@given(st.data())
def test_laws(data):
    """A permutation moves the class, and the gap is never negative."""
    classes, seed = data.draw(st.integers(2, 30)), data.draw(st.integers(0, 10**6))
    logits = random_logits(4, classes, scale=data.draw(st.sampled_from([0.1, 3.0, 20.0])), seed=seed)
    index = some_index(logits, seed)
    coins = bag_of_coins(logits, index=index)
    order = torch.randperm(classes, generator=torch.Generator().manual_seed(seed))
    moved = bag_of_coins(logits[:, order], index=order.argsort()[index])
    assert_same(moved._replace(prediction=index), coins, 1e-9)
    assert (coins.gap >= -1e-15).all()
    assert (coins.concentration.isnan() == (coins.rank > 1)).all()
    assert (coins.free_gap.isnan() == (coins.rank > 1)).all()
    assert (coins.rank == (logits > logits.gather(-1, index[:, None])).sum(-1) + 1).all()


@over_paths
def test_ties(path):
    logits = torch.tensor([[2.0, 2.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    with use(path):
        coins = bag_of_coins(logits, index=torch.tensor([2, 3]))
    assert coins.rank.tolist() == [1, 1]
    plain = bag_of_coins(logits)
    torch.testing.assert_close(coins.loss, plain.loss)
    torch.testing.assert_close(coins.concentration, plain.concentration)


@over_paths
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_undefined_rows_and_classes(path, dtype):
    logits = torch.zeros(6, 20, dtype=dtype)
    logits[:, 1] = 3.0
    logits[0, 4] = NAN
    logits[1, 4] = INF
    logits[2, [0, 5]] = -INF  # the given class is ruled out, and so is another
    logits[3, 5] = -INF  # another class is ruled out, which loses
    index = torch.tensor([0, 0, 0, 0, -100, 20])
    with use(path):
        coins = bag_of_coins(logits, index=index)
    assert coins.loss.isnan().tolist() == [True, True, True, False, True, True]
    assert coins.gap.isnan().tolist() == [True, True, True, False, True, True]
    assert coins.rank.tolist() == [0, 0, 0, 2, 0, 0]
    assert coins.log_probability.isnan().tolist() == [True, True, False, False, True, True]
    assert coins.log_probability[2] == -INF
    assert coins.confidence[2] < 1e-37
    plain = bag_of_coins(logits[3:4], index=index[3:4])
    assert_same(type(coins)(*(x[3:4] for x in coins)), plain, 1e-6)


@over_paths
def test_distances_beyond_the_range_of_exp(path):
    logits = torch.tensor([[0.0, 200.0, -50.0], [0.0, 3000.0, 0.0]])
    with use(path):
        coins = bag_of_coins(logits, index=torch.tensor([0, 2]))
    assert coins.log_probability.tolist() == [-200.0, -3000.0]
    assert (coins.odds == torch.finfo(torch.float32).max).all()
    assert coins.gap.isfinite().all()
    assert coins.loss.tolist() == [0.5, 0.75]
    wide = bag_of_coins(logits.double(), index=torch.tensor([0, 2]))
    assert wide.odds[0].item() == pytest.approx(math.exp(200))


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("name", ["odds", "loss", "log_probability", "gap", "dominance"])
def test_gradients(name, classes):
    logits = random_logits(4, classes, scale=1.5, seed=classes).requires_grad_()
    index = some_index(logits)
    index[0] = logits[0].argmax()
    assert gradcheck(lambda z: getattr(bag_of_coins(z, index=index), name), logits)
    assert gradgradcheck(lambda z: getattr(bag_of_coins(z, index=index), name), logits)


def test_gradients_where_classes_are_ruled_out_are_finite():
    logits = random_logits(3, 6, dtype=torch.float32)
    logits[:, 2] = -INF
    logits.requires_grad_()
    coins = bag_of_coins(logits, index=torch.tensor([0, 1, 3]))
    (coins.loss + coins.log_probability).sum().backward()
    assert logits.grad.isfinite().all()


def test_token_numbers_are_those_of_the_probe():
    logits = random_logits(6, 70, dtype=torch.float32)
    token = some_index(logits)
    token[0], token[1] = logits[0].argmax(), -100
    numbers, coins, plain = token_numbers(logits, token), bag_of_coins(logits, index=token), bag_of_coins(logits)
    assert numbers.rank.tolist() == coins.rank.tolist()
    assert numbers.rank[:2].tolist() == [1, 0]
    torch.testing.assert_close(numbers.log_probability.float(), coins.log_probability, equal_nan=True)
    torch.testing.assert_close(numbers.lost_coins.float(), plain.loss * 69)
    torch.testing.assert_close(numbers.gap.float(), plain.gap)
    entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(numbers.entropy.float(), entropy)
    values, places = logits.log_softmax(-1).topk(5)
    assert torch.equal(numbers.rivals, places)
    torch.testing.assert_close(numbers.rival_log_probabilities.float(), values)
