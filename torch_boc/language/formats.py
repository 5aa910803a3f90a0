"""The response formats: each is read into steps, one for each token, with what the server gave there."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .steps import Candidate, Emitted, Step, step_of
from .texts import UNKNOWN


class Choice(NamedTuple):
    """The steps of one choice, the prompt first."""

    steps: list[Step]
    prompt_length: int
    finish: str


def choices_of(response: Any) -> list[Choice]:
    """The choices of a response in any of the formats, or a ValueError that says what is missing."""
    if isinstance(response, str | bytes | bytearray):
        response = _from_json(response)
    if isinstance(response, list | tuple):
        return [choice for one in response for choice in choices_of(one)]
    if str(_get(response, "object") or "").endswith(".chunk"):
        raise ValueError(
            "expected a whole response, got a piece of a stream; join the `logprobs.content` of the chunks of each "
            "choice, or ask the server with stream=False"
        )
    outputs, choices = _get(response, "outputs"), _get(response, "choices")
    if outputs is not None:
        return [_vllm(response, output) for output in outputs]
    if choices is None:
        raise ValueError(
            "expected a response with `choices` (OpenAI) or `outputs` (vLLM's RequestOutput), got "
            f"{type(response).__name__} with {_fields(response)}"
        )
    return [_openai(choice) for choice in choices]


def _openai(choice: Any) -> Choice:
    logprobs, finish = _get(choice, "logprobs"), str(_get(choice, "finish_reason") or "")
    content, tokens = _get(logprobs, "content"), _get(logprobs, "tokens")
    if content is not None:
        return Choice([_chat_step(item) for item in content], 0, finish)
    if tokens is not None:
        return Choice(_completion_steps(logprobs, tokens), 0, finish)
    raise ValueError(
        "expected log-probabilities in each choice, got none; ask the server for them, for instance with "
        "logprobs=True and top_logprobs=20 (chat) or logprobs=5 (completions)"
    )


def _chat_step(item: Any) -> Step:
    text, chance = str(_get(item, "token")), _maybe(_get(item, "logprob"))
    listed = [(_key(x), _number(_get(x, "logprob"))) for x in _get(item, "top_logprobs") or []]
    # Two tokens may have the same text and bytes: the emitted one is the one of the same log-probability.
    same = [i for i, (key, x) in enumerate(listed) if key == _key(item) and abs(x - (chance or 0.0)) < 1e-3]
    others = [
        Candidate(_token_id(name), _plain(name), x, False)
        for i, ((name, _), x) in enumerate(listed)
        if i not in same[:1]
    ]
    return step_of(Emitted(_token_id(text), _plain(text), chance, _data(item, text)), others)


def _key(item: Any) -> tuple[str, tuple[int, ...]]:
    return str(_get(item, "token")), tuple(_get(item, "bytes") or ())


def _completion_steps(logprobs: Any, tokens: Sequence[str]) -> list[Step]:
    chances = _get(logprobs, "token_logprobs") or [None] * len(tokens)
    tops = [_items(top) for top in _get(logprobs, "top_logprobs") or [None] * len(tokens)]
    most = max((len(top) for top in tops), default=0)
    steps = []
    for token, chance, top in zip(tokens, chances, tops, strict=True):
        emitted = Emitted(_token_id(token), _plain(token), _maybe(chance), _plain(token).encode("utf-8", "replace"))
        others = [Candidate(_token_id(name), _plain(name), _number(x), False) for name, x in top if name != token]
        # Tokens of the same text are one entry, so that a shorter list may have lost a likely token. The emitted token
        # makes a list longer by one if it is not among the likeliest.
        least = min((x.logprob for x in others), default=0.0)
        inside = emitted.logprob is not None and emitted.logprob > least
        whole = len(top) == most or (len(top) == most - 1 and inside)
        steps.append(step_of(emitted, others, whole=whole and not any(UNKNOWN in name for name, _ in top)))
    return steps


def _vllm(response: Any, output: Any) -> Choice:
    prompt = _get(response, "prompt_logprobs")
    before = list(_get(response, "prompt_token_ids") or ()) if prompt else []
    after, logprobs = list(_get(output, "token_ids") or ()), _get(output, "logprobs")
    if logprobs is None:
        raise ValueError("expected log-probabilities in each output, got none; set SamplingParams(logprobs=20)")
    pairs = [*zip(before, prompt or [], strict=True), *zip(after, logprobs, strict=True)]
    return Choice([_vllm_step(*pair) for pair in pairs], len(before), str(_get(output, "finish_reason") or ""))


def _vllm_step(token: int, given: Any) -> Step:
    """A step from a dictionary of token ids; its keys are texts if it was in JSON."""
    found = {int(key): value for key, value in _items(given)}
    own = found.pop(token, None)
    text, rank = str(_get(own, "decoded_token") or ""), _get(own, "rank")
    emitted = Emitted(token, text, _maybe(_get(own, "logprob")), text.encode("utf-8", "replace"), rank)
    others = [
        Candidate(key, str(_get(x, "decoded_token") or ""), _number(_get(x, "logprob")), False)
        for key, x in found.items()
    ]
    return step_of(emitted, others)


def _data(item: Any, text: str) -> bytes:
    """The bytes of a token, which may be a part of a character."""
    given = _get(item, "bytes")
    return bytes(given) if given is not None and _token_id(text) < 0 else _plain(text).encode("utf-8", "replace")


def _number(value: Any) -> float:
    """A log-probability, or an error; rounding may make it a little larger than 0."""
    if not isinstance(value, int | float) or not value <= 0.01:
        raise ValueError(
            f"expected log-probabilities, which are at most 0, got {value!r}; ask the server for log-probabilities, "
            "not for logits"
        )
    return min(float(value), 0.0)


def _maybe(value: Any) -> float | None:
    return None if value is None else _number(value)


def _token_id(text: str) -> int:
    """The id in a text such as "token_id:123", which vLLM writes if it is asked for ids."""
    found = re.fullmatch(r"token(?:_id)?:(\d+)", text)
    return int(found[1]) if found else -1


def _plain(text: str) -> str:
    return "" if _token_id(text) >= 0 else text


def _from_json(text: str | bytes | bytearray) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"expected a response as JSON, got text that is not: {error}") from None


def _get(source: Any, name: str) -> Any:
    """A field of a dictionary or of an object; None if there is none."""
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def _items(source: Any) -> list[tuple[Any, Any]]:
    """The pairs of a dictionary, of an object with fields (as OpenAI's client makes of some), or of nothing."""
    if source is None:
        return []
    if isinstance(source, Mapping):
        return list(source.items())
    return list(source.model_dump().items()) if hasattr(source, "model_dump") else list(vars(source).items())


def _fields(response: Any) -> str:
    names = [*map(str, response if isinstance(response, Mapping) else getattr(response, "__dict__", ()))]
    return f"the fields {', '.join(names)}" if names else "no fields"
