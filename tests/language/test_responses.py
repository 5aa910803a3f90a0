"""Responses of servers: in each format the bounds contain the truth, whatever token was emitted."""

import json
import math
import warnings
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.language import servers
from torch_boc.functional.tokens import token_numbers
from torch_boc.language import Trace
from torch_boc.language.responses import read_response

BOUNDED = ("lost_coins", "gap", "concentration")
K, CLASSES = 3, 12


def drawn(rows, classes=CLASSES, *, scale=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator, dtype=torch.float64) * scale
    return logits, torch.randint(classes, (rows,), generator=generator)


def numbers_of(response, classes=CLASSES):
    return Trace.from_response(response, num_classes=classes).records[0].numbers


def chat(*items):
    return servers.choices({"content": list(items)})


def assert_contains(numbers, truth):
    """Where a number is known it is right, and the truth lies between the bounds.

    The odds are rounded to 1e-16, which is much of tiny odds, and so of the concentration.
    """
    for name in ("log_probability", "rank", "confidence", "odds"):
        known = ~numbers[name].isnan()
        torch.testing.assert_close(numbers[name][known], getattr(truth, name).double()[known], rtol=1e-9, atol=1e-12)
    known = ~numbers["confidence"].isnan()
    for name in BOUNDED:
        low, value, high = (numbers[name + end][known] for end in ("_lower", "", "_upper"))
        true = getattr(truth, name)[known]
        slack = 1e-7 * true.abs() + 1e-10 + (1e-14 / truth.odds[known] if name == "concentration" else 0.0)
        assert ((low <= true + slack) & (true - slack <= high)).all(), name
        assert ((low <= value) & (value <= high)).all()


@pytest.mark.parametrize("server", servers.FORMATS)
@settings(max_examples=40)
@given(data=st.data())
def test_the_bounds_contain_the_truth(server, data):
    classes = data.draw(st.integers(4, 20))
    k = data.draw(st.integers(2, classes - 1))
    scale, seed = data.draw(st.sampled_from([0.1, 1.0, 3.0, 10.0])), data.draw(st.integers(0, 10**6))
    logits, tokens = drawn(6, classes, scale=scale, seed=seed)
    numbers, truth = numbers_of(server(logits, tokens, k), classes), token_numbers(logits, tokens)
    assert_contains(numbers, truth)
    assert not numbers["log_probability"].isnan().any()
    unknown = numbers["confidence"].isnan()
    # In a completion, a token of rank k beside longer lists may have been added to a list that lost another one.
    assert not unknown.any() or (server is servers.completion and (truth.rank[unknown] == k).all())


@pytest.mark.parametrize("server", servers.FORMATS)
def test_one_token_given_and_all(server):
    """The chat of vLLM gives the emitted token alone then; it is the likeliest only if it has more than half."""
    logits, tokens = drawn(300, seed=3)
    numbers, truth = numbers_of(server(logits, tokens, 1)), token_numbers(logits, tokens)
    assert_contains(numbers, truth)
    if server in (servers.vllm_chat, servers.vllm_chat_ids):
        assert numbers["confidence"].isnan().tolist() == (truth.log_probability <= math.log(0.5)).tolist()
    numbers = numbers_of(server(logits, tokens, CLASSES))
    for name in (*BOUNDED, "rank"):
        torch.testing.assert_close(numbers[name], getattr(truth, name).double(), rtol=1e-9, atol=1e-9)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 8))
