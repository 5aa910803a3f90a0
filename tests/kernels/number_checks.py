"""Tallies, columns and histograms of the Triton kernels against torch's operations. Run by `test_numbers.py`.

The expected values come from the CPU, in float64, within `use("torch")`: never from the kernels themselves.
"""

import pytest
import torch
from torch_boc.functional.tallies import empty_tally
from torch_boc.kernels.triton.columns import QUANTITIES

from tests.kernels.cases import DEVICE, make_logits, odd_rows
from tests.kernels.recorded import watch
from torch_boc.functional import gather
from torch_boc.functional.columns import columns_of
from torch_boc.functional.histogram import score_histograms
from torch_boc.functional.registry import rank
from torch_boc.functional.tally import gap_tally, tally
from torch_boc.kernels import use
from torch_boc.kernels.triton import launch_numbers

LIMIT = 5e-6  # of sums in float32
P_LIMIT = 2e-4  # rounding in the odds changes a p-value by the number of trials times as much
COLUMNS = ("prediction", "confidence", "dominance", "gap", "forced_gap", "free_gap", "concentration", "p_value",
           "log_p_value", "energy", "logit_gap")  # fmt: skip
SCORES = {
    "msp": ("odds", -1), "energy": ("energy", 1), "max_logit": ("top", 1), "entropy": ("entropy", 1),
    "logit_gap": ("logit_gap", 1), "dominance": ("loss", -1), "gap": ("gap", -1), "log_odds": ("log_odds", 1),
    "log_p_value": ("log_p_value", 1), "concentration": ("concentration", -1),
    "structural_score": ("log_p_value", -1),
}  # fmt: skip


def batch(rows, classes, dtype=torch.float32):
    """Logits with undefined, flat and sharp rows among them, and targets of which some are bad and some ignored."""
    logits = torch.cat([odd_rows(max(classes, 3), dtype)[:, :classes], make_logits(rows - 10, classes, dtype)])
    logits = torch.cat([logits, make_logits(1, classes, dtype) * 30, make_logits(1, classes, dtype) * 1e-4])
    target = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(rows)).to(DEVICE)
    target[8:13] = torch.tensor([-1, classes, -100, -100, 2**40], device=DEVICE)
    return logits, target


def evidence(logits, target=None, **options):
    """By torch's operations, on the CPU, in float64."""
    with use("torch"):
        return gather(logits.cpu().double(), None if target is None else target.cpu(), **options)


def fresh_states(bins):
    return empty_tally(bins, DEVICE)


def assert_same_tally(states, expected, limit=LIMIT):
    for name, actual, other in zip(expected._fields, states, expected, strict=True):
        if actual.dtype == torch.int64:
            assert actual.tolist() == other.tolist(), name
        elif name == "sums":
            others = [i for i in range(13) if i != 7]
            torch.testing.assert_close(actual.cpu()[others], other[others], rtol=limit, atol=1e-12)
            torch.testing.assert_close(actual.cpu()[7], other[7], rtol=max(limit, P_LIMIT), atol=0)
        else:
            torch.testing.assert_close(actual.cpu(), other, rtol=limit, atol=1e-12)


@pytest.mark.parametrize(
    ("classes", "rows", "bins", "trials", "alpha", "dtype"),
    [
        (2, 40, 15, 100, 0.05, torch.float32),
        (3, 130, 1, 7, 0.0, torch.float32),
        (10, 300, 15, 100, 0.05, torch.float32),
        (10, 40, 40, 1001, 0.3, torch.bfloat16),
        (100, 140, 15, 1, 1.0, torch.float64),
        (17000, 20, 3, 100, 0.05, torch.float32),
    ],
)
def test_the_tally(classes, rows, bins, trials, alpha, dtype):
    logits, target = batch(rows, classes, dtype)
    with use("torch"):
        expected = tally(evidence(logits, target, trials=trials, ignore_index=-100), bins=bins, alpha=alpha)
    states = fresh_states(bins)
    launch_numbers.tally(logits, target, -100, trials, alpha, states)
    assert_same_tally(states, expected, 1e-11 if dtype == torch.float64 else LIMIT)


