"""`bag_of_coins(logits, index=...)`: the coins of a given class, by every path, with the laws of those of the top."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.func import vmap

from tests import reference
from tests.dispatch import NoHostSync
from tests.functional.cases import as_tensor, random_logits
from tests.kernels.cases import needs_native
from torch_boc.functional import bag_of_coins, p_value, token_numbers
from torch_boc.kernels import use

NAN, INF = math.nan, math.inf
PATHS = ["torch", pytest.param("native", marks=needs_native)]
over_paths = pytest.mark.parametrize("path", PATHS)
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


@over_paths
@pytest.mark.parametrize("classes", [2, 5, 100])
def test_the_top_as_the_given_class_is_the_plain_probe(path, classes):
    logits = random_logits(50, classes, scale=5.0, dtype=torch.float32)
    with use(path):
        plain = bag_of_coins(logits)
        coins = bag_of_coins(logits, index=plain.prediction)
    for name in plain._fields[:5]:
        assert torch.equal(getattr(coins, name), getattr(plain, name)), name
    for name in ("confidence", "dominance", "gap", "forced_gap"):
        assert torch.equal(getattr(coins, name), getattr(plain, name)), name
    assert (coins.rank == 1).all()
    torch.testing.assert_close(coins.log_probability, plain.confidence.log(), rtol=1e-5, atol=1e-6)


@given(st.data())
def test_laws(data):
    """A shift changes nothing, a permutation moves the class, and the gap is never negative."""
    classes, seed = data.draw(st.integers(2, 30)), data.draw(st.integers(0, 10**6))
    logits = random_logits(4, classes, scale=data.draw(st.sampled_from([0.1, 3.0, 20.0])), seed=seed)
    index = some_index(logits, seed)
    coins = bag_of_coins(logits, index=index)
    assert_same(bag_of_coins(logits + 7.0, index=index), coins, 1e-9)
    order = torch.randperm(classes, generator=torch.Generator().manual_seed(seed))
    moved = bag_of_coins(logits[:, order], index=order.argsort()[index])
    assert_same(moved._replace(prediction=index), coins, 1e-9)
    assert (coins.gap >= -1e-15).all()
    assert (coins.concentration.isnan() == (coins.rank > 1)).all()
    assert (coins.free_gap.isnan() == (coins.rank > 1)).all()
    assert (coins.rank == (logits > logits.gather(-1, index[:, None])).sum(-1) + 1).all()


def test_the_probabilities_of_all_classes_are_those_of_softmax():
    logits = random_logits(3, 9)
    each = [bag_of_coins(logits, index=torch.full((3,), i)) for i in range(9)]
    torch.testing.assert_close(torch.stack([x.confidence for x in each], -1), logits.softmax(-1))
    torch.testing.assert_close(torch.stack([x.log_probability for x in each], -1), logits.log_softmax(-1))
    # Every coin has one winner: the mean dominance of all classes is a half.
    torch.testing.assert_close(torch.stack([x.dominance for x in each]).mean(0), torch.full((3,), 0.5).double())


def test_another_axis_and_more_axes():
    logits = random_logits(3, 4, 5, dtype=torch.float32)
    index = some_index(logits.movedim(1, -1))
    coins = bag_of_coins(logits, dim=1, index=index)
    assert coins.loss.shape == (3, 5)
    assert_same(coins, bag_of_coins(logits.movedim(1, -1).contiguous(), index=index), 1e-6)


@over_paths
def test_ties(path):
    logits = torch.tensor([[2.0, 2.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    with use(path):
        second, all_equal = (x.tolist() for x in bag_of_coins(logits, index=torch.tensor([2, 3])).rank.split(1))
        coins = bag_of_coins(logits, index=torch.tensor([2, 3]))
    assert (second, all_equal) == ([1], [1])
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


def test_p_values_of_a_given_class():
    row = [1.0, 0.2, 2.0, -1.0, 0.5]
    for index in range(5):
        coins = bag_of_coins(torch.tensor(row, dtype=torch.float64), index=torch.tensor(index))
        exact = reference.class_probe(row, index)
        wins = round(100 * float(exact.dominance))
        tail = reference.binomial_log_tail(wins, 100, exact.odds)
        assert p_value(coins).log().item() == pytest.approx(float(tail), rel=1e-10)


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("name", ["odds", "loss", "log_probability", "gap", "dominance"])
def test_gradients(name, classes):
    logits = random_logits(4, classes, scale=1.5, seed=classes).requires_grad_()
    index = some_index(logits)
    index[0] = logits[0].argmax()
    assert gradcheck(lambda z: getattr(bag_of_coins(z, index=index), name), logits)
    assert gradgradcheck(lambda z: getattr(bag_of_coins(z, index=index), name), logits)


def test_the_gradient_of_the_log_probability_is_that_of_cross_entropy():
    logits = random_logits(8, 50, dtype=torch.float32)
    index = some_index(logits)
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    bag_of_coins(ours, index=index).log_probability.mean().neg().backward()
    torch.nn.functional.cross_entropy(theirs, index).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-7)


def test_gradients_where_classes_are_ruled_out_are_finite():
    logits = random_logits(3, 6, dtype=torch.float32)
    logits[:, 2] = -INF
    logits.requires_grad_()
    coins = bag_of_coins(logits, index=torch.tensor([0, 1, 3]))
    (coins.loss + coins.log_probability).sum().backward()
    assert logits.grad.isfinite().all()


@over_paths
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_in_one_graph(path, dynamic):
    torch.compiler.reset()
    logits = random_logits(5, 40, dtype=torch.float32)
    index = some_index(logits)

    @torch.compile(fullgraph=True, dynamic=dynamic, backend="aot_eager")
    def compiled(z, i):
        return bag_of_coins(z, index=i)

    with use(path):
        assert_same(compiled(logits, index), bag_of_coins(logits, index=index), 3e-6)


def test_vmap_is_a_loop():
    logits = random_logits(4, 5, 7)
    index = some_index(logits)
    mapped = vmap(lambda z, i: tuple(bag_of_coins(z, index=i)))(logits, index)
    looped = [bag_of_coins(z, index=i) for z, i in zip(logits, index, strict=True)]
    for value, *parts in zip(mapped, *looped, strict=True):
        torch.testing.assert_close(value, torch.stack(parts), rtol=1e-12, atol=1e-14, equal_nan=True)
    slopes = vmap(torch.func.grad(lambda z, i: bag_of_coins(z, index=i).loss))(logits[0], index[0])
    leaf = logits[0].clone().requires_grad_()
    bag_of_coins(leaf, index=index[0]).loss.sum().backward()
    torch.testing.assert_close(slopes, leaf.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stays_on_the_gpu_and_reads_nothing_back(dtype):
    with FakeTensorMode(), NoHostSync():
        logits, index = torch.empty(8, 128256, device="cuda", dtype=dtype), torch.empty(8, device="cuda").long()
        for x in bag_of_coins(logits, index=index):
            assert x.device.type == "cuda"
            assert x.shape == (8,)
    logits = random_logits(3, 4099, dtype=dtype)
    with NoHostSync():
        bag_of_coins(logits, index=torch.tensor([0, 1, 2]))


def test_blocks_are_the_whole(monkeypatch):
    logits = random_logits(40, 30)
    index = some_index(logits)
    whole = bag_of_coins(logits, index=index)
    monkeypatch.setattr("torch_boc.core.blocks.CPU_ELEMENTS_PER_THREAD", 64)
    leaf = logits.clone().requires_grad_()
    with use("torch"):
        assert_same(bag_of_coins(logits, index=index), whole)
        bag_of_coins(leaf, index=index).loss.sum().backward()
    monkeypatch.undo()
    other = logits.clone().requires_grad_()
    bag_of_coins(other, index=index).loss.sum().backward()
    torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (torch.tensor([0]), ValueError, "expected target of shape"),
        (torch.tensor([0.0, 1.0]), TypeError, "integer class indices"),
        ([0, 1], TypeError, "expected target as a torch.Tensor"),
        (torch.tensor([True, False]), TypeError, "integer class indices"),
    ],
)
def test_bad_index(index, error, message):
    with pytest.raises(error, match=message.replace("target", "index")):
        bag_of_coins(torch.zeros(2, 3), index=index)


def test_any_integer_dtype():
    logits = random_logits(3, 200)
    index = torch.tensor([1, 150, 199])
    expected = bag_of_coins(logits, index=index)
    for dtype in (torch.uint8, torch.int32):
        assert_same(bag_of_coins(logits, index=index.to(dtype)), expected)


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
