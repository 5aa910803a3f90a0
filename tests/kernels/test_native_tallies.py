"""What the native library adds to the states of metrics, against the path in torch's operations."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.kernels.cases import needs_native
from tests.kernels.native_cases import (
    CLASSES,
    DTYPES,
    IGNORED,
    Batch,
    assert_same_tally,
    make_batch,
    native_evidence,
    native_tally,
)
from torch_boc.functional import gather
from torch_boc.functional.tallies import GAP_BINS, empty_tally, gap_edges
from torch_boc.functional.tally import gap_tally, tally
from torch_boc.kernels import use
from torch_boc.kernels.cpu import calls

pytestmark = needs_native
over_classes = pytest.mark.parametrize("classes", CLASSES)


def tally_by_numbers(evidence, *, bins=15, trials=100, alpha=0.05):
    states = empty_tally(bins)
    labels = evidence.target, evidence.distance, evidence.counted
    calls.tally_evidence(evidence.coins, *labels, evidence.num_classes, trials, alpha, states)
    return states


def tally_by_torch(evidence, *, bins=15, trials=100, alpha=0.05):
    with use("torch"):
        return tally(evidence._replace(trials=trials), bins=bins, alpha=alpha)


@pytest.mark.parametrize("trials", [1, 2, 7, 100, 1000])
@over_classes
def test_numbers_are_tallied_as_by_torch(classes, trials):
    evidence = native_evidence(make_batch(classes, rows=150))
    assert_same_tally(tally_by_numbers(evidence, trials=trials), tally_by_torch(evidence, trials=trials))


@pytest.mark.parametrize("bins", [1, 10, 15, 40])
@pytest.mark.parametrize("alpha", [0.0, 0.05, 1.0])
def test_any_bins_and_level(bins, alpha):
    evidence, how = native_evidence(make_batch(10)), {"bins": bins, "alpha": alpha}
    assert_same_tally(tally_by_numbers(evidence, **how), tally_by_torch(evidence, **how))


@pytest.mark.parametrize("missing", [("target", "distance"), ("counted",), ("target", "distance", "counted")])
def test_numbers_without_targets(missing):
    evidence = native_evidence(make_batch(10))._replace(**dict.fromkeys(missing))
    assert_same_tally(tally_by_numbers(evidence), tally_by_torch(evidence))


@pytest.mark.parametrize("dtype", DTYPES)
@over_classes
def test_logits_are_tallied_as_their_numbers(classes, dtype):
    batch = make_batch(classes, dtype)
    assert_same_tally(native_tally(batch), tally_by_numbers(native_evidence(batch)), rtol=1e-12)


@over_classes
def test_logits_in_float64_are_tallied_as_by_torch(classes):
    batch = make_batch(classes, torch.float64)
    with use("torch"):
        expected = tally_by_torch(gather(*batch, ignore_index=IGNORED))
    assert_same_tally(native_tally(batch), expected)


@pytest.mark.parametrize("ignore_index", [None, 3])
def test_targets_that_are_ignored_and_targets_that_are_no_class(ignore_index):
    batch = make_batch(10, torch.float64)
    with use("torch"):
        expected = tally_by_torch(gather(*batch, ignore_index=ignore_index))
    actual = native_tally(batch, ignore_index=ignore_index)
    assert_same_tally(actual, expected)
    assert actual.counts[5] == 4  # two classes out of range and two of three -100: the third has an undefined row


def test_logits_without_targets():
    logits = make_batch(10, torch.float64).logits
    states = empty_tally()
    calls.tally(logits, None, None, 100, 0.05, states)
    with use("torch"):
        assert_same_tally(states, tally_by_torch(gather(logits)))


def test_batches_add_up():
    batch = make_batch(10, rows=200)
    states = empty_tally()
    for first, last in ((0, 1), (1, 66), (66, 66), (66, 200)):
        calls.tally(batch.logits[first:last], batch.target[first:last], IGNORED, 100, 0.05, states)
    assert_same_tally(states, native_tally(batch), rtol=1e-12)


def test_gaps_at_the_edges_of_the_histogram():
    """Numbers whose gap is an edge, a little below and above; torch's logarithm decides."""
    edges = torch.tensor(gap_edges(), dtype=torch.float64)
    gaps = torch.cat([edges.nextafter(torch.zeros(())), edges, edges.nextafter(torch.ones(()))])
    evidence = native_evidence(make_batch(10, rows=len(gaps)))
    loss = torch.zeros_like(gaps)
    coins = evidence.coins._replace(odds=gaps / (1 - gaps), loss=loss, concentration=loss, free_gap=loss)
    valid = coins.odds.isfinite()
    coins = type(coins)(*(x[valid] for x in coins))
    evidence = evidence._replace(coins=coins, counted=None, target=None, distance=None)
    actual, expected = tally_by_numbers(evidence).gap_histogram, tally_by_torch(evidence).gap_histogram
    # One ulp on either side of an edge is within the error of a logarithm: the next bin is as good.
    assert actual.sum() == expected.sum() == len(coins.odds)
    assert (actual.cumsum(0) - expected.cumsum(0)).abs().max() <= 1
    assert len(actual) == GAP_BINS