def test_without_targets_and_in_place_of_what_was_there():
    logits, _ = batch(40, 10)
    with use("torch"):
        expected = tally(evidence(logits))
    states = fresh_states(15)
    places = [state.data_ptr() for state in states]
    for _ in range(2):
        launch_numbers.tally(logits.unflatten(0, (4, 10)), None, None, 100, 0.05, states)
    assert [state.data_ptr() for state in states] == places
    assert_same_tally(states, type(expected)(*(2 * x for x in expected)))


VIEWS = {
    "without the last token": lambda z: torch.nn.functional.pad(z, (0, 0, 0, 1))[:, :-1],
    "classes first": lambda z: z.mT.contiguous().mT,
    "part of a sequence, classes first": lambda z: torch.nn.functional.pad(z, (0, 0, 3, 1)).mT.contiguous().mT[:, 3:-1],
    "every other class": lambda z: z.repeat_interleave(2, -1)[..., ::2],
}


@pytest.mark.parametrize("cut", VIEWS.values(), ids=VIEWS.keys())
def test_the_tally_of_views(cut):
    """Targets are found where their logits are."""
    logits, target = batch(60, 10)
    with use("torch"):
        expected = tally(evidence(logits, target, ignore_index=-100))
    view = cut(logits.unflatten(0, (3, 20)))
    assert not view.is_contiguous()
    states = fresh_states(15)
    launch_numbers.tally(view, target.unflatten(0, (3, 20)), -100, 100, 0.05, states)
    assert_same_tally(states, expected)


def test_no_rows_change_nothing():
    states = fresh_states(15)
    launch_numbers.tally(make_logits(0, 10), None, None, 100, 0.05, states)
    assert not any(state.any() for state in states)
    assert [x.shape for x in launch_numbers.columns(make_logits(0, 10), ["prediction", "gap"], 100)] == [(0,), (0,)]


def test_many_blocks_of_one_program(monkeypatch):
    """As for millions of rows: each program takes several blocks."""
    monkeypatch.setattr(launch_numbers, "MOST_PROGRAMS", 2)
    logits, target = batch(700, 5)
    with use("torch"):
        expected = tally(evidence(logits, target, ignore_index=-100))
    states = fresh_states(15)
    launch_numbers.tally(logits, target, -100, 100, 0.05, states)
    assert_same_tally(states, expected)


@pytest.mark.parametrize("classes", [2, 10])
def test_the_tally_of_evidence(classes):
    logits, target = batch(140, classes)
    known = evidence(logits, target, ignore_index=-100)
    with use("torch"):
        expected = tally(known, bins=15)
    states = fresh_states(15)
    coins, given = [x.to(DEVICE) for x in known.coins], (known.target, known.distance, known.counted)
    launch_numbers.tally_evidence(coins, *(x.to(DEVICE) for x in given), classes, 100, 0.05, states)
    assert_same_tally(states, expected, 1e-11)


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize(("part", "classes"), [("total", 2), ("total", 40), ("forced", 5), ("free", 5)])
def test_the_gap(part, classes, per_class):
    logits, target = batch(140, classes)
    with use("torch"):
        expected = gap_tally(evidence(logits, target, ignore_index=-100), part=part, per_class=per_class)
    states = [torch.zeros_like(x, device=DEVICE) for x in expected]
    launch_numbers.gap_tally(logits, target, -100, part, states)
    torch.testing.assert_close(states[0].cpu(), expected[0], rtol=LIMIT, atol=1e-12)
    assert [x.tolist() for x in states[1:]] == [x.tolist() for x in expected[1:]]


@pytest.mark.parametrize(("classes", "dtype"), [(2, torch.float32), (10, torch.bfloat16), (1025, torch.float64)])
def test_columns(classes, dtype):
    logits, _ = batch(20, classes, dtype)
    with use("torch"):
        expected = columns_of(evidence(logits, extras=True, trials=30), COLUMNS)
    found = launch_numbers.columns(logits.unflatten(0, (4, 5)), COLUMNS, 30)
    limit = 1e-11 if dtype == torch.float64 else LIMIT
    for name, value in zip(COLUMNS, found, strict=True):
        assert value.shape == (4, 5)
        rtol = max(limit, P_LIMIT) if "p_value" in name else limit
        torch.testing.assert_close(
            value.flatten().cpu(), expected[name], rtol=rtol, atol=1e-7 if limit > 1e-9 else 1e-12, equal_nan=True
        )


