"""Every recorded number is that of the model, run over the finished text; the text is the same as without recording."""

from contextlib import nullcontext

import pytest
import torch
from torch._subclasses import FakeTensorMode
from transformers import GenerationConfig, TopKLogitsWarper

from tests.dispatch import MemoryMeter, NoHostSync
from tests.transformers import cases
from tests.transformers.cases import EOS, PAD, VOCABULARY, forward, generating, gpt2, llama, prompts, t5
from torch_boc.functional.tokens import TOKEN_COLUMNS, token_numbers
from torch_boc.transformers import BoCGeneration, generation

DRAWN = {"do_sample": True, "temperature": 9.0}
WAYS = {
    "greedy": {},
    "top-k": {**DRAWN, "top_k": 30, "top_p": 0.9},
    "several": {**DRAWN, "num_return_sequences": 2},
    "scores": {**DRAWN, "output_scores": True, "return_dict_in_generate": True},
}
SHORT = {"max_new_tokens": 4, "pad_token_id": PAD}
IDS, SCORES = torch.zeros(2, 3, dtype=torch.long), torch.randn(2, 9)


@pytest.fixture(scope="module")
def model():
    return generating(gpt2())


def run(generator, **options):
    """What a model or a recorder generates."""
    torch.manual_seed(3)
    options = {"max_new_tokens": 14, "pad_token_id": PAD, "eos_token_id": EOS, **prompts((5, 2, 4)), **options}
    return generator.generate(**options)


def assert_numbers(record, logits):
    expected = token_numbers(logits, record.tokens)
    assert len(record) == len(logits) > 0
    for name in TOKEN_COLUMNS:
        torch.testing.assert_close(record.numbers[name], getattr(expected, name).double(), rtol=3e-5, atol=1e-6)
    assert torch.equal(record.rivals, expected.rivals)
    found = record.rival_log_probabilities
    torch.testing.assert_close(found, expected.rival_log_probabilities, rtol=3e-5, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [gpt2, llama])
