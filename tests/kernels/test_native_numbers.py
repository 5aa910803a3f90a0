"""The numbers of each row by the native library, against the path in torch's operations."""

import math

import pytest
import torch
from torch_boc.kernels.cpu.interface import describe

from tests import reference
from tests.functional.cases import confident_logits
from tests.kernels.cases import needs_native
from tests.kernels.native_cases import CLASSES, DTYPES, IGNORED, make_batch, native_evidence
from torch_boc.core.precision import accumulator
from torch_boc.core.rows import row_sums
from torch_boc.functional import bag_of_coins, gather
from torch_boc.functional.columns import columns_of
from torch_boc.functional.histogram import score_histograms
from torch_boc.functional.registry import rank
from torch_boc.kernels import use
from torch_boc.kernels.cpu import calls

pytestmark = needs_native
# Of sums in another order, relative to them; and of the concentration, absolute.
LIMIT = {torch.float32: (3e-6, 3e-6), torch.float64: (1e-9, 1e-9)}
# Below this, in float32, rounding x log2(e) alone costs more than that in exp(x).
SMALL = {torch.float32: 1e-26, torch.float64: 1e-300}
NUMBERS = ("odds", "loss", "concentration", "free_gap", "top", "surprise", "margin", "distance")
NUMBERS += ("log_odds", "tempered_loss", "top_margin", "gen")