@pytest.mark.parametrize(("classes", "dtype"), [(2, torch.float32), (10, torch.bfloat16), (1025, torch.float64)])
def test_the_log_odds(classes, dtype):
    """Also of rows whose odds underflow in float64, and of one without rivals."""
    logits, _ = batch(20, classes, dtype)
    logits = torch.cat([logits, logits[-3:]])
    logits[-3:, 0] = torch.tensor([900.0, 1e4, 5.0])
    logits[-1, 1:] = -torch.inf
    (found,) = launch_numbers.columns(logits, ["log_odds"], 1)
    assert found[-1] == torch.inf
    expected = evidence(logits, extras=["log_odds"]).log_odds
    exact = {"rtol": 1e-11, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-6, "atol": 2e-7}
    torch.testing.assert_close(found.cpu(), expected, **exact, equal_nan=True)


@pytest.mark.parametrize("name", ["prediction", *QUANTITIES])
def test_a_column_is_the_same_alone_and_among_others(name):
    logits, _ = batch(20, 5)
    names = ["prediction", *QUANTITIES]
    together = dict(zip(names, launch_numbers.columns(logits, names, 30), strict=True))
    (alone,) = launch_numbers.columns(logits, [name], 30)
    torch.testing.assert_close(alone, together[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("one_flag", [False, True])
def test_scores_are_counted_in_bins(one_flag):
    bins, (logits, _) = 2**12, batch(140, 10, torch.float64)
    flags = torch.ones((), dtype=torch.bool) if one_flag else torch.arange(140) % 3 == 0
    with use("torch"):
        ranked = torch.stack([*rank(evidence(logits, extras=True), SCORES).values()])
    expected = score_histograms(ranked, flags.expand(140), bins)
    histogram = torch.ones(expected.shape, dtype=torch.int64, device=DEVICE)
    invalid = torch.tensor(5, device=DEVICE)
    launch_numbers.count_scores(logits, flags.to(DEVICE), *zip(*SCORES.values(), strict=True), 100, histogram, invalid)
    assert invalid.item() == 5 + ranked.isnan().any(0).sum().item()
    # A score at the edge of a bin may be rounded to either side.
    assert ((histogram.cpu() - 1) - expected).abs().sum() <= 2
    assert (histogram.cpu() - 1).sum() == expected.sum()


def test_every_run_gives_the_same_bits():
    logits, target = batch(300, 10)
    results = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2 if DEVICE == "cpu" else 50):
            states = fresh_states(15)
            launch_numbers.tally(logits, target, -100, 100, 0.05, states)
            results.append([state.tolist() for state in states])
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(result == results[0] for result in results)


def test_the_launches(monkeypatch):
    started = watch(monkeypatch)
    logits, target = batch(20, 10)
    gap = torch.zeros(1, dtype=torch.float64, device=DEVICE)
    count = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    launch_numbers.tally(logits, target, -100, 100, 0.05, fresh_states(15))
    assert started == ["short_rows", "spread", "tally", "collect"]
    started.clear()
    launch_numbers.columns(logits, COLUMNS, 100)
    assert started == ["short_rows", "spread", "columns"]
    started.clear()
    histogram = torch.zeros(2, len(SCORES), 2**12, dtype=torch.int64, device=DEVICE)
    launch_numbers.count_scores(logits, target > 3, *zip(*SCORES.values(), strict=True), 100, histogram, count)
    assert started == ["short_rows", "spread", "count_scores"]
    started.clear()
    launch_numbers.gap_tally(logits, target, -100, "total", (gap, count, count.clone()))
    assert started == ["short_rows", "gap_tally", "collect"]


def test_states_that_do_not_fit_are_refused():
    states = list(fresh_states(15))
    states[4] = states[4].T.contiguous().T
    with pytest.raises(ValueError, match="expected contiguous states on one device"):
        launch_numbers.tally(make_logits(3, 5), None, None, 100, 0.05, states)