def test_numbers_are_those_of_the_finished_text(make, way):
    model = generating(make())
    g = BoCGeneration(model)
    bare, output = run(model, **WAYS[way]), run(g, **WAYS[way])
    if way == "scores":
        assert all(torch.equal(x, y) for x, y in zip(bare.scores, output.scores, strict=True))
        bare, output = bare.sequences, output.sequences
    assert torch.equal(output, bare)
    assert g.trace.num_classes == VOCABULARY
    inputs, times = prompts((5, 2, 4)), len(output) // 3
    for i, (record, sequence) in enumerate(zip(g.trace.records, output, strict=True)):
        assert record.tokens.tolist() == sequence[5 : 5 + len(record)].tolist()
        assert set(sequence[5 + len(record) :].tolist()) <= {PAD}
        assert record.finish == ("eos" if int(record.tokens[-1]) in EOS else "length")
        given = inputs["input_ids"][i // times][inputs["attention_mask"][i // times] > 0]
        assert_numbers(record, forward(model, torch.cat([given, record.tokens]))[len(given) - 1 : -1])
    assert len({len(record) for record in g.trace.records}) > 1 or way == "greedy"


def test_a_model_with_an_encoder():
    model, inputs = generating(t5()), prompts()
    g = BoCGeneration(model, prompt=True)
    output = run(g, **inputs, **DRAWN)
    for record, sequence, given in zip(g.trace.records, output, inputs["input_ids"], strict=True):
        assert record.prompt_length == 1
        length = len(record)
        with torch.no_grad():
            logits = model(input_ids=given[None], decoder_input_ids=sequence[None, :length]).logits[0]
        expected = token_numbers(logits[:-1], record.tokens[1:])
        torch.testing.assert_close(record.numbers["odds"][1:], expected.odds, rtol=3e-5, atol=1e-6)


def test_a_second_generate_replaces_the_first(model):
    """Even in inference mode, and with the very tensor that the last one returned as the new prompt."""
    g = BoCGeneration(model)

    def generated(ids):
        output = g.generate(**{**SHORT, "input_ids": ids, "attention_mask": torch.ones_like(ids), "eos_token_id": None})
        assert [record.tokens.tolist() for record in g.trace.records] == output[:, -4:].tolist()
        assert_numbers(g.trace.records[0], forward(model, output[0])[ids.shape[1] - 1 : -1])
        return output

    with torch.inference_mode():
        first = generated(prompts((4, 4))["input_ids"])
    generated(generated(first))


def test_a_later_processor_may_work_in_place(model):
    """As a processor that comes after ours in a call of transformers."""
    recording, given = generation.Recording([], 5), SCORES.clone()
    recording(IDS, given).mul_(2)
    recording(torch.cat([IDS, IDS[:, :1]], 1), None)
    (record, _) = recording.records([], 4)
    assert_numbers(record, SCORES[:1])


def test_what_ends_a_sequence():
    """The settings of the call, of its config or of the model say which token does, and how many are allowed."""
    model, options, given = generating(gpt2()), {"max_new_tokens": 9, "pad_token_id": PAD}, prompts()
    free = model.generate(**given, **options, eos_token_id=None)
    eos = options["eos_token_id"] = int(free[0, 7])
    length = free[0, 5:].tolist().index(eos) + 1
    g, config, mask = BoCGeneration(model), GenerationConfig(**options), {"attention_mask": given["attention_mask"]}
    calls = [
        lambda: g.generate(**given, **options),
        lambda: g.generate(**given, generation_config=config),
        lambda: g.generate(given["input_ids"], config, **mask),
        lambda: model.generation_config.update(**options) or g.generate(**given),
    ]
    for call in calls:
        call()
        found = [(len(record), record.finish) for record in g.trace.records]
        assert found[0] == (length, "eos")
        assert all(x == (9, "length") or x[1] == "eos" for x in found)
    output = g.generate(**given, **{**options, "eos_token_id": None})  # which wins over the end of the model
    assert torch.equal(output, free)
    assert [len(record) for record in g.trace.records] == [9] * 3


def test_a_stop_string_where_padding_also_ends_sequences():
    """What follows the stop string is padding, not the end that the model chose."""
    tokenizer, model = cases.byte_tokenizer(), cases.byte_model()
    inputs = tokenizer(["the sun", "nus eht"], return_tensors="pt")
    options = {"max_new_tokens": 12, "pad_token_id": 1, "eos_token_id": 1, "tokenizer": tokenizer}
    g = BoCGeneration(model, tokenizer)
    g.generate(**inputs, **options)
    first, second = (g.trace.text(i) for i in range(2))
    assert g.trace.records[0].finish == "length"
    string = next(x for x in first if x not in second)
    output = g.generate(**inputs, **options, stop_strings=[string])
    assert output[0, -1] == 1
    assert (g.trace.text(0), g.trace.records[0].finish) == (first[: first.index(string) + 1], "")
    assert (g.trace.text(1), g.trace.records[1].finish) == (second, "length")
    options |= {"max_new_tokens": None, "max_length": 7 + 12}
    g.generate(**inputs, **options, stopping_criteria=[lambda ids, scores: torch.tensor([ids.shape[1] > 9, False])])
    assert [(len(record), record.finish) for record in g.trace.records] == [(3, ""), (12, "length")]


@pytest.mark.parametrize("options", [{}, {**DRAWN, "num_return_sequences": 2}], ids=["one", "several"])
def test_prompts(model, options):
    """With the prompt in the records, its padding is left out, and it has no numbers."""
    plain, g, inputs = BoCGeneration(model), BoCGeneration(model, prompt=True), prompts((5, 2, 4))
    run(plain, **options)
    times = len(run(g, **options)) // 3
    for i, (record, bare) in enumerate(zip(g.trace.records, plain.trace.records, strict=True)):
        before = inputs["input_ids"][i // times][inputs["attention_mask"][i // times] > 0]
        assert (record.prompt_length, record.finish) == (len(before), bare.finish)
        assert record.tokens.tolist() == [*before.tolist(), *bare.tokens.tolist()]
        for name, expected in bare.numbers.items():
            assert record.numbers[name][: len(before)].isnan().all()
            assert torch.equal(record.numbers[name][len(before) :], expected)
        assert record.rivals.tolist() == [[-1] * 5] * len(before) + bare.rivals.tolist()
        assert torch.equal(record.rival_log_probabilities[len(before) :], bare.rival_log_probabilities)


@pytest.mark.parametrize(("kept", "spoiled"), [(24, True), (25, False)])
def test_masks(model, kept, spoiled):
    """A few suppressed tokens are normal; a mask on most of them makes the numbers of all classes meaningless."""
    g, options = BoCGeneration(model), {**prompts(), **SHORT, "eos_token_id": None}
    with pytest.warns(UserWarning, match="12 tokens .* masked with -inf") if spoiled else nullcontext():
        g.generate(**options, logits_processor=[TopKLogitsWarper(kept)])
    for record in g.trace.records:
        assert record.numbers["masked"].tolist() == [50 - kept] * 4
        for name, column in record.numbers.items():
            assert column.isnan().all() == (spoiled and name in ("gap", "lost_coins", "concentration"))


def steps(number, rows=3, device="cpu", classes=600, rivals=5):
    """A recording after the calls that `generate` makes."""
    g = generation.Recording([], rivals)
    ids = torch.zeros(rows, 4, dtype=torch.long, device=device)
    for _ in range(number):
        scores = torch.randn(rows, classes, device=device)
        assert g(ids, scores) is scores
        ids = torch.cat([ids, torch.randint(classes, (rows, 1), device=device)], 1)
        stopped = g(ids, None)
        assert (stopped.shape, stopped.dtype) == ((rows,), torch.bool)
    return g


def test_nothing_is_read_back():
    """Fake tensors have no values: whatever asks for one fails."""
    with NoHostSync():
        steps(5)
    with FakeTensorMode(), NoHostSync():
        steps(3, device="cuda")


@pytest.mark.parametrize(("rivals", "size"), [(1, 48), (5, 80), (10, 120)])
def test_bytes_of_a_token(rivals, size):
    """They do not depend on the vocabulary."""
    live = []
    for number in (8, 24):
        with MemoryMeter() as meter:
            recording = steps(number, 2, rivals=rivals)
            assert sum(row.nbytes for row in recording.rows) == size * 2 * number
            recording.scored = None
            live.append(meter.live)
    assert live[1] - live[0] == size * 2 * 16


@pytest.mark.parametrize("options", [{"num_beams": 2}, {"assistant_model": gpt2().eval(), **prompts((5,))}])
def test_what_cannot_be_recorded(model, options):
    g = BoCGeneration(model)
    with pytest.raises(ValueError, match=r"beam search and assisted .* cannot be recorded"):
        g.generate(**{**prompts(), **SHORT, "eos_token_id": None, **options})
    with pytest.raises(ValueError, match="expected a recorded call of generate, got none"):
        _ = g.trace
    g.generate(**prompts(), **SHORT)  # it records as before
    assert len(g.trace) == 3


def test_what_does_not_fit():
    recording, first = generation.Recording([], 5), torch.tensor([[0, 0, 0, 1], [0, 0, 0, 2]])
    recording(IDS, SCORES)
    with pytest.raises(ValueError, match="expected one token for each sequence at each step"):
        recording(torch.zeros(2, 5, dtype=torch.long), None)
    recording(first, None)
    recording(first, SCORES)
    recording(torch.cat([first[[1, 1]], first[:, -1:]], 1), None)  # rows that change places, as those of beams do
    with pytest.raises(ValueError, match="expected one token for each sequence at each step"):
        recording.records([], 5)
