"""Short HTML for notebooks: text stays text, and a display never raises."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode

from tests.report.cases import Outline
from torch_boc.core.coins import SHOWN
from torch_boc.core.display import decimals, note, picture, sentence, shown_or_none, table
from torch_boc.functional import bag_of_coins

EVIL = "<script>'\"&"


def test_text_cannot_write_html():
    made = note(sentence(EVIL), table(EVIL, [EVIL, "b"], [[EVIL, (EVIL, EVIL)]]), picture(b"x", EVIL, 4.6))
    outline = Outline(made)
    assert not outline.all("script")
    assert outline.text.count(EVIL) == 6
    assert outline.all("img")[0]["alt"] == EVIL


def test_an_interval_stands_on_its_own_line():
    assert "<td>1.0<small>0.9 to 1.1</small></td>" in table("t", ["a", "b"], [["x", ("1.0", "0.9 to 1.1")]])
    assert ".boc-note small { display: block" in note()


def test_numbers():
    assert decimals(1234.5, 1) == "1,234.5"
    assert decimals(-float("inf")) == "−∞"


def test_an_error_is_no_error():
    @shown_or_none
    def broken():
        raise RuntimeError

    assert broken() is None


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5), (1000, 5)])
def test_coins_show_their_first_rows(shape):
    coins = bag_of_coins(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    outline = Outline(coins._repr_html_())
    rows = coins.prediction.numel()
    assert len(outline.all("tr")) == 1 + min(rows, SHOWN) + 2 * (rows > SHOWN)
    assert f"Coins of {rows:,} row" in outline.text
    if rows:
        assert decimals(float(coins.gap.reshape(-1)[0])) in outline.text
    if rows > SHOWN:
        assert decimals(float(coins.confidence.double().mean())) in outline.text


def test_means_are_those_of_the_valid_rows():
    logits = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    expected = decimals(float(bag_of_coins(logits[:18]).gap.double().mean()))
    logits[18:] = float("nan")
    shown = Outline(bag_of_coins(logits)._repr_html_()).text
    assert "mean of 18, 2 with NaN left out" in shown
    assert expected in shown.partition("mean of 18")[2]
    assert "mean of 0, 9 with NaN left out" in bag_of_coins(torch.full((9, 3), float("nan")))._repr_html_()


class NoFloat64(TorchFunctionMode):
    """As on a device without float64: only what was moved to the CPU can be made wider."""

    def __init__(self):
        super().__init__()
        self.moved = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.double and not any(x is args[0] for x in self.moved):
            raise TypeError("this device has no float64")
        result = function(*args, **(kwargs or {}))
        if function is torch.Tensor.cpu:
            self.moved.append(result)
        return result


def test_coins_on_a_device_without_float64():
    coins = bag_of_coins(torch.randn(20, 5))
    with NoFloat64():
        assert coins._repr_html_() is not None


def test_coins_without_values_are_left_to_the_repr():
    with FakeTensorMode():
        fake = bag_of_coins(torch.zeros(3, 4))
    assert fake._repr_html_() is None
    meta = type(fake)(*(torch.empty(3, device="meta") for _ in fake))
    assert meta._repr_html_() is None


def test_a_subclass_of_tensors_is_not_read():
    """A tensor that is spread over processes would make them wait for each other."""

    class Spread(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise AssertionError(f"{function} was called")

    coins = bag_of_coins(torch.zeros(3, 4))
    assert type(coins)(*(x.as_subclass(Spread) for x in coins))._repr_html_() is None


def test_coins_with_a_gradient():
    assert bag_of_coins(torch.randn(2, 3).requires_grad_())._repr_html_() is not None
