"""A sequence is stopped at the token where its running mean crosses the threshold, and familiar ones seldom are."""

import math

import pytest
import torch

from tests.transformers.cases import PAD, generating, gpt2, prompts
from torch_boc.language import TokenRecord, Trace
from torch_boc.transformers import BoCGeneration, Stop
from torch_boc.transformers.stopping import running_means

WINDOW = 4


@pytest.fixture(scope="module")
def model():
    return generating(gpt2())


def generated(model, stop=None, **options):
    torch.manual_seed(5)
    g = BoCGeneration(model, stop=stop)
    given = {**prompts((5, 5, 5, 5)), "max_new_tokens": 16, "pad_token_id": PAD, "do_sample": True, "temperature": 9.0}
    output = g.generate(**{**given, "eos_token_id": None, **options})
    return g.trace.records, output


@pytest.fixture(scope="module")
def free(model):
    return generated(model)[0]


def test_running_means():
    values = torch.randn(3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([values[:, i : i + 6].mean(1) for i in range(15)], 1)
    torch.testing.assert_close(running_means(values, 6), expected, rtol=1e-12, atol=1e-12)
    assert running_means(torch.tensor([1.0, math.nan, 3.0, 5.0]), 2).isnan().tolist() == [True, True, False]


@pytest.mark.parametrize(("quantity", "side"), [("lost_coins", "above"), ("rank", "above"), ("confidence", "below")])
def test_a_sequence_is_stopped_at_the_first_crossing(model, free, quantity, side):
    means = torch.stack([running_means(record.numbers[quantity], WINDOW) for record in free])
    extremes = (means.amax(1) if side == "above" else means.amin(1)).sort().values
    rule = Stop(quantity, **{side: float(extremes[1:3].mean())}, window=WINDOW)  # two of four sequences cross it
    stopped, _ = generated(model, rule)
    for record, before, mean in zip(stopped, free, means, strict=True):
        crossed = rule.crossed_by(mean).nonzero()
        end = int(crossed[0]) + WINDOW if len(crossed) else None
        assert record.tokens.tolist() == before.tokens[:end].tolist()
        assert record.finish == ("length" if end is None else "stop")


@pytest.mark.parametrize("eos", [None, 49])
def test_generation_ends_when_all_are_stopped(model, free, eos):
    """With a token that ends sequences, the others are padded; without, what follows the stop is cut off."""
    records, output = generated(model, Stop("rank", above=0.0, window=3), eos_token_id=eos)
    assert output.shape[1] == 5 + 3
    assert [(len(record), record.finish) for record in records] == [(3, "stop")] * 4
    first = int(free[0].tokens[1])  # the end of a sequence comes before its stop
    records, _ = generated(model, Stop("rank", above=0.0, window=6), eos_token_id=first)
    assert (len(records[0]), records[0].finish) == (free[0].tokens.tolist().index(first) + 1, "eos")


def as_record(values, quantity="entropy", prompt=0):
    empty = torch.zeros(len(values), 0)
    return TokenRecord(torch.zeros(len(values), dtype=torch.long), {quantity: values}, empty.long(), empty, prompt)


@pytest.mark.parametrize(("quantity", "side"), [("entropy", "above"), ("confidence", "below")])
def test_the_level_of_a_calibrated_rule(quantity, side):
    """Over many calibrations with 39 sequences, the share of new ones that are ever stopped is alpha."""

    def noise(number):
        """Sequences whose values depend on each other and on a level of their own."""
        moves = torch.randn(number, 24, generator=random, dtype=torch.float64)
        return 0.2 * moves.cumsum(1) + moves + torch.randn(number, 1, generator=random, dtype=torch.float64)

    random, stopped, alpha = torch.Generator().manual_seed(0), [], 0.1
    for _ in range(200):
        rule = Stop.calibrated([as_record(x, quantity) for x in noise(39)], quantity, window=8, alpha=alpha)
        assert (rule.above is None) == (side == "below")
        stopped.append(rule.crossed_by(running_means(noise(40), 8)).any(1).double().mean())
    assert 0.9 * alpha < torch.stack(stopped).mean() < 1.1 * alpha


def test_calibration_takes_traces_and_leaves_prompts_out():
    values = [torch.tensor([math.nan, i, i + 1.0, i]) for i in range(19)]
    records = [as_record(x) for x in values]
    rule = Stop.calibrated(Trace(records, num_classes=9), "entropy", window=2, alpha=0.05)
    assert rule == Stop("entropy", above=18.5, window=2)
    assert Stop.calibrated(records, "entropy", window=2, side="below") == Stop("entropy", below=0.5, window=2)
    prompted = [as_record(torch.cat([torch.tensor([99.0]), x[1:]]), prompt=1) for x in values]
    assert Stop.calibrated(prompted, "entropy", window=2) == rule


RECORDS = [as_record(torch.arange(9.0))] * 19


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Stop("surprise", above=1.0), "expected quantity as one of log_probability, rank, .*got 'surprise'"),
        (lambda: Stop("entropy"), "expected either above or below, got above=None and below=None"),
        (lambda: Stop("entropy", above=1.0, window=0), "expected window as a positive integer, got 0"),
        (lambda: Stop.calibrated(RECORDS[1:], "entropy"), r"expected at least 19 sequences for alpha=0.05, got 18"),
        (lambda: Stop.calibrated(RECORDS, "rank"), "expected records with 'rank', got entropy"),
        (lambda: Stop.calibrated(RECORDS, "entropy", window=10), "expected at least 1 sequences that are as long as"),
        (lambda: Stop.calibrated(RECORDS, "entropy", side="left"), "unexpected keyword argument 'left'"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
