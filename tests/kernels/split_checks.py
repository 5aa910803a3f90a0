"""Few long rows that several programs share: the checks of whole rows hold for them too. Run by `test_kernels.py`."""

import pytest
import torch

from tests.kernels import backward, forward
from tests.kernels.cases import DEVICE, DTYPES, UNDEFINED, make_logits, odd_rows, sums
from tests.kernels.number_checks import evidence
from tests.kernels.recorded import watch
from torch_boc.kernels.triton import launch, launch_columns
from torch_boc.kernels.triton.geometry import parts_of
from torch_boc.kernels.triton.parts import SOME_PARTS

over_dtypes = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture(autouse=True)
def processors(monkeypatch):
    """So many that rows of 17,000 classes have five parts, which is as many as they can have."""
    monkeypatch.setattr(launch, "processors", lambda device: 40)


def test_rows_are_split(monkeypatch):
    started = watch(monkeypatch)
    leaf = make_logits(3, 17000).requires_grad_()
    sums(leaf).odds.sum().backward()
    assert started == ["long_rows"] * 3 + ["spread"] * 2 + ["long_gradients"] * 2


@pytest.mark.parametrize(
    ("processors", "parts", "dtype"),
    [(8, 4, torch.float32), *((24, 12, x) for x in DTYPES), (10_000, 13, torch.float32)],
)
def test_sums(processors, parts, dtype, monkeypatch):
    """Also where parts have more than one block, or none."""
    assert parts_of(2, 50257, processors) == parts
    monkeypatch.setattr(launch, "processors", lambda device: processors)
    forward.assert_same_sums(make_logits(2, 50257, dtype))


def test_sums_without_extras():
    forward.assert_same_sums(make_logits(3, 16385), extras=False)


@pytest.mark.parametrize("cut", forward.STRIDES.values(), ids=forward.STRIDES.keys())
def test_any_strides(cut):
    forward.assert_same_sums(cut(make_logits(7, 17000)))


@over_dtypes
def test_undefined_rows_and_ties(dtype):
    """The first NaN comes before all tops, also if another part has them."""
    logits = odd_rows(17001, dtype)
    logits[1, 17001 // 2 + 1 :] = torch.nan
    logits[2, [5000, 5002, 17000]] = torch.nan
    actual = sums(logits, extras=True)
    for value in actual[1:]:
        assert value.isnan().tolist() == UNDEFINED
    assert actual.prediction.tolist() == logits.cpu().argmax(-1).tolist()
    forward.assert_same_sums(logits[4:])


@over_dtypes
def test_the_prediction_is_the_first_of_several_tops(dtype):
    logits = forward.tied_rows(17001, dtype)
    assert sums(logits).prediction.tolist() == logits.cpu().argmax(-1).tolist()


@pytest.mark.parametrize(
    ("scale", "dtype"), [*((1.0, x) for x in DTYPES), *((x, torch.float32) for x in (1e-20, 1e-3))]
)
def test_the_sums_of_flat_and_of_sharp_rows(scale, dtype):
    logits = make_logits(3, 17000, dtype, scale=scale)
    logits[0, 1] = -torch.inf
    logits[1, 9000] = logits[1].max() + 79.0
    logits[2, :12_000] = -torch.inf  # a part without any class
    logits[2, 15_000] = 160.0
    forward.assert_same_sums(logits)


def rows_of_any_odds(dtype):
    """Ordinary and flat rows, sharp rows up to those whose odds underflow in float64, and rows with rivals of -inf."""
    logits = make_logits(8, 17000, dtype)
    logits[1] *= 1e-3
    logits[2:7, 9000] = torch.tensor([90.0, 900.0, 1e4, 5.0, 1e3], dtype=dtype)
    logits[3, :12_000] -= 300.0  # the largest rivals of the parts are far apart
    logits[3, 9000] = 900.0
    logits[5, :9000] = logits[5, 9001:] = -torch.inf
    logits[6, 4096:9000] = logits[6, 9001:] = -torch.inf  # only the first part has rivals
    logits[7, ::2] = -torch.inf
    return logits


def assert_log_odds(found, logits):
    exact = {"rtol": 1e-11, "atol": 1e-12} if logits.dtype == torch.float64 else {"rtol": 1e-6, "atol": 2e-7}
    expected = evidence(logits, extras=["log_odds"]).log_odds
    torch.testing.assert_close(found.cpu(), expected, **exact, equal_nan=True)


@over_dtypes
def test_the_log_odds(dtype, monkeypatch):
    monkeypatch.setattr(launch, "processors", lambda device: 80)
    logits, started = torch.cat([rows_of_any_odds(dtype), odd_rows(17000, dtype)]), watch(monkeypatch)
    (found,) = launch_columns.columns(logits, ["log_odds"], 1)
    assert started == ["long_rows"] * 3 + ["spread"] * 2 + ["columns"]
    assert found[5] == torch.inf
    assert found[8:].isnan().tolist() == UNDEFINED
    assert_log_odds(found, logits)


def test_the_log_odds_of_rows_that_lie_across():
    """One program reads several of them."""
    logits = rows_of_any_odds(torch.float32).T.contiguous().T
    (found,) = launch_columns.columns(logits, ["log_odds"], 1)
    assert_log_odds(found, logits)


def test_the_log_odds_of_rows_of_more_parts_than_are_joined_at_once(monkeypatch):
    monkeypatch.setattr(launch, "processors", lambda device: 80)
    logits = make_logits(2, 140_000)
    assert parts_of(2, 140_000, 80) > SOME_PARTS.value
    logits[0, 9000] = 900.0
    logits[0, :9000] = -torch.inf
    logits[1, 139_999] = 950.0  # in the last part, as is its largest rival
    logits[1, 139_990] = 90.0
    (found,) = launch_columns.columns(logits, ["log_odds"], 1)
    assert_log_odds(found, logits)


@pytest.mark.parametrize(
    ("dtype", "names"),
    [*((x, backward.EVERY) for x in DTYPES), (torch.float32, backward.FEW), (torch.float32, backward.SPREAD)],
)
def test_gradients(dtype, names):
    backward.assert_same_gradients(make_logits(3, 17001, dtype, scale=1.0), names)


def test_gradients_of_rows_with_strides():
    logits = make_logits(4, 17000)
    for view in (logits[::2], logits[:, 3:-4], logits.T.contiguous().T, logits.unflatten(0, (2, 2))[:, :1]):
        backward.assert_same_gradients(view)


def test_an_undefined_row_has_no_gradient():
    logits = odd_rows(17001, torch.float32)[:4]
    found = backward.gradients(logits, dict.fromkeys(backward.EVERY, torch.ones(4, device=DEVICE)), sums)
    assert found.isnan().all()


def test_every_run_gives_the_same_bits():
    logits = make_logits(3, 17001)
    first, *others = (sums(logits, extras=True) for _ in range(3))
    for other in others:
        for value, expected in zip(other, first, strict=True):
            assert torch.equal(value, expected)
    logits = rows_of_any_odds(torch.float32)
    first, second = (launch_columns.columns(logits, ["log_odds"], 1) for _ in range(2))
    assert torch.equal(*first, *second)
