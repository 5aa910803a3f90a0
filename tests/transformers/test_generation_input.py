"""What cannot be recorded is refused in words, and what a mask spoils is not shown."""

import warnings

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList, TopKLogitsWarper

from tests.transformers.cases import gpt2
from tests.transformers.generating import prompts, t5, without_padding
from torch_boc import ConformalTest
from torch_boc.transformers import BoCGeneration, Stop

IDS, SCORES = torch.zeros(2, 3, dtype=torch.long), torch.randn(2, 9)
TWICE = {"max_new_tokens": 4, "pad_token_id": 0}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rivals": 0}, ValueError, "expected rivals as a positive integer, got 0"),
        ({"rivals": 2.0}, ValueError, "expected rivals as a positive integer, got 2.0"),
        ({"num_beams": True}, ValueError, "expected num_beams as a positive integer, got True"),
        ({"stop": 0.5}, TypeError, "expected stop as a torch_boc.transformers.Stop, got float"),
        ({"test": 0.5}, TypeError, "expected test as a torch_boc.ConformalTest, got float"),
        ({"test": ConformalTest()}, ValueError, "expected held-out samples to compare with, got none"),
        ({"stop": Stop("p_in_distribution", below=0.1)}, ValueError, "expected a test to stop by p_in_distribution"),
        ({"eos_token_id": "2"}, TypeError, "expected eos_token_id as an integer or a list of integers, got '2'"),
        ({"pad_token_id": [1, 2]}, ValueError, r"expected pad_token_id as one integer, got \[1, 2\]"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        BoCGeneration(**options)


@pytest.mark.parametrize(
    ("ids", "scores"),
    [(IDS, SCORES[0]), (IDS[:1], SCORES), (IDS.float(), SCORES), (IDS, SCORES.long()), (IDS[None], SCORES)],
)
def test_bad_scores(ids, scores):
    with pytest.raises(ValueError, match=r"expected integer tokens of shape \(N, L\) and floating-point scores"):
        BoCGeneration(eos_token_id=[])(ids, scores)


def test_a_processor_alone_is_refused():
    model, g = gpt2().eval(), BoCGeneration(eos_token_id=[])
    with pytest.raises(ValueError, match=r"give this object as stopping_criteria=\[g\] as well as logits_processor"):
        model.generate(**prompts(), **TWICE, logits_processor=[g])
    g.reset()
    model.generate(**prompts(), **TWICE, logits_processor=[g], stopping_criteria=[g])
    assert len(g.trace.records) == 3


def test_a_criterion_alone_is_refused():
    with pytest.raises(ValueError, match=r"expected scores before their tokens.*logits_processor=\[g\]"):
        gpt2().eval().generate(**prompts(), **TWICE, stopping_criteria=[BoCGeneration()])
    with pytest.raises(TypeError, match="expected scores as a tensor, a tuple or None, got a list"):
        BoCGeneration(eos_token_id=[])(IDS, [SCORES])


def test_assisted_decoding_is_refused():
    model, g = gpt2().eval(), BoCGeneration(eos_token_id=[])
    with pytest.raises(ValueError, match=r"Assisted \(speculative\) decoding cannot be recorded"):
        model.generate(
            **prompts(1), **TWICE, assistant_model=gpt2().eval(), logits_processor=[g], stopping_criteria=[g]
        )


def test_nothing_recorded():
    for read in (lambda g: g.trace, lambda g: g.trace_of(IDS)):
        with pytest.raises(ValueError, match="expected a recorded call of generate, got none"):
            read(BoCGeneration())
    with pytest.raises(ValueError, match="expected a model, got none; give it here or to BoCGeneration"):
        BoCGeneration().generate(input_ids=IDS)


@pytest.mark.parametrize("given", [IDS, {"input_ids": IDS}, torch.nn.Linear(2, 2)])
def test_a_model_comes_first(given):
    with pytest.raises(TypeError, match=r"expected a model first, got .*; use g.generate\(input_ids=...\)"):
        BoCGeneration(gpt2()).generate(given)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}], ids=str)
def test_another_output(options):
    model = without_padding(gpt2())
    g = BoCGeneration(model)
    output = g.generate(model, **prompts(), **TWICE, eos_token_id=None, **options)
    for other in (output + 1, (output + output.new_tensor([0] * 7 + [1, 0])) % 50):
        with pytest.raises(ValueError, match=r"expected (the output of the last recorded|a sequence that was record)"):
            g.trace_of(other)
    with pytest.raises(TypeError, match=r"expected the output of generate, with sequences of shape \(N, L\)"):
        g.trace_of({"sequences": 1})


class InPlace(LogitsProcessor):
    """What a later processor must not do."""

    def __call__(self, input_ids, scores):
        return scores.mul_(2)


def test_scores_that_a_later_processor_changes():
    g = BoCGeneration(eos_token_id=[])
    with pytest.raises(ValueError, match="expected scores that no later logits processor changes in place"):
        gpt2().eval().generate(
            **prompts(), **TWICE, logits_processor=[g, InPlace()], stopping_criteria=[g], eos_token_id=None
        )


