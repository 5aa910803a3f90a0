"""One kernel for a whole call gives what the path in torch's operations gives; `use("torch")` is the reference."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.functional.cases import INF, NAN, random_logits
from tests.passes import count_native_calls
from torch_boc import kernels
from torch_boc.functional import bag_of_coins, boc_summary, compute_scores, gather, sample_columns, scores
from torch_boc.functional.columns import COLUMNS
from torch_boc.functional.histograms import add_scores
from torch_boc.functional.tallies import empty_tally
from torch_boc.functional.tally import add_evidence, add_gaps, add_logits
from torch_boc.kernels.cpu import library

pytestmark = pytest.mark.skipif(not library.available(), reason="there is no native library")
DTYPES = [torch.float32, torch.bfloat16, torch.float64]
SHAPES = [(0, 5), (1, 2), (65, 2), (64, 10), (33, 3), (7, 1000), (3, 4, 5)]
each_input = pytest.mark.parametrize("shape", SHAPES, ids=str)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


class Seen(TorchDispatchMode):
    """A mode that writes down every operation."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations.append(func.overloadpacket)
        return func(*args, **(kwargs or {}))


def odd_logits(*shape, dtype):
    """Rows of every confidence, flat and sharp ones, and rows with NaN and infinities where there are enough."""
    z = random_logits(*shape, dtype=torch.float64)
    rows = z.view(-1, shape[-1])
    if len(rows) > 30:
        rows[3, 0], rows[7, 1], rows[9, 0], rows[11] = NAN, INF, -INF, -INF
        rows[13], rows[15] = 2.0, 1e-3 * rows[15]
        rows[17, 1] = 300.0
    return z.to(dtype)


def odd_targets(logits):
    target = torch.randint(logits.shape[-1], logits.shape[:-1], generator=torch.Generator().manual_seed(1))
    if target.numel() > 30:
        target.view(-1)[:24:2] = logits.argmax(-1).view(-1)[:24:2]
        target.view(-1)[[1, 5, 21]] = torch.tensor([-100, logits.shape[-1], 0])
    return target


def both(function):
    """What the kernels give, what an operator gives that a mode looks at, and the reference."""
    native = function()
    with Seen():
        watched = function()
    with kernels.use("torch"):
        return native, watched, function()


def assert_same(found, expected, rtol=1e-9):
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, torch.Tensor):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            torch.testing.assert_close(one, other, rtol=rtol, atol=1e-300, equal_nan=True)
        else:
            assert one == other


def tolerance(dtype):
    """Sums over the classes are in float32 for logits of float32 and narrower."""
    return 1e-10 if dtype == torch.float64 else 3e-6


@each_dtype
@each_input
def test_coins_and_evidence(shape, dtype):
    logits = odd_logits(*shape, dtype=dtype)
    for found in both(lambda: bag_of_coins(logits))[:2]:
        with kernels.use("torch"):
            expected = bag_of_coins(logits)
        assert_same(found[:3], expected[:3], tolerance(dtype))
        for one, other in zip(found[3:], expected[3:], strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5, equal_nan=True)
    target = odd_targets(logits)
    native, watched, expected = both(lambda: gather(logits, target, extras=True, ignore_index=-100, trials=9))
    for found in (native, watched):
        assert found[1:3] == expected[1:3] == (shape[-1], 9)
        assert_same(found.coins[:3], expected.coins[:3], tolerance(dtype))
        assert_same(found[3:8], expected[3:8], 5e-6 if dtype != torch.float64 else 1e-10)
        valid = expected.coins.odds.isfinite()
        assert_same([found.distance[valid]], [expected.distance[valid]], 1e-12)


@each_dtype
@each_input
def test_columns_and_scores(shape, dtype):
    logits = odd_logits(*shape, dtype=dtype)
    native, watched, expected = both(lambda: sample_columns(logits) | compute_scores(logits))
    for found in (native, watched):
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert found[name].dtype == value.dtype
            # What a row has of concentration and free gap is small beside its sums where nothing is concentrated.
            torch.testing.assert_close(found[name], value, rtol=2e-5, atol=2e-6, equal_nan=True, msg=name)


@pytest.mark.parametrize("ignore_index", [None, -100, 1])
@each_dtype
@each_input
def test_tallies(shape, dtype, ignore_index):
    """The kernel, the kernel of the evidence, both behind operators, and torch's operations; twice, to see adding."""
    logits = odd_logits(*shape, dtype=dtype)
    for target in (None, odd_targets(logits)):
        how = {"ignore_index": ignore_index}

        def of_logits(target=target, how=how):
            total = empty_tally()
            for _ in range(2):
                add_logits(total, logits, target, **how)
            return total

        def of_evidence(target=target, how=how):
            total = empty_tally()
            for _ in range(2):
                add_evidence(total, gather(logits, target, **how))
            return total

        *found, expected = *both(of_logits)[:2], *both(of_evidence)
        for total in found:
            assert torch.equal(total.counts, expected.counts)
            assert torch.equal(total.bin_counts, expected.bin_counts)
            assert torch.equal(total.gap_histogram.sum(), expected.gap_histogram.sum())
            for name in ("sums", "bin_sums"):
                limit = 1e-9 if dtype == torch.float64 else 1e-5
                torch.testing.assert_close(getattr(total, name), getattr(expected, name), rtol=limit, atol=limit)


def test_a_tally_of_float64_is_that_of_torch_to_1e_9():
    logits = random_logits(500, 7)
    target = odd_targets(logits)
    native, watched, expected = both(lambda: boc_summary(logits, target.clamp(0, 6)))
    for found in (native, watched):
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-15, msg=name)


