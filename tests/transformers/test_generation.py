"""Every recorded number is that of the model, run over the finished text; the text is the same as without recording."""

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessor

from tests.transformers.cases import VOCABULARY, gpt2, llama
from tests.transformers.generating import (
    EOS,
    PAD,
    assert_record,
    bart,
    forced_logits,
    left_padded,
    prompts,
    t5,
    without_padding,
)
from torch_boc.functional.tokens import TOKEN_COLUMNS
from torch_boc.language import Trace
from torch_boc.transformers import BoCGeneration, score_tokens

SAMPLING = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "temperature": 9.0},
    "warm and top-k": {"do_sample": True, "temperature": 9.0, "top_k": 30, "top_p": 0.9},
    "several of each": {"do_sample": True, "temperature": 9.0, "num_return_sequences": 3},
    "with scores": {"do_sample": True, "temperature": 9.0, "output_scores": True, "return_dict_in_generate": True},
}
BEAMS = {
    "beams": {"num_beams": 4},
    "several of each": {"num_beams": 4, "num_return_sequences": 3},
    "early": {"num_beams": 3, "early_stopping": True},
    "sampling": {"num_beams": 3, "do_sample": True, "temperature": 9.0},
    "with scores": {"num_beams": 2, "output_scores": True, "return_dict_in_generate": True},
}


def run(model, g, inputs, direct, **options):
    """`g.generate`, or `model.generate` with the recorder given twice."""
    torch.manual_seed(3)
    options = {"max_new_tokens": 14, "pad_token_id": PAD, "eos_token_id": EOS, **inputs, **options}
    if direct:
        return model.generate(**options, logits_processor=[g], stopping_criteria=[g])
    return g.generate(model, **options)


def compare(model, trace, output, inputs, start, limit="length"):
    """Each record with the model, run over the sequence without padding; `limit` is what it says at its limit."""
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    assert isinstance(trace, Trace)
    assert trace.num_classes == VOCABULARY
    assert len(trace.records) == len(sequences)
    encoded = model.config.is_encoder_decoder
    for i, (record, sequence) in enumerate(zip(trace.records, sequences, strict=True)):
        generated = sequence[start:]
        assert record.prompt_length == 0
        torch.testing.assert_close(record.tokens, generated[: len(record)], rtol=0, atol=0)
        rest = generated[len(record) :]
        assert set(rest.tolist()) <= {PAD, EOS[0]}
        assert record.finish == ("eos" if int(record.tokens[-1]) in EOS else limit)
        assert not set(record.tokens[:-1].tolist()) & set(EOS)
        source = i * len(inputs["input_ids"]) // len(sequences)
        given = inputs["input_ids"][source][inputs["attention_mask"][source] > 0]
        prompt = sequence[:start] if encoded else given
        assert_record(record, forced_logits(model, prompt, record.tokens, given if encoded else None))


@pytest.mark.parametrize("direct", [True, False], ids=["generate", "g.generate"])
@pytest.mark.parametrize("options", SAMPLING.values(), ids=SAMPLING)
@pytest.mark.parametrize("make", [gpt2, llama])
def test_sampling(make, options, direct):
    model, inputs = without_padding(make()), left_padded([5, 2, 4])
    g = BoCGeneration(eos_token_id=EOS, pad_token_id=PAD)
    output = run(model, g, inputs, direct, **options)
    compare(model, g.trace, output, inputs, 5, "" if direct else "length")
    compare(model, g.trace_of(output), output, inputs, 5, "" if direct else "length")
    lengths = {len(record) for record in g.trace.records}
    assert len(lengths) > 1 or not options["do_sample"]


@pytest.mark.parametrize("direct", [True, False], ids=["generate", "g.generate"])
@pytest.mark.parametrize("options", BEAMS.values(), ids=BEAMS)
@pytest.mark.parametrize("make", [gpt2, llama])
def test_beams(make, options, direct):
    model, inputs = without_padding(make()), left_padded([5, 2, 4])
    g = BoCGeneration(eos_token_id=EOS, pad_token_id=PAD)
    output = run(model, g, inputs, direct, **options)
    compare(model, g.trace_of(output), output, inputs, 5, "" if direct else "length")
    if direct:
        with pytest.raises(ValueError, match=r"expected the output of the beam search.*g.trace_of\(output\)"):
            _ = g.trace
    else:
        compare(model, g.trace, output, inputs, 5)


@pytest.mark.parametrize("make", [t5, bart])
@pytest.mark.parametrize("options", [{}, {"do_sample": True}, {"num_beams": 3}], ids=str)
def test_models_with_an_encoder(make, options):
    model, inputs = make(), prompts()
    g = BoCGeneration(model)
    output = run(model, g, inputs, False, **options)
    compare(model, g.trace, output, inputs, 1)