def test_a_server_that_keeps_tokens_by_their_text(seed, k):
    """Where the list has lost a token, or the emitted one cannot be found in it, less is claimed."""
    logits, tokens = drawn(6, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = numbers_of(servers.sglang_chat(logits, tokens, k))
    assert_contains(numbers, token_numbers(logits, tokens))


def test_an_emitted_token_that_is_not_found_is_said():
    """It is likely enough to be in the list, and its text is another one there."""
    top = [servers.entry(i, math.log(p)) for i, p in enumerate((0.5, 0.3, 0.1))]
    held_back = {**servers.entry(None, math.log(0.3), ""), "top_logprobs": top}
    unlikely = {**servers.entry(9, math.log(0.01)), "top_logprobs": top}
    with pytest.warns(UserWarning, match=r"got 1 tokens that are likely .* NaN; .* return_tokens_as_token_ids=True"):
        numbers = numbers_of(chat(held_back, unlikely))
    for name in ("confidence", "log_probability", "lost_coins_upper"):
        assert numbers[name].isnan().tolist() == [True, False], name


@pytest.mark.parametrize("server", servers.FORMATS)
def test_what_is_read(server):
    logits, tokens = drawn(5)
    record = Trace.from_response(server(logits, tokens, K), num_classes=CLASSES).records[0]
    torch.testing.assert_close(record.numbers["log_probability"], logits.log_softmax(-1)[range(5), tokens])
    assert (record.rival_log_probabilities.diff(dim=-1) <= 0).all()
    assert record.finish == ("length" if server is servers.completion else "stop")
    if server is not servers.llama_chat:
        assert "".join(record.texts) == "".join(servers.name(token) for token in tokens.tolist())
    has_ids = server in (servers.vllm_chat_ids, servers.llama_chat, servers.request_output)
    assert record.tokens.tolist() == (tokens.tolist() if has_ids else [-1] * 5)
    assert record.rivals[:, 0].tolist() == (logits.argmax(-1).tolist() if has_ids else [-1] * 5)


def test_the_cap_is_the_last_of_the_likeliest():
    """Not the emitted token, unless its rank says that it is among them."""
    logits = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]] * 2, dtype=torch.float64)
    logprobs, tokens = logits[0].log_softmax(-1), torch.tensor([4, 2])
    for server, caps in ((servers.openai_chat, [2, 1]), (servers.request_output, [2, 2]), (servers.vllm_chat, [1, 1])):
        found = [step.cap for step in read_response(server(logits, tokens, 3))[0][0]]
        torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), logprobs[caps])


class Model(SimpleNamespace):
    """An object with attributes, as the clients of servers return."""

    def model_dump(self):
        return vars(self)


@pytest.mark.parametrize("server", [servers.openai_chat, servers.completion])
def test_objects_dictionaries_and_json(server):
    response = server(*drawn(4), K)
    text = json.dumps(response)
    for form in (text, text.encode(), json.loads(text, object_hook=lambda x: Model(**x)), [response]):
        assert read_response(form) == read_response(response)


def test_the_prompt_and_json_of_a_request():
    """Nothing precedes the first token, neither here nor in a completion with its echo."""
    echo = servers.completion(*drawn(4), K)
    logprobs = echo["choices"][0]["logprobs"]
    logprobs["token_logprobs"][0] = logprobs["top_logprobs"][0] = None
    assert numbers_of(echo)["confidence"].isnan().tolist() == [True, False, False, False]
    response = servers.request_output(*drawn(9), K, prompt=4)
    trace = Trace.from_response(response, num_classes=CLASSES)
    assert (trace.records[0].prompt_length, trace.records[0].finish) == (4, "stop")
    assert trace.records[0].numbers["log_probability"].isnan().tolist() == [True] + [False] * 8
    one = response.outputs[0]
    steps = [{str(key): vars(value) for key, value in step.items()} for step in one.logprobs]  # keys are texts in JSON
    (found,) = read_response(json.dumps({"outputs": [{**vars(one), "logprobs": steps}]}))
    assert found[0] == read_response(response)[0][0][4:]


def test_without_the_likeliest_tokens():
    """Then only an emitted token of more than half of the probability says anything of the others."""
    numbers = numbers_of(chat(*({**servers.entry(0, math.log(p)), "top_logprobs": []} for p in (0.9, 0.3))))
    assert numbers["confidence"].isnan().tolist() == numbers["rank"].isnan().tolist() == [False, True]
    assert numbers["confidence"][0].item() == pytest.approx(0.9)


def test_tokens_outside_of_the_list_are_not_the_likeliest():
    """Their rank is not known, but that is."""
    top = [servers.entry(i, math.log(p)) for i, p in enumerate((0.5, 0.3, 0.1))]
    tokens = (top[0], top[1], servers.entry(9, math.log(0.01)), servers.entry(8, -9999.0))
    trace = Trace.from_response(chat(*({**x, "top_logprobs": top} for x in tokens)), num_classes=50)
    assert trace.records[0].numbers["rank"].isnan().tolist() == [False, False, True, True]
    assert trace.summary()["share_of_rank_1"].tolist() == [0.25]
    alone = chat(*({**x, "top_logprobs": [x]} for x in (servers.entry(0, -0.1), servers.entry(0, -0.7))))
    assert Trace.from_response(alone, num_classes=50).summary()["share_of_rank_1"].tolist() == [1.0]  # of the first