@pytest.mark.parametrize("part", ["total", "forced", "free"])
@pytest.mark.parametrize("per_class", [False, True])
@each_input
def test_gaps(shape, per_class, part):
    logits, size = odd_logits(*shape, dtype=torch.float64), shape[-1] if per_class else 1

    def of_logits():
        states = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.int64), torch.tensor(0)
        for _ in range(2):
            add_gaps(states, logits, odd_targets(logits), part=part, ignore_index=1)
        return states

    native, watched, expected = both(of_logits)
    for found in (native, watched):
        torch.testing.assert_close(found[0], expected[0], rtol=1e-9, atol=1e-15)
        assert torch.equal(found[1], expected[1])
        assert torch.equal(found[2], expected[2])


@pytest.mark.parametrize("bins", [64, 2**18])
@each_input
def test_histograms_of_scores(shape, bins):
    logits = odd_logits(*shape, dtype=torch.float64)
    ood = torch.arange(logits[..., 0].numel()) % 3 == 0

    def of_logits():
        total, invalid = torch.zeros(2, len(scores), bins, dtype=torch.int64), torch.tensor(0)
        for _ in range(2):
            add_scores(total, invalid, logits, ood, list(scores), trials=20)
        return total, invalid

    native, watched, (total, invalid) = both(of_logits)
    for found in (native, watched):
        assert torch.equal(found[1], invalid)
        assert torch.equal(found[0].sum(-1), total.sum(-1))
        # A score that lies on the edge of two bins may fall into either.
        assert (found[0].cumsum(-1) - total.cumsum(-1)).abs().max() <= 1 + len(ood) // 20


def test_more_trials_than_the_kernels_have():
    logits = random_logits(40, 5)
    for function in (
        lambda: boc_summary(logits, trials=5000)["p_value"],
        lambda: sample_columns(logits, trials=5000)["log_p_value"],
        lambda: compute_scores(logits, ["log_p_value"], trials=5000)["log_p_value"],
    ):
        native, _, expected = both(function)
        torch.testing.assert_close(native, expected, rtol=1e-9, atol=1e-15)


CALLS = {
    "coins_of": lambda z, y: bag_of_coins(z),
    "evidence": lambda z, y: gather(z, y),
    "columns": lambda z, y: (sample_columns(z), compute_scores(z, ["energy"])),
    "tally": lambda z, y: add_logits(TOTAL, z, y),
    "gap_tally": lambda z, y: add_gaps((TOTAL.sums[:1], TOTAL.counts[:1], TOTAL.counts[1]), z, y),
}
TOTAL = empty_tally()


@pytest.mark.parametrize(("name", "function"), CALLS.items(), ids=CALLS)
def test_nobody_looks_on_and_it_is_one_call(name, function, monkeypatch):
    logits, target = random_logits(8, 5), torch.arange(8) % 5
    calls = count_native_calls(monkeypatch)
    function(logits, target)
    assert set(calls) == {name}
    assert len(calls) == (2 if name == "columns" else 1)


@pytest.mark.parametrize("name", ["columns", "tally", "gap_tally"])
def test_a_mode_sees_one_operator(name):
    with Seen() as seen:
        CALLS[name](random_logits(8, 5), torch.arange(8) % 5)
    ours = [x for x in seen.operations if str(x).startswith("torch_boc")]
    assert ours == [getattr(torch.ops.torch_boc, name)] * len(ours)
    assert len(ours) == (2 if name == "columns" else 1)


def test_gradients_are_those_of_the_formulas():
    for function in (lambda z: bag_of_coins(z).gap, lambda z: gather(z).coins.odds, lambda z: scores["msp"](z)):
        found, expected = random_logits(8, 5).requires_grad_(), random_logits(8, 5).requires_grad_()
        function(found).sum().backward()
        with kernels.use("torch"):
            function(expected).sum().backward()
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("view", [lambda z: torch._neg_view(-z), lambda z: z.clone().requires_grad_().detach()])
def test_tensors_that_are_not_their_memory(view):
    z = random_logits(8, 5)
    assert_same(bag_of_coins(view(z)), bag_of_coins(z))
    assert_same([boc_summary(view(z))["gap"]], [boc_summary(z)["gap"]])


def test_targets_and_states_of_another_device_are_refused():
    total = empty_tally()
    with pytest.raises((RuntimeError, NotImplementedError)):
        add_logits(total, random_logits(8, 5), torch.zeros(8, dtype=torch.int64, device="meta"))
    assert total.counts.sum() == 0


def test_every_column_has_a_quantity_and_every_score():
    assert set(COLUMNS) <= set(kernels.QUANTITIES)
    assert all(score.quantity.removeprefix("-") in kernels.QUANTITIES for score in scores.values())


def operator_samples():
    logits, target, tally = random_logits(6, 5), torch.arange(6) % 5, empty_tally()
    evidence = gather(logits, target)
    gaps = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.int64), torch.tensor(0)
    histogram = torch.zeros(2, 2, 64, dtype=torch.int64), torch.tensor(0)
    labels = (evidence.target, evidence.distance, None)
    return {
        "columns": (logits, ["prediction", "gap"], 20),
        "tally": (logits, target, -100, 20, 0.05, *tally),
        "tally_evidence": (list(evidence.coins), *labels, 5, 20, 0.05, *tally),
        "gap_tally": (logits, None, None, "free", *gaps),
        "count_scores": (logits, target > 2, ["odds", "log_p_value"], [-1, 1], 20, *histogram),
    }


@pytest.mark.parametrize("name", ["columns", "tally", "tally_evidence", "gap_tally", "count_scores"])
def test_operators(name):
    torch.library.opcheck(getattr(kernels, name), operator_samples()[name])