@pytest.mark.parametrize("part", ["total", "forced", "free"])
@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("classes", [2, 10, 1025])
def test_gaps(classes, part, per_class):
    batch = make_batch(classes)
    size = classes if per_class else 1
    states = torch.ones(size, dtype=torch.float64), torch.ones(size, dtype=torch.int64), torch.tensor(1)
    calls.gap_tally(*batch, IGNORED, part, states)
    expected = gap_tally(native_evidence(batch), part=part, per_class=per_class)
    for value, other in zip(states, expected, strict=True):
        torch.testing.assert_close(value - 1, other, rtol=1e-12, atol=1e-13)


def test_gaps_of_all_samples():
    batch = make_batch(10)
    states = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.int64), torch.tensor(0)
    calls.gap_tally(batch.logits, None, None, "total", states)
    expected = gap_tally(native_evidence(batch, ignore_index=None))
    torch.testing.assert_close(states, expected, rtol=1e-12, atol=0)
    assert states[2] == 4


@pytest.fixture
def large():
    """More than one thread takes at once, of few and of many classes."""
    return [make_batch(classes, rows=rows) for classes, rows in ((10, 9000), (1000, 130))]


def test_several_threads_and_one_give_the_same(large):
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append([(native_tally(batch), calls.coins_of(batch.logits)) for batch in large])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for (one_tally, one_coins), (other_tally, other_coins) in zip(results[0], other, strict=True):
            assert_same_tally(other_tally, one_tally, rtol=1e-12)
            for x, y in zip(one_coins, other_coins, strict=True):
                torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)


def test_python_threads_at_once(large):
    """Each counts into its own states, and all of them into one histogram of their own."""
    expected = [native_tally(batch) for batch in large]

    def work(_):
        return [native_tally(batch) for batch in large]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(work, range(8)):
            for one, other in zip(found, expected, strict=True):
                assert_same_tally(one, other, rtol=1e-12)


def test_states_of_another_dtype_are_refused():
    batch, states = Batch(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)), empty_tally()
    with pytest.raises(TypeError, match=r"expected contiguous states in torch\.float64, got torch\.float32"):
        calls.tally(*batch, None, 100, 0.05, states._replace(sums=states.sums.float()))
    with pytest.raises(TypeError, match=r"expected contiguous states in torch\.int64"):
        calls.tally(*batch, None, 100, 0.05, states._replace(bin_counts=states.bin_counts.T.contiguous().T))


def test_no_rows_change_nothing():
    states = empty_tally()
    calls.tally(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64), None, 100, 0.05, states)
    nothing = (torch.zeros(0, dtype=torch.int64), *torch.zeros(4, 0, dtype=torch.float64))
    calls.tally_evidence(nothing, None, None, None, 5, 100, 0.05, states)
    assert_same_tally(states, empty_tally())