@pytest.mark.parametrize("floor", [-9999.0, -math.inf])
def test_very_unlikely_tokens(floor):
    sure, rest = servers.entry(1, 0.0), {**servers.entry(2, 0.0), "logprob": floor}
    unknown = {"token": " x", "logprob": floor, "top_logprobs": [servers.entry(1, -0.001), servers.entry(2, -7.5)]}
    trace = Trace.from_response(chat(unknown, {**sure, "top_logprobs": [sure, rest]}), num_classes=1000)
    numbers = trace.records[0].numbers
    assert trace.records[0].rival_log_probabilities[1].tolist() == [0.0, -math.inf]
    assert numbers["log_probability"].isnan().tolist() == [True, False]
    assert numbers["confidence"].tolist() == [pytest.approx(math.exp(-0.001), rel=1e-5), 1.0]
    assert numbers["lost_coins_upper"][1] == 0


def test_what_cannot_be_log_probabilities_is_said():
    """There is no room for the rest of 1 under a second token at -9999. Rounding, also to above 0, does not matter."""
    masked = {**servers.entry(0, -0.1), "top_logprobs": [servers.entry(0, -0.1), servers.entry(1, -9999.0)]}
    sure = {**servers.entry(0, 1e-6), "top_logprobs": [servers.entry(0, 1e-6), servers.entry(1, -5.0)]}
    with pytest.warns(UserWarning, match=r"cannot sum to 1 at 2 tokens, whose numbers are NaN; .*has 1,000 tokens"):
        numbers = numbers_of(chat(masked, sure, masked), 1000)
    for name in (*BOUNDED, "confidence", "odds", "lost_coins_lower", "gap_upper"):
        assert numbers[name].isnan().tolist() == [True, False, True], name
    assert numbers["log_probability"].tolist() == [-0.1, 0.0, -0.1]


def test_tokens_of_the_same_text():
    """In a chat they are two; in a completion one is lost, and then nothing is claimed of the cap."""
    strange = {"token": "\ufffd", "bytes": [239, 191, 189]}
    top = [{**strange, "logprob": -1.0}, {**strange, "logprob": -2.0}, servers.entry(5, -3.0)]
    ((step,), *_) = read_response(chat({**strange, "logprob": -2.0, "top_logprobs": top}))[0]
    assert ([x.logprob for x in step.given], step.logprob, step.cap) == ([-1.0, -2.0, -3.0], -2.0, -3.0)
    tops = [{name: -1.0 - i for i, name in enumerate(names)} for names in ("abcd", "ad", "a\ufffdcd")]
    logprobs = {"tokens": ["a"] * 3, "token_logprobs": [-1.0] * 3, "top_logprobs": tops}
    steps = read_response({"choices": [{"logprobs": logprobs}]})[0][0]
    assert [step.cap for step in steps] == [-4.0, 0.0, 0.0]


def test_texts_and_ids():
    parts = [
        {"token": part.decode("utf-8", "backslashreplace"), "bytes": list(part), "logprob": -0.1, "top_logprobs": []}
        for part in (b"na", b"\xc3", b"\xaf", b"ve")
    ]
    trace = Trace.from_response(chat(*parts), num_classes=50)
    assert trace.to_frame()["text"].tolist() == ["na", "", "ï", "ve"]

    words = SimpleNamespace(decode=lambda tokens, **_: "".join(map(servers.name, tokens)))
    words.convert_ids_to_tokens = servers.name
    logits, tokens = drawn(4)
    response = servers.vllm_chat_ids(logits, tokens, K)
    for item in response["choices"][0]["logprobs"]["content"]:
        item["bytes"] = None  # as vLLM writes if it does not know the text
    trace = Trace.from_response(response, num_classes=CLASSES, tokenizer=words)
    assert trace.text() == words.decode(tokens.tolist())
    assert trace.sequences[0].rival_texts[0][0] == servers.name(int(logits[0].argmax()))
    assert Trace.from_response(response, num_classes=CLASSES).text().startswith(f"[{tokens[0]}]")


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ("{", "expected a response as JSON"),
        ({"error": "no"}, "expected a response with `choices` .* got a dict with 'error'"),
        (servers.choices(None), "expected log-probabilities in each choice, got none; ask the server"),
        (SimpleNamespace(outputs=[SimpleNamespace(token_ids=[1], logprobs=None)]), r"set SamplingParams\(logprobs=20"),
        (chat({"id": 1, "token": "a", "prob": 0.7, "top_probs": []}), "probabilities after sampling.*=false"),
        (chat(servers.entry(1, 17.5)), "expected log-probabilities, .* got 17.5; .*not for logits"),
        (chat({**servers.entry(1, -1.0), "top_logprobs": [{"token": "a"}]}), "got None"),
        ([Model(object="chat.completion.chunk", choices=[])], "expected a whole response, got a piece of a st"),
    ],
)
def test_what_is_refused(response, message):
    with pytest.raises(ValueError, match=message):
        read_response(response)