@pytest.mark.parametrize("texts", [1, 3])
def test_beams_of_an_encoder_must_be_counted(texts):
    """All texts have the same prompt in the decoder; with several of them, the number of beams tells them apart."""
    model, inputs = t5(), prompts(texts)
    g = BoCGeneration(eos_token_id=EOS, pad_token_id=PAD)
    output = run(model, g, inputs, True, num_beams=3)
    if texts == 1:
        compare(model, g.trace_of(output), output, inputs, 1, "")
    else:
        with pytest.raises(ValueError, match="with num_beams= for the recorder if the model has an encoder"):
            g.trace_of(output)
    g = BoCGeneration(eos_token_id=EOS, pad_token_id=PAD, num_beams=3)
    output = run(model, g, inputs, True, num_beams=3)
    compare(model, g.trace_of(output), output, inputs, 1, "")


@pytest.mark.parametrize("options", [*SAMPLING.values(), *BEAMS.values()], ids=str)
def test_the_text_is_the_same_without_recording(options):
    model, inputs = without_padding(gpt2()), prompts()
    torch.manual_seed(3)
    given = {"max_new_tokens": 14, "pad_token_id": PAD, "eos_token_id": EOS, **inputs, **options}
    bare = model.generate(**given)
    recorded = run(model, BoCGeneration(eos_token_id=EOS), inputs, True, **options)
    for x, y in ((bare, recorded),) if isinstance(bare, torch.Tensor) else zip(bare[:2], recorded[:2], strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0)


def test_scores_pass_through_as_they_are():
    g, ids, scores = BoCGeneration(eos_token_id=[]), torch.zeros(2, 3, dtype=torch.long), torch.randn(2, 9)
    before = scores.clone()
    assert g(ids, scores) is scores
    stopped = g(torch.cat([ids, ids[:, :1]], 1), None)
    assert torch.equal(scores, before)
    assert stopped.tolist() == [False, False]


def test_a_second_generate_replaces_the_first():
    model = without_padding(gpt2())
    g = BoCGeneration(model)
    first = run(model, g, prompts(2, 4), True)
    again = {"input_ids": first.clone(), "attention_mask": torch.ones_like(first)}  # as long as what came before
    output = run(model, g, again, True, max_new_tokens=3)
    compare(model, g.trace, output, again, first.shape[1], "")
    beams = run(model, g, prompts(2, 4), True, num_beams=2)
    compare(model, g.trace_of(beams), beams, prompts(2, 4), 4, "")
    g.reset()
    with pytest.raises(ValueError, match=r"expected a recorded call of generate, got none; use g.generate"):
        _ = g.trace


def test_the_very_tensor_of_the_last_output_needs_a_reset():
    model = without_padding(gpt2())
    g = BoCGeneration(model)
    first = run(model, g, prompts(1, 4), True, eos_token_id=None, max_new_tokens=3)
    g.reset()
    inputs = {"input_ids": first, "attention_mask": torch.ones_like(first)}
    output = run(model, g, inputs, True, eos_token_id=None, max_new_tokens=2)
    assert g.trace.records[0].tokens.tolist() == output[0, -2:].tolist()


def test_settings_of_the_model_and_of_the_call_end_sequences():
    model = without_padding(gpt2())
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = EOS, PAD
    options = {"do_sample": True, "max_new_tokens": 14, **prompts()}
    torch.manual_seed(3)
    g = BoCGeneration(model)
    output = model.generate(**options, logits_processor=[g], stopping_criteria=[g])
    compare(model, g.trace, output, prompts(), 5, "")
    every = list(range(1, VOCABULARY))
    g.generate(model, **options, eos_token_id=every)
    assert [len(record) for record in g.trace.records] == [1, 1, 1]


def first_end(model):
    """The settings of a greedy call in which the first of the sequences ends at its third token."""
    options = {**prompts(), "max_new_tokens": 9, "pad_token_id": PAD}
    free = model.generate(**options, eos_token_id=None)
    tokens = free[0, 5:].tolist()
    return {**options, "eos_token_id": tokens[2]}, tokens.index(tokens[2]) + 1, free


