"""A sequence is stopped at the token where its running mean crosses the threshold, and familiar ones seldom are."""

import math

import pytest
import torch

from tests.transformers.cases import gpt2
from tests.transformers.generating import PAD, forced_logits, prompts, without_padding
from torch_boc import ConformalTest
from torch_boc.functional.running import running_means
from torch_boc.functional.tokens import TOKEN_COLUMNS
from torch_boc.language import TokenRecord, Trace
from torch_boc.transformers import BoCGeneration, Stop

WINDOW = 4
OPTIONS = {"max_new_tokens": 16, "pad_token_id": PAD, "do_sample": True, "temperature": 9.0}


def generated(model, stop=None, test=None, **options):
    torch.manual_seed(5)
    g = BoCGeneration(model, stop=stop, test=test)
    output = g.generate(model, **prompts(4), **{**OPTIONS, "eos_token_id": None, **options})
    return g.trace.records, output


def first_crossing(record, rule):
    """The number of tokens up to the first crossing, or None."""
    places = rule.crossed_by(running_means(record.numbers[rule.quantity], rule.window)).nonzero()
    return int(places[0]) + rule.window if len(places) else None


@pytest.mark.parametrize("side", ["above", "below"])
@pytest.mark.parametrize("quantity", TOKEN_COLUMNS)
def test_a_sequence_is_stopped_at_the_first_crossing(quantity, side):
    model = without_padding(gpt2())
    free, _ = generated(model)
    means = torch.stack([running_means(record.numbers[quantity], WINDOW) for record in free])
    extremes = (means.amax(1) if side == "above" else means.amin(1)).sort().values
    threshold = float(extremes[1:3].mean())  # two of four sequences cross it
    rule = Stop(quantity, **{side: threshold}, window=WINDOW)
    stopped, output = generated(model, rule)
    ends = [first_crossing(record, rule) for record in free]
    assert 0 < sum(end is None for end in ends) < 4
    for record, before, end in zip(stopped, free, ends, strict=True):
        assert record.tokens.tolist() == before.tokens[:end].tolist()
        assert record.finish == ("length" if end is None else "stop")
    assert output.shape[1] == 5 + 16


@pytest.mark.parametrize("eos", [None, 49])
def test_generation_ends_when_all_are_stopped(eos):
    """With a token that ends sequences, the others are padded; without, what follows the stop is cut off."""
    model = without_padding(gpt2())
    records, output = generated(model, Stop("rank", above=0.0, window=3), eos_token_id=eos)
    assert output.shape[1] == 5 + 3
    assert [(len(record), record.finish) for record in records] == [(3, "stop")] * 4
    never, _ = generated(model, Stop("rank", below=0.0, window=3), eos_token_id=eos)
    assert {record.finish for record in never} <= {"length", "eos"}


def test_the_end_of_a_sequence_comes_before_its_stop():
    model = without_padding(gpt2())
    free, _ = generated(model)
    eos = int(free[0].tokens[1])
    records, _ = generated(model, Stop("rank", above=0.0, window=6), eos_token_id=eos)
    place = free[0].tokens.tolist().index(eos) + 1
    assert (len(records[0]), records[0].finish) == (place, "eos")
    assert "stop" in {record.finish for record in records}


@pytest.mark.parametrize("sample", [False, True])
def test_beams_are_stopped_along_their_own_history(sample):
    """A candidate's mean is over the tokens of its own sequence, whatever row they were in."""
    model = without_padding(gpt2())
    options = {"num_beams": 3, "num_return_sequences": 3, "do_sample": sample, "temperature": 9.0 if sample else None}
    free, _ = generated(model, **options)
    middle = float(torch.stack([running_means(x.numbers["lost_coins"], WINDOW).amax() for x in free]).median())
    rule = Stop("lost_coins", above=middle, window=WINDOW)
    records, _ = generated(model, rule, **options)
    assert "stop" in {record.finish for record in records}
    for record in records:
        end = first_crossing(record, rule)
        assert end == (len(record) if record.finish == "stop" else None)