def test_steps_that_do_not_fit():
    for ids in (torch.zeros(2, 5, dtype=torch.long), torch.zeros(1, 4, dtype=torch.long)):
        g = BoCGeneration(eos_token_id=[])
        g(IDS, SCORES)
        with pytest.raises(ValueError, match=r"expected tokens of shape \(2, 4\) or, with beams, more rows"):
            g(ids, None)


def test_rows_that_move_are_refused():
    """As a loop of somebody else may do, with as many candidates as rows."""
    g = BoCGeneration(eos_token_id=[])
    first = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 2]])
    g(IDS, SCORES)
    g(first, None)
    g(first, SCORES)
    g(torch.cat([first[[1, 1]], first[:, -1:]], 1), None)
    with pytest.raises(ValueError, match=r"expected rows that stay in their places.*got reordered rows"):
        _ = g.trace


def test_beams_of_two_calls_are_not_mixed():
    """A second beam search whose prompt is as long as the text before looks like the next step of the first."""
    model = without_padding(gpt2())
    g = BoCGeneration(model)
    options = {**TWICE, "num_beams": 2, "eos_token_id": None}
    model.generate(**prompts(2, 4), **options, logits_processor=[g], stopping_criteria=[g])
    for reset in (False, True):
        if reset:
            g.reset()
        output = model.generate(**prompts(2, 8, seed=5), **options, logits_processor=[g], stopping_criteria=[g])
        if reset:
            assert [len(record) for record in g.trace_of(output).records] == [4, 4]
        else:
            with pytest.raises(ValueError, match=r"call g.reset\(\) before another generate"):
                g.trace_of(output)


def test_a_test_that_normalisation_would_spoil():
    held_out = torch.randn(200, 50, generator=torch.Generator().manual_seed(0))
    model = without_padding(gpt2())
    for score in ("energy", "max_logit", "log_odds", "msp"):
        g = BoCGeneration(model, test=ConformalTest(score).calibrate(held_out))
        g.generate(model, **prompts(), **TWICE)
        if score in ("energy", "max_logit"):
            with pytest.raises(ValueError, match=f"whose score does not depend on the mean.*got '{score}'"):
                g.generate(model, **prompts(), **TWICE, num_beams=2)
        else:
            g.generate(model, **prompts(), **TWICE, num_beams=2)


def _never(*args, **kwargs):
    """What stands for a `generate` that must not begin."""
    raise AssertionError("the call has begun")


def test_prompts_that_cannot_be_scored():
    model = without_padding(gpt2())
    g = BoCGeneration(model, score_prompt=True)
    with pytest.raises(ValueError, match=r"expected g.generate\(model, ...\) for score_prompt=True"):
        model.generate(**prompts(), **TWICE, logits_processor=[g], stopping_criteria=[g])
    g.reset()
    output = g.generate(**prompts(), **TWICE)
    with pytest.raises(ValueError, match=r"expected g.trace for score_prompt=True, which has the prompts"):
        g.trace_of(output)
    embedded = {"inputs_embeds": model.get_input_embeddings()(prompts()["input_ids"])}
    cases = ((t5(), prompts(), "got a model with one; take prompt=True"), (model, embedded, "got no input_ids"))
    for other, inputs, message in cases:
        other.generate = _never
        with pytest.raises(ValueError, match=f"expected input_ids for a model without an encoder .*{message}"):
            BoCGeneration(score_prompt=True).generate(other, **inputs, **TWICE)


@pytest.mark.parametrize(("kept", "spoiled"), [(5, True), (24, True), (25, False), (48, False)])
def test_masks(kept, spoiled):
    """A few suppressed tokens are normal; a mask on most of them makes the numbers of all classes meaningless."""
    model = without_padding(gpt2())
    g = BoCGeneration(model, test=ConformalTest().calibrate(torch.randn(99, 50)))
    options = {**prompts(), **TWICE, "eos_token_id": None}
    output = model.generate(**options, logits_processor=[TopKLogitsWarper(kept), g], stopping_criteria=[g])
    if spoiled:
        with pytest.warns(UserWarning, match=r"12 tokens were chosen from scores of which more than half were masked"):
            trace = g.trace
    with warnings.catch_warnings():  # it is said once
        warnings.simplefilter("error")
        trace = g.trace_of(output)
    for record in trace.records:
        assert record.numbers["masked"].tolist() == [50 - kept] * 4
        for name, column in record.numbers.items():
            about_all = name in ("gap", "lost_coins", "concentration", "p_in_distribution")
            assert column.isnan().all() == (spoiled and about_all)


@pytest.mark.parametrize("shape", [(6,), (1,)])
def test_continuous_batching(shape):
    """Its rows have no identity: scores pass through, and the absence of a trace is said."""
    continuous = pytest.importorskip("transformers.generation.continuous_batching.cb_logits_processors")
    g = BoCGeneration(eos_token_id=[])
    chain = continuous.ContinuousBatchingLogitsProcessorList(LogitsProcessorList([g]))
    assert list(chain.logits_processor) == [g]
    ids, scores = torch.zeros(shape, dtype=torch.long), torch.randn(*shape, 9)
    with pytest.warns(UserWarning, match="nothing is recorded in continuous batching"):
        assert chain(ids, scores, torch.empty(0)) is scores
    assert g(ids, scores) is scores  # the warning comes once
    with pytest.raises(ValueError, match="expected a recorded call of generate, got none"):
        _ = g.trace
