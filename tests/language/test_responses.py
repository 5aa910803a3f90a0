"""Responses of servers: in each format the bounds contain the truth, whatever token was emitted."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.language import servers
from torch_boc.functional.tokens import token_numbers
from torch_boc.language import Trace, read_response

BOUNDED = ("lost_coins", "gap", "concentration")
K, CLASSES = 3, 12


def drawn(rows, classes, *, scale=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator, dtype=torch.float64) * scale
    return logits, torch.randint(classes, (rows,), generator=generator)


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
        assert (low <= true + slack).all(), name
        assert (high >= true - slack).all(), name
        assert (low <= value).all()
        assert (value <= high).all()


@pytest.mark.parametrize("server", servers.FORMATS)
@given(data=st.data())
def test_the_bounds_contain_the_truth(server, data):
    classes = data.draw(st.integers(4, 20))
    k = data.draw(st.integers(2, classes - 1))
    scale, seed = data.draw(st.sampled_from([0.1, 1.0, 3.0, 10.0])), data.draw(st.integers(0, 10**6))
    logits, tokens = drawn(6, classes, scale=scale, seed=seed)
    numbers = Trace.from_response(server(logits, tokens, k), num_classes=classes).records[0].numbers
    assert_contains(numbers, token_numbers(logits, tokens))
    assert not numbers["log_probability"].isnan().any()
    unknown = numbers["confidence"].isnan()
    # In a completion, a token of rank k beside longer lists may have been added to a list that lost another one.
    assert not unknown.any() or (
        server is servers.completion and (token_numbers(logits, tokens).rank[unknown] == k).all()
    )
    assert numbers["entropy"].isnan().all()


@pytest.mark.parametrize("server", servers.FORMATS)
def test_one_likeliest_token_may_be_too_few(server):
    """The chat of vLLM gives the emitted token alone then; it is the likeliest only if it has more than half."""
    logits, tokens = drawn(300, CLASSES, seed=3)
    numbers = Trace.from_response(server(logits, tokens, 1), num_classes=CLASSES).records[0].numbers
    truth = token_numbers(logits, tokens)
    assert_contains(numbers, truth)
    if server in (servers.vllm_chat, servers.vllm_chat_ids):
        sure = truth.log_probability > math.log(0.5)
        assert numbers["confidence"].isnan().tolist() == (~sure).tolist()
        assert sure.any()


def test_all_tokens_given():
    logits, tokens = drawn(20, CLASSES)
    numbers = (
        Trace.from_response(servers.request_output(logits, tokens, CLASSES), num_classes=CLASSES).records[0].numbers
    )
    truth = token_numbers(logits, tokens)
    for name in (*BOUNDED, "rank", "confidence"):
        torch.testing.assert_close(numbers[name], getattr(truth, name).double(), rtol=1e-9, atol=1e-9)


def test_what_is_read():
    logits, tokens = drawn(5, CLASSES)
    for server in servers.FORMATS:
        (found,) = read_response(server(logits, tokens, K))
        assert len(found) == 5
        assert found.logprobs.shape[-1] in (K, K + 1)
        own = found.logprobs.gather(-1, found.index[:, None]).squeeze(-1)
        torch.testing.assert_close(own, logits.log_softmax(-1)[range(5), tokens])
        assert (found.logprobs.diff(dim=-1) <= 0).all()
        if server is not servers.vllm_chat_ids:
            assert "".join(found.texts) == "".join(servers.name(token) for token in tokens.tolist())
        if server in (servers.vllm_chat_ids, servers.request_output):
            assert found.tokens.tolist() == tokens.tolist()
        else:
            assert found.tokens.tolist() == [-1] * 5


def test_the_cap_is_the_last_of_the_likeliest():
    """Not the emitted token, unless its rank says that it is among them."""
    logits = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]] * 2, dtype=torch.float64)
    logprobs, tokens = logits[0].log_softmax(-1), torch.tensor([4, 2])
    for server, caps in ((servers.openai_chat, [2, 1]), (servers.request_output, [2, 2]), (servers.vllm_chat, [1, 1])):
        (found,) = read_response(server(logits, tokens, 3))
        torch.testing.assert_close(found.cap, logprobs[caps])


class Model:
    """An object with attributes, as the clients of servers return."""

    def __init__(self, content):
        self.__dict__ = {key: built(value) for key, value in content.items()}

    def model_dump(self):
        return dict(vars(self))


def built(value):
    if isinstance(value, dict):
        return Model(value)
    return [built(x) for x in value] if isinstance(value, list) else value


@pytest.mark.parametrize("server", [servers.openai_chat, servers.completion])
@pytest.mark.parametrize("form", [json.dumps, lambda x: json.dumps(x).encode(), built, lambda x: [x]])
def test_objects_dictionaries_and_json(server, form):
    response = server(*drawn(4, CLASSES), K)
    (found,), (expected,) = read_response(form(response)), read_response(response)
    torch.testing.assert_close(found.logprobs, expected.logprobs, rtol=0, atol=0)
    assert found.texts == expected.texts


def test_request_outputs_in_json():
    """Their keys are texts then."""
    output = servers.request_output(*drawn(4, CLASSES), K)
    one = output.outputs[0]
    steps = [{str(key): vars(value) for key, value in step.items()} for step in one.logprobs]
    text = json.dumps({"outputs": [{**vars(one), "logprobs": steps}]})
    torch.testing.assert_close(read_response(text)[0].logprobs, read_response(output)[0].logprobs)


def test_the_prompt_of_a_request():
    logits, tokens = drawn(9, CLASSES)
    trace = Trace.from_response(servers.request_output(logits, tokens, K, prompt=4), num_classes=CLASSES)
    table = trace.to_frame()
    assert table["is_prompt"].tolist() == [True] * 4 + [False] * 5
    assert table["log_probability"].isna().tolist() == [True] + [False] * 8
    assert trace.records[0].finish == "stop"


def test_an_echo_begins_with_nothing():
    response = servers.completion(*drawn(4, CLASSES), K)
    logprobs = response["choices"][0]["logprobs"]
    logprobs["token_logprobs"][0] = logprobs["top_logprobs"][0] = None
    trace = Trace.from_response(response, num_classes=CLASSES)
    assert trace.to_frame()["confidence"].isna().tolist() == [True, False, False, False]
    assert trace.text().startswith(" w")
    assert trace.summary()["perplexity"][0] > 1


def test_without_the_likeliest_tokens():
    """Then only an emitted token of more than half of the probability says anything of the others."""
    content = [{**servers.entry(0, math.log(p)), "top_logprobs": []} for p in (0.9, 0.3)]
    numbers = Trace.from_response(servers.choices({"content": content}), num_classes=CLASSES).records[0].numbers
    assert numbers["confidence"].isnan().tolist() == [False, True]
    assert numbers["rank"].isnan().tolist() == [False, True]
    assert numbers["confidence"][0].item() == pytest.approx(0.9)
    # What is left is 0.1: at least on one token, at most on all.
    assert numbers["lost_coins_lower"][0].item() == pytest.approx(0.1, rel=1e-9)
    assert numbers["lost_coins_upper"][0].item() == pytest.approx(11 * (0.1 / 9.9) / (1 + 0.1 / 9.9), rel=1e-9)


@pytest.mark.parametrize("floor", [-9999.0, -math.inf])
def test_very_unlikely_tokens(floor):
    top = [servers.entry(1, -0.001), servers.entry(2, -7.5)]
    unknown = {"token": " x", "logprob": floor, "bytes": None, "top_logprobs": top}
    masked = {
        **servers.entry(1, 0.0),
        "top_logprobs": [servers.entry(1, 0.0), {**servers.entry(2, 0.0), "logprob": floor}],
    }
    trace = Trace.from_response(servers.choices({"content": [unknown, masked]}), num_classes=1000)
    numbers = trace.records[0].numbers
    assert numbers["log_probability"].isnan().tolist() == [True, False]
    assert numbers["confidence"].tolist() == [pytest.approx(math.exp(-0.001), rel=1e-5), 1.0]
    assert numbers["lost_coins_upper"][1] == 0
    assert trace.html().count("<span class='q") == 2 + 8


def test_rounded_probabilities_give_no_nan():
    """They may sum to more than 1, and a logarithm may be a little more than 0."""
    top = [servers.entry(0, math.log(0.7)), servers.entry(1, math.log(0.3)), servers.entry(2, math.log(0.01))]
    content = [
        {**top[0], "top_logprobs": top},
        {**servers.entry(0, 1e-6), "top_logprobs": [servers.entry(0, 1e-6), top[2]]},
    ]
    numbers = Trace.from_response(servers.choices({"content": content}), num_classes=50).records[0].numbers
    for name in (*BOUNDED, "confidence", "odds", "log_probability", "rank"):
        assert numbers[name].isfinite().all(), name


def test_what_cannot_be_log_probabilities_is_said():
    """There is no room for the rest of 1 under a second token at -9999, and none in a vocabulary that is too small."""
    masked = {**servers.entry(0, -0.1), "top_logprobs": [servers.entry(0, -0.1), servers.entry(1, -9999.0)]}
    sure = {**servers.entry(0, -0.001), "top_logprobs": [servers.entry(0, -0.001), servers.entry(1, -8.0)]}
    response = servers.choices({"content": [masked, sure, masked]})
    with pytest.warns(UserWarning, match=r"cannot sum to 1 at 2 tokens, whose numbers are NaN; .*has 1,000 tokens"):
        numbers = Trace.from_response(response, num_classes=1000).records[0].numbers
    for name in (*BOUNDED, "confidence", "odds", *(name + end for name in BOUNDED for end in ("_lower", "_upper"))):
        assert numbers[name].isnan().tolist() == [True, False, True], name
    assert numbers["log_probability"].tolist() == [-0.1, -0.001, -0.1]
    with pytest.warns(UserWarning, match=r"cannot sum to 1 at 9 tokens"):
        Trace.from_response(servers.openai_chat(*drawn(9, 5000, scale=0.01), K), num_classes=50)


def test_tokens_of_the_same_text():
    """In a chat they are two; in a completion one is lost, and then nothing is claimed of the cap."""
    strange = {"token": "\ufffd", "bytes": [239, 191, 189]}
    top = [{**strange, "logprob": -1.0}, {**strange, "logprob": -2.0}, servers.entry(5, -3.0)]
    content = [{**strange, "logprob": -2.0, "top_logprobs": top}]
    (found,) = read_response(servers.choices({"content": content}))
    assert found.logprobs.tolist() == [[-1.0, -2.0, -3.0]]
    assert found.index.tolist() == [1]
    response = servers.completion(*drawn(3, CLASSES), K)
    logprobs = response["choices"][0]["logprobs"]
    logprobs["top_logprobs"] = [{name: -1.0 - i for i, name in enumerate("abcd")} for _ in range(3)]
    logprobs["tokens"], logprobs["token_logprobs"] = ["a", "a", "a"], [-1.0, -1.0, -1.0]
    del logprobs["top_logprobs"][1]["b"], logprobs["top_logprobs"][1]["c"]
    logprobs["top_logprobs"][2] = {"a": -1.0, "\ufffd": -2.0, "c": -3.0, "d": -4.0}
    assert read_response(response)[0].cap.tolist() == [-4.0, 0.0, 0.0]


def test_parts_of_a_character():
    content = []
    for part in (b"na", b"\xc3", b"\xaf", b"ve"):
        text = part.decode("utf-8", "backslashreplace")
        content.append({"token": text, "bytes": list(part), "logprob": -0.1, "top_logprobs": []})
    trace = Trace.from_response(servers.choices({"content": content}), num_classes=50)
    assert trace.text() == "naïve"
    assert trace.to_frame()["text"].tolist() == ["na", "", "ï", "ve"]


def test_ids_and_a_tokenizer():
    class Words:
        def decode(self, tokens, **_):
            return "".join(servers.name(token) for token in tokens)

    logits, tokens = drawn(4, CLASSES)
    response = servers.vllm_chat_ids(logits, tokens, K)
    trace = Trace.from_response(response, num_classes=CLASSES, tokenizer=Words())
    assert trace.text() == Words().decode(tokens.tolist())
    assert trace.sequences[0].rival_labels[0][0] == servers.name(int(logits[0].argmax()))
    assert Trace.from_response(response, num_classes=CLASSES).text().startswith(f"[{tokens[0]}]")


def test_several_choices():
    one = servers.openai_chat(*drawn(3, CLASSES), K)
    one["choices"] += servers.openai_chat(*drawn(5, CLASSES, seed=1), K)["choices"]
    assert [len(record) for record in Trace.from_response(one, num_classes=CLASSES).records] == [3, 5]
    assert [len(x) for x in Trace.from_response(one, num_classes=CLASSES, choice=1).records] == [5]
    with pytest.raises(ValueError, match="expected a choice from 0 to 1, got 2"):
        Trace.from_response(one, num_classes=CLASSES, choice=2)


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ("{", "expected a response as JSON"),
        ({"error": "no"}, "expected a response with `choices` .* got dict with the fields error"),
        (3, "got int with no fields"),
        (servers.choices(None), "expected log-probabilities in each choice, got none; ask the server"),
        (
            SimpleNamespace(outputs=[SimpleNamespace(token_ids=[1], logprobs=None)]),
            r"set SamplingParams\(logprobs=20\)",
        ),
        (
            servers.choices({"content": [servers.entry(1, 17.5)]}),
            "expected log-probabilities, .* got 17.5; .*not for logits",
        ),
        (servers.choices({"content": [{**servers.entry(1, -1.0), "top_logprobs": [{"token": "a"}]}]}), "got None"),
        (
            [{**servers.openai_chat(*drawn(1, CLASSES), K), "object": "chat.completion.chunk"}] * 2,
            "expected a whole response, got a piece of a stream; join the `logprobs.content` of the chunks",
        ),
        (built({"object": "chat.completion.chunk", "choices": []}), "expected a whole response, got a piece of a st"),
    ],
)
def test_what_is_refused(response, message):
    with pytest.raises(ValueError, match=message):
        read_response(response)