def assert_same_numbers(actual, expected, dtype, name):
    rtol, atol = LIMIT[accumulator(dtype)]
    kind = (
        {"rtol": 0, "atol": atol}
        if name in ("concentration", "free_gap")
        else {"rtol": rtol, "atol": SMALL[accumulator(dtype)]}
    )
    if name == "log_odds":  # which are near 0 where the odds are near 1
        kind["atol"] = 0.1 * atol
    torch.testing.assert_close(actual, expected, **kind, equal_nan=True, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", CLASSES)
def test_the_evidence_of_a_batch(classes, dtype):
    batch = make_batch(classes, dtype)
    with use("torch"):
        expected = gather(batch.logits, batch.target, extras=True)
    actual = native_evidence(batch)
    assert actual.coins.prediction.tolist() == expected.coins.prediction.tolist() == batch.logits.argmax(-1).tolist()
    for name in NUMBERS:
        source = (actual.coins, expected.coins) if hasattr(actual.coins, name) else (actual, expected)
        assert_same_numbers(*(getattr(x, name) for x in source), dtype, name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", [2, 3, 17, 100, 1025])
def test_coins(classes, dtype):
    logits = make_batch(classes, dtype).logits
    with use("torch"):
        expected = bag_of_coins(logits)
    actual = type(expected)(*calls.coins_of(logits))
    assert actual.prediction.tolist() == expected.prediction.tolist()
    for name in ("odds", "loss", "concentration", "free_gap"):
        assert getattr(actual, name).dtype == accumulator(dtype)
        assert_same_numbers(getattr(actual, name), getattr(expected, name), dtype, name)
    if classes == 2:
        assert (actual.gap[4:] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", [2, 10, 48, 1025])
def test_row_sums(classes, dtype):
    logits = make_batch(classes, dtype).logits
    expected = row_sums(logits, extras=True)
    names = ("prediction", "top", "odds", "squares", "mass", "mass_squares", "surprise", "margin")
    actual = dict(zip(names, calls.row_sums(logits, True), strict=True))
    assert len(calls.row_sums(logits, False)) == 6
    for name, value in actual.items():
        assert value.dtype == getattr(expected, name).dtype
        if name == "mass_squares":  # of sharp rows the square of a very small number
            value, wanted = value.sqrt(), expected.mass_squares.sqrt()
        else:
            wanted = getattr(expected, name)
        assert_same_numbers(value, wanted, dtype, name)


@pytest.mark.parametrize("classes", [3, 10, 100, 1000])
@pytest.mark.parametrize("odds", [0.5, 1e-7, 1e-25])
def test_the_concentration_agrees_with_the_definition(classes, odds):
    logits = confident_logits(classes, odds, seed=classes).float()[None]
    expected = float(reference.probe(logits[0].tolist()).concentration)
    assert calls.coins_of(logits)[3].item() == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("spread", [1e-20, 1e-6, 1e-2])
@pytest.mark.parametrize("classes", [5, 100])
def test_the_concentration_of_logits_that_nearly_tie(classes, spread):
    """The float32 logits are small themselves, so that their distances are exact."""
    logits = spread * torch.rand(1, classes, generator=torch.Generator().manual_seed(classes))
    expected = float(reference.probe(logits[0].tolist()).concentration)
    assert calls.coins_of(logits)[3].item() == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("trials", [1, 2, 7, 100, 1000])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_columns(classes, trials):
    """All of them, of what the native library finds in the logits."""
    batch = make_batch(classes)
    evidence = native_evidence(batch, trials=trials)
    with use("torch"):
        columns = columns_of(evidence)
        scores = rank(evidence, ["max_logit", "entropy", "log_odds", "logit_gap_top"])
    expected = {**evidence.coins._asdict(), **columns, **scores, "top": scores["max_logit"]}
    expected |= {"tempered_loss": evidence.tempered_loss, "gen": evidence.gen}
    found = calls.columns(batch.logits, calls.QUANTITIES, trials)
    for name, value in zip(calls.QUANTITIES, found, strict=True):
        message = f"{name} is not what torch's operations give"
        torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-13, equal_nan=True, msg=message)


def test_a_few_columns_are_those_of_all():
    logits = make_batch(10).logits
    every = dict(zip(calls.QUANTITIES, calls.columns(logits, calls.QUANTITIES, 100), strict=True))
    groups = (["gap"], ["p_value", "prediction"], ["energy"], ["logit_gap", "odds"], ["entropy"], ["log_odds"], ["gen"])
    for names in groups:
        for name, value in zip(names, calls.columns(logits, names, 100), strict=True):
            torch.testing.assert_close(value, every[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("bins", [2, 2**10, 2**18])
@pytest.mark.parametrize("classes", [2, 10, 1025])
def test_scores_are_counted_in_bins(classes, bins):
    names = ["odds", "energy", "log_p_value", "gap", "concentration", "logit_gap", "entropy", "log_odds", "gen"]
    signs = [-1, 1, 1, -1, -1, 1, 1, 1, -1]
    logits, ood = make_batch(classes, rows=300).logits, torch.arange(300) % 3 == 0
    histogram, invalid = torch.ones(2, len(names), bins, dtype=torch.int64), torch.tensor(5)
    calls.count_scores(logits, ood, names, signs, 100, histogram, invalid)
    columns = calls.columns(logits, names, 100)
    scores = torch.stack([sign * column for sign, column in zip(signs, columns, strict=True)])
    expected = score_histograms(scores, ood, bins)
    assert torch.equal(histogram - 1, expected)
    assert int(invalid) - 5 == scores.isnan().any(0).sum() == 4


def test_one_flag_for_all_rows():
    logits, one = make_batch(10).logits, torch.zeros(2, 1, 64, dtype=torch.int64)
    calls.count_scores(logits, torch.tensor(True), ["odds"], [-1], 100, one, torch.tensor(0))
    each = torch.zeros_like(one)
    calls.count_scores(logits, torch.ones(len(logits), dtype=torch.bool), ["odds"], [-1], 100, each, torch.tensor(0))
    assert torch.equal(one, each)
    assert one[0].sum() == 0


STRIDES = {
    "every other row": (lambda z: z[::2], False),
    "part of each row": (lambda z: z[:, 3:-4], False),
    "the same row": (lambda z: z[9:10].expand(40, -1), False),
    "one row": (lambda z: z[9], False),
    "three axes": (lambda z: z[:64].unflatten(0, (4, 16)).transpose(0, 1), False),
    "part of three axes": (lambda z: z[:60].unflatten(0, (5, 12))[1:4, 2:7], False),
    "four axes in another order": (lambda z: z[:60].unflatten(0, (3, 4, 5)).transpose(0, 2), True),
    "classes first": (lambda z: z.T.contiguous().T, False),
    "pixels": (lambda z: z[:60].unflatten(0, (3, 4, 5)).movedim(-1, 1).contiguous().movedim(1, -1), False),
    "few pixels": (lambda z: z[:60].unflatten(0, (12, 5)).movedim(-1, 1).contiguous().movedim(1, -1), True),
    "every other class": (lambda z: z[:, ::2], True),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.parametrize("classes", [10, 40, 300])
def test_any_strides(classes, name, dtype):
    cut, copied = STRIDES[name]
    logits = cut(make_batch(classes, dtype).logits)
    assert (describe(logits)[0] is not logits) == copied
    rtol, atol = LIMIT[accumulator(dtype)]
    for value, expected in zip(calls.columns(logits, calls.QUANTITIES[:8], 100),
                               calls.columns(logits.contiguous(), calls.QUANTITIES[:8], 100), strict=True):  # fmt: skip
        torch.testing.assert_close(value, expected, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 10), (3, 0, 5), (0, 2000)])
def test_no_rows(shape):
    logits = torch.zeros(shape)
    assert [x.shape for x in calls.coins_of(logits)] == [shape[:-1]] * 5
    assert [x.shape for x in calls.columns(logits, ["gap", "prediction"], 100)] == [shape[:-1]] * 2
    assert calls.evidence(logits, extras=())[6:] == (None,) * 7
    assert [x.shape for x in calls.row_sums(logits, True)] == [shape[:-1]] * 8


def test_the_distance_of_a_target_that_is_no_class_is_0():
    logits = torch.tensor([[1.0, 3.0, -math.inf]] * 4)
    distance = calls.evidence(logits, extras=(), target=torch.tensor([0, 2, IGNORED, 3]))[8]
    assert distance.tolist() == [2.0, math.inf, 0.0, 0.0]


def test_too_many_trials_are_refused():
    with pytest.raises(ValueError, match="expected 1 to 1,000 trials for the native library, got 1,001"):
        calls.columns(torch.zeros(2, 3), ["p_value"], 1001)
    assert calls.columns(torch.zeros(2, 3), ["gap"], 1001)[0].shape == (2,)