def test_a_test_on_trusted_text_gives_p_values():
    model = without_padding(gpt2())
    held_out = forced_logits(model, torch.tensor([5]), prompts(1, 30, seed=9)["input_ids"][0])
    test = ConformalTest("log_odds").calibrate(held_out)
    free, _ = generated(model, test=test)
    for record, prompt in zip(free, prompts(4)["input_ids"], strict=True):
        expected = test(forced_logits(model, prompt, record.tokens))
        torch.testing.assert_close(record.numbers["p_in_distribution"], expected, rtol=1e-6, atol=0)
    rule = Stop("p_in_distribution", below=0.5, window=3)
    stopped, _ = generated(model, rule, test)
    ends = [first_crossing(record, rule) for record in free]
    assert [len(record) for record in stopped] == [16 if end is None else end for end in ends]
    assert any(end is not None for end in ends)
    assert test.counts.sum() == 30  # the test itself is as it was


def noise(number, length, generator):
    """Sequences whose values depend on each other and on a level of their own."""
    steps = torch.randn(number, length, generator=generator, dtype=torch.float64)
    return 0.2 * steps.cumsum(1) + steps + torch.randn(number, 1, generator=generator, dtype=torch.float64)


def as_record(values, quantity="entropy", prompt=0):
    length = len(values)
    empty = torch.zeros(length, 0)
    return TokenRecord(torch.zeros(length, dtype=torch.long), {quantity: values}, empty.long(), empty, prompt)


@pytest.mark.parametrize(("quantity", "side"), [("entropy", "above"), ("confidence", "below")])
def test_the_level_of_a_calibrated_rule(quantity, side):
    """Over many calibrations with 39 sequences, the share of new ones that are ever stopped is alpha."""
    random, stopped, alpha = torch.Generator().manual_seed(0), [], 0.1
    for _ in range(300):
        trusted = [as_record(values, quantity) for values in noise(39, 24, random)]
        rule = Stop.calibrated(trusted, quantity, window=8, alpha=alpha)
        assert (rule.above is None) == (side == "below")
        stopped.append(rule.crossed_by(running_means(noise(40, 24, random), 8)).any(1).double().mean())
    rate = torch.stack(stopped).mean()
    assert 0.9 * alpha < rate < 1.1 * alpha


def test_calibration_takes_traces_and_leaves_prompts_out():
    values = [torch.tensor([math.nan, i, i + 1.0, i]) for i in range(19)]
    records = [as_record(x) for x in values]
    rule = Stop.calibrated(Trace(records, num_classes=9), "entropy", window=2, alpha=0.05)
    assert rule == Stop("entropy", above=18.5, window=2)
    assert Stop.calibrated([Trace(records[:9], num_classes=9), *records[9:]], "entropy", window=2) == rule
    assert Stop.calibrated(records, "entropy", window=2, side="below") == Stop("entropy", below=0.5, window=2)
    prompted = [as_record(torch.cat([torch.tensor([99.0]), x[1:]]), prompt=1) for x in values]
    assert Stop.calibrated(prompted, "entropy", window=2) == rule


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quantity": "surprise", "above": 1.0}, "expected quantity as one of log_probability, rank, .*got 'surprise'"),
        ({"quantity": "entropy"}, "expected either above or below, got above=None and below=None"),
        ({"quantity": "entropy", "above": 1.0, "below": 0.0}, "expected either above or below, got above=1.0"),
        ({"quantity": "entropy", "above": math.nan}, "expected a threshold that is a number, got nan"),
        ({"quantity": "entropy", "above": 1.0, "window": 0}, "expected window as a positive integer, got 0"),
        ({"quantity": "entropy", "above": 1.0, "window": 2.5}, "expected window as a positive integer, got 2.5"),
    ],
)
def test_bad_rules(arguments, message):
    with pytest.raises(ValueError, match=message):
        Stop(**arguments)


def test_bad_calibrations():
    records = [as_record(torch.arange(9.0))] * 19
    with pytest.raises(ValueError, match=r"expected at least 19 sequences for alpha=0.05, got 18"):
        Stop.calibrated(records[1:], "entropy", window=4)
    with pytest.raises(ValueError, match="expected records with 'rank', got entropy"):
        Stop.calibrated(records, "rank")
    with pytest.raises(ValueError, match="expected at least 1 sequences that are as long as the window"):
        Stop.calibrated(records, "entropy", window=10)
    with pytest.raises(ValueError, match="expected side as 'above' or 'below', got 'left'"):
        Stop.calibrated(records, "entropy", side="left")
    with pytest.raises(TypeError, match="expected trusted as traces or records of tokens, got Tensor"):
        Stop.calibrated(torch.zeros(19, 30), "entropy")
