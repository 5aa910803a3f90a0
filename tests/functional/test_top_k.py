"""Bounds from the k largest log-probabilities: they contain the truth, are exact with all classes, and are tight."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatch import NoHostSync
from tests.functional.cases import random_logits
from torch_boc.functional import bag_of_coins, coins_from_top_k

# The true numbers, and how they lie between the two ends.
RISING, FALLING = ("loss",), ("dominance", "gap", "free_gap")


def top(logits, k):
    return logits.log_softmax(-1).topk(k, -1).values


def assert_between(logits, k):
    """The concentration is compared with more room, because its width of bounds may be tiny."""
    bounds, coins = coins_from_top_k(top(logits, k), num_classes=logits.shape[-1]), bag_of_coins(logits)
    torch.testing.assert_close(bounds.lower.odds, coins.odds, rtol=1e-9, atol=1e-12)
    for names, (low, high) in ((RISING, bounds), (FALLING, bounds[::-1])):
        for name in names:
            value, slack = getattr(coins, name), 1e-9 * getattr(coins, name).abs() + 1e-12
            assert (getattr(low, name) <= value + slack).all(), name
            assert (getattr(high, name) >= value - slack).all(), name
    for name in ("odds", "loss", "concentration", "free_gap"):
        assert getattr(bounds.upper, name).isfinite().all()


@given(st.data())
def test_bounds_contain_the_truth(data):
    classes = data.draw(st.integers(3, 40))
    scale, seed = data.draw(st.sampled_from([0.01, 1.0, 5.0, 30.0])), data.draw(st.integers(0, 10**6))
    assert_between(random_logits(5, classes, scale=scale, seed=seed), data.draw(st.integers(1, classes)))


def test_all_classes_give_the_coins_themselves():
    logits = random_logits(30, 12)
    coins = bag_of_coins(logits)
    for end in coins_from_top_k(logits.log_softmax(-1), num_classes=12):
        for name in ("prediction", "odds", "loss", "concentration", "free_gap"):
            torch.testing.assert_close(getattr(end, name), getattr(coins, name), rtol=1e-9, atol=1e-10)


def test_the_ends_are_reached():
    """By rows whose rest is even, and whose rest is on one class as likely as the last that is given."""
    even = torch.tensor([[4.0, 2.0, 1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    few = torch.tensor([[4.0, 2.0, 2.0, -math.inf, -math.inf, -math.inf]], dtype=torch.float64)
    for logits, end in ((even, 1), (few, 0)):
        bounds = coins_from_top_k(top(logits, 2), num_classes=6)
        torch.testing.assert_close(bounds[end].loss, bag_of_coins(logits).loss, rtol=1e-9, atol=0)
        assert bounds.lower.loss < bounds.upper.loss


def test_more_given_classes_never_widen_the_bounds():
    logits = random_logits(200, 30)
    widths = []
    for k in (1, 3, 10, 29, 30):
        bounds = coins_from_top_k(top(logits, k), num_classes=30)
        widths.append(bounds.upper.loss - bounds.lower.loss)
    assert all((wide + 1e-12 >= narrow).all() for wide, narrow in pairwise(widths))
    assert widths[-1].abs().max() < 1e-12


def test_about_another_class_than_the_largest():
    logits = random_logits(50, 9)
    values, classes = logits.log_softmax(-1).topk(4, -1)
    index = torch.arange(50) % 4
    bounds = coins_from_top_k(values, num_classes=9, index=index)
    own = classes.gather(-1, index[:, None])
    u = (logits - logits.gather(-1, own)).exp().scatter(-1, own, 0.0)
    loss = (u / (1 + u)).sum(-1) / 8
    assert (bounds.lower.loss <= loss + 1e-9).all()
    assert (bounds.upper.loss >= loss - 1e-9).all()
    torch.testing.assert_close(bounds.lower.odds, u.sum(-1), rtol=1e-9, atol=0)
    torch.testing.assert_close(bounds.lower.confidence, logits.softmax(-1).gather(-1, own).squeeze(-1))
    assert bounds.lower.concentration.isnan().tolist() == (index > 0).tolist()


@pytest.mark.parametrize(("k", "classes"), [(1, 9), (1, 2), (4, 9), (9, 9)])
def test_a_token_id_is_no_place_among_the_k(k, classes):
    values = top(random_logits(3, classes), k)
    with NoHostSync():
        bounds = coins_from_top_k(values, num_classes=classes, index=torch.tensor([345, 0, -1]))
    for end in bounds:
        for name in ("odds", "loss", "concentration", "free_gap", "confidence", "gap"):
            assert getattr(end, name).isnan().tolist() == [True, False, True], name


def test_rows_with_fewer_and_in_any_order():
    values = top(random_logits(20, 15), 6)
    short = values.clone()
    short[:, 4:] = -math.inf
    expected = coins_from_top_k(values[:, :4], num_classes=15)
    for found in (coins_from_top_k(short, num_classes=15), coins_from_top_k(short.flip(-1), num_classes=15)):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.loss, other.loss)


def test_rounded_logarithms_keep_the_given_rivals():
    """In float32 the logarithm of 1 - 1e-9 is 0, but the rivals still tell the odds."""
    values = torch.tensor([[0.0, -21.0, -22.0]])
    lower, upper = coins_from_top_k(values, num_classes=50_000)
    expected = math.exp(-21) + math.exp(-22)
    assert lower.odds.item() == pytest.approx(expected, rel=1e-6)
    assert 0 < lower.loss <= upper.loss


def outside(logits, k):
    """The k largest log-probabilities and one more of a class that is not among them, with the cap of the rest."""
    values, classes = logits.log_softmax(-1).sort(-1, descending=True)
    emitted = torch.arange(len(logits)) % (logits.shape[-1] - k) + k
    given = torch.cat([values[:, :k], values.gather(-1, emitted[:, None])], -1)
    return given, values[:, k - 1], classes.gather(-1, emitted[:, None])


def assert_holds(bounds, loss):
    """What is left of 1 is rounded to 1e-16, which is a u of 1e-16 times the odds for an unlikely class."""
    slack = 1e-9 * loss + 1e-12 + 1e-15 * bounds.upper.odds
    assert (bounds.lower.loss <= loss + slack).all()
    assert (bounds.upper.loss >= loss - slack).all()


@given(st.data())
def test_a_class_outside_of_the_largest_is_given_too(data):
    """As servers add the emitted token: about the largest class, and about the emitted one."""
    classes = data.draw(st.integers(4, 40))
    scale, seed = data.draw(st.sampled_from([0.01, 1.0, 5.0, 30.0])), data.draw(st.integers(0, 10**6))
    logits, k = random_logits(5, classes, scale=scale, seed=seed), data.draw(st.integers(1, classes - 2))
    given, cap, own = outside(logits, k)
    top = coins_from_top_k(given, num_classes=classes, cap=cap)
    assert_holds(top, bag_of_coins(logits).loss)
    torch.testing.assert_close(top.lower.odds, bag_of_coins(logits).odds, rtol=1e-9, atol=1e-12)
    u = (logits - logits.gather(-1, own)).exp().scatter(-1, own, 0.0)
    about = coins_from_top_k(given, num_classes=classes, cap=cap, index=torch.full((5,), k))
    assert_holds(about, torch.where(u.isinf(), 1.0, u / (1 + u)).sum(-1) / (classes - 1))


def test_nothing_known_of_those_left_out():
    """A class with more than half of the probability is the largest whatever the others are; another may not be."""
    logits = torch.tensor([[3.0, 1.0, 0.0, 0.0], [1.0, 0.9, 0.8, 0.7]], dtype=torch.float64)
    bounds = coins_from_top_k(logits.log_softmax(-1)[:, :1], num_classes=4, cap=torch.zeros(2))
    assert bounds.lower.concentration.isnan().tolist() == [False, True]
    assert bounds.upper.free_gap.isnan().tolist() == [False, True]
    assert_holds(bounds, bag_of_coins(logits).loss)


@pytest.mark.parametrize("floor", [-math.inf, -9999.0, -800.0])
def test_classes_without_a_chance(floor):
    """Their u is 0, and 0 of the rest is left for each: no NaN."""
    values = torch.tensor([[0.0, floor, floor]], dtype=torch.float64)
    for cap in (None, torch.tensor([floor])):
        for end in coins_from_top_k(values, num_classes=50_000, cap=cap):
            assert (end.odds.item(), end.loss.item(), end.concentration.item()) == (0.0, 0.0, 0.0)


IMPOSSIBLE = {
    "logits": [25.0, 22.0, 21.0],
    "more than 1": [math.log(0.7), math.log(0.3), math.log(0.05)],
    "no room for the rest": [-0.1, -9999.0, -math.inf],
    "all unlikely": [-800.0, -900.0, -9999.0],
}


@pytest.mark.parametrize("values", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
@pytest.mark.parametrize("classes", [3, 1000])
@pytest.mark.parametrize("index", [None, 0, 1])
def test_what_cannot_be_log_probabilities_is_nan(values, classes, index):
    """And the row beside it is as it was."""
    rows = torch.tensor([values, [math.log(0.7), math.log(0.2), math.log(0.1)]], dtype=torch.float64)
    place = None if index is None else torch.tensor([index, index])
    with NoHostSync():
        bounds = coins_from_top_k(rows, num_classes=classes, index=place)
    alone = coins_from_top_k(rows[1:], num_classes=classes, index=None if place is None else place[1:])
    for found, expected in zip(bounds, alone, strict=True):
        for name in ("odds", "loss", "concentration", "free_gap", "confidence", "gap"):
            assert getattr(found, name)[0].isnan(), name
            torch.testing.assert_close(getattr(found, name)[1:], getattr(expected, name), equal_nan=True)