def test_a_batch_whose_end_is_not_known():
    """Then the padding of a sequence that ended would count as text: that is said, unless the user says it is right."""
    model = without_padding(gpt2())
    options, _, _ = first_end(model)
    g = BoCGeneration()
    with pytest.warns(UserWarning, match=r"padding after the end of a sequence counts as its text; use g.generate"):
        model.generate(**options, logits_processor=[g], stopping_criteria=[g])
    for quiet in (BoCGeneration(eos_token_id=[]), BoCGeneration(model)):
        model.generate(**options, logits_processor=[quiet], stopping_criteria=[quiet])
    g.reset()
    one = {name: x[:1] if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    model.generate(**one, logits_processor=[g], stopping_criteria=[g])


@pytest.mark.parametrize("form", ["arguments", "config", "positional config"])
def test_g_generate_knows_the_end_of_its_call(form):
    model, g = without_padding(gpt2()), BoCGeneration()
    options, length, _ = first_end(model)
    given = {name: options.pop(name) for name in ("input_ids", "attention_mask")}
    config = GenerationConfig(**options)
    if form == "positional config":
        g.generate(model, given.pop("input_ids"), config, **given)
    else:
        g.generate(model, **given, **(options if form == "arguments" else {"generation_config": config}))
    assert (len(g.trace.records[0]), g.trace.records[0].finish) == (length, "eos")


def test_no_end_in_the_call_wins_over_that_of_the_model():
    model = without_padding(gpt2())
    options, _, free = first_end(model)
    model.generation_config.eos_token_id = options["eos_token_id"]
    g = BoCGeneration(model)
    output = g.generate(**{**options, "eos_token_id": None})
    assert torch.equal(output, free)
    assert [record.tokens.tolist() for record in g.trace.records] == free[:, 5:].tolist()


LIMITS = {
    "max_new_tokens": {"max_new_tokens": 4},
    "max_length": {"max_length": 9},
    "both": {"max_new_tokens": 4, "max_length": 30},
    "config": {"generation_config": GenerationConfig(max_new_tokens=4, pad_token_id=PAD)},
}


@pytest.mark.parametrize("options", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("more", [{}, {"num_beams": 2}], ids=["greedy", "beams"])
def test_the_limit_of_the_call_is_why_a_sequence_ended(options, more):
    """With one token less, something else ended it, which is not known."""
    model = without_padding(gpt2())
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, PAD
    for length, finish in ((4, "length"), (3, "")):
        ends = [lambda ids, scores, most=5 + length: torch.full((len(ids),), ids.shape[1] >= most)]
        g = BoCGeneration(model)
        g.generate(**prompts(), **options, **more, stopping_criteria=ends)
        assert [(len(record), record.finish) for record in g.trace.records] == [(length, finish)] * 3
        assert ("ended by" in g.trace.headlines()[0]) == (finish == "length")


def test_the_limit_of_the_model_is_known_without_its_call():
    model = without_padding(gpt2())
    model.generation_config.update(eos_token_id=None, pad_token_id=PAD, max_new_tokens=4)
    g = BoCGeneration(model, eos_token_id=[])
    for options, finish in (({}, "length"), ({"max_new_tokens": 3}, "")):
        model.generate(**prompts(), **options, logits_processor=[g], stopping_criteria=[g])
        assert [record.finish for record in g.trace.records] == [finish] * 3


class Halved(LogitsProcessor):
    """A penalty of the user."""

    def __call__(self, input_ids, scores):
        return scores / 2


def test_other_processors_and_criteria_stay():
    """The recorder comes after a processor of the user: it sees the halved scores."""
    model, inputs = without_padding(gpt2()), prompts()
    g = BoCGeneration(model)
    ends = [lambda ids, scores: torch.full((len(ids),), ids.shape[1] >= 9)]
    output = g.generate(model, **inputs, logits_processor=[Halved()], stopping_criteria=ends, max_new_tokens=30)
    assert output.shape == (3, 9)
    assert [record.finish for record in g.trace.records] == [""] * 3  # not at the limit of 30
    for record, sequence in zip(g.trace.records, output, strict=True):
        assert_record(record, forced_logits(model, sequence[:5], sequence[5:]) / 2)


@pytest.mark.parametrize("options", [{}, {"num_return_sequences": 2, "do_sample": True}, {"num_beams": 2}], ids=str)
def test_prompts(options):
    """With the prompt in the records, its padding is left out; scored, it has the numbers of a pass over it."""
    model, inputs = without_padding(gpt2()), left_padded([5, 2, 4])
    plain = BoCGeneration(model)
    run(model, plain, inputs, False, **options)
    for scored in (False, True):
        g = BoCGeneration(model, prompt=True, score_prompt=scored)
        output = run(model, g, inputs, False, **options)
        times = len(output) // 3
        forced = score_tokens(model, inputs["input_ids"], attention_mask=inputs["attention_mask"])
        for i, (record, bare) in enumerate(zip(g.trace.records, plain.trace.records, strict=True)):
            length = [5, 2, 4][i // times]
            assert record.prompt_length == length
            assert record.finish == bare.finish
            given = inputs["input_ids"][i // times, 5 - length :]
            assert record.tokens.tolist() == [*given.tolist(), *bare.tokens.tolist()]
            for name in TOKEN_COLUMNS:
                expected = forced[i // times].numbers[name]
                expected = expected if scored else torch.full_like(expected, torch.nan)
                torch.testing.assert_close(
                    record.numbers[name], torch.cat([expected, bare.numbers[name]]), rtol=1e-9, atol=0, equal_nan=True
                )
            assert len(record.rivals) == len(record.rival_log_probabilities) == len(record)


def test_prompts_without_a_mask_are_as_generate_saw_them():
    model, inputs = without_padding(gpt2()), left_padded([5, 2])
    g = BoCGeneration(model, prompt=True)
    run(model, g, inputs, True, max_new_tokens=2)
    assert [record.tokens[:5].tolist() for record in g.trace.records] == inputs["input_ids"].tolist()


def test_in_inference_mode():
    model, inputs = without_padding(gpt2()), prompts()
    g = BoCGeneration(eos_token_id=EOS, pad_token_id=PAD)
    with torch.inference_mode():
        output = run(model, g, inputs, True)
    compare(model, g.trace, output, inputs, 5, "")
