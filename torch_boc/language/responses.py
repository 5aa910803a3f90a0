"""What servers of language models return with log-probabilities, as numbers of tokens."""

import codecs
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..data.finding import describe
from ..functional.top_k import coins_from_top_k
from .record import UNKNOWN, TokenRecord

# What OpenAI and vLLM write for a token that is very unlikely, because JSON has no infinity.
UNLIKELY = -9999.0
# What the rounding of log-probabilities to float32 can hide of what is left of 1.
ROUNDING = 1e-6
# Log-probabilities of one token that are given twice differ by less.
NEAR = 1e-3


class Candidate(NamedTuple):
    """A token and its log-probability: `token` is -1 and `text` is "" if it is not known, and `logprob` is NaN."""

    token: int
    text: str
    logprob: float


class Place(NamedTuple):
    """What a server gave at the place of one token.

    Attributes:
        own: the emitted token.
        top: the likeliest tokens.
        data: the bytes of the emitted token, which may be a part of a character; None for those of its text.
        rank: the rank of the emitted token, if the server gives it.
    """

    own: Candidate
    top: list[Candidate]
    data: bytes | None = None
    rank: float | None = None


class Step(NamedTuple):
    """One emitted token with what the server gave at its place.

    Attributes:
        token: the id, or -1.
        data: the bytes of its text.
        logprob: its log-probability, or NaN.
        rank: its rank, or NaN.
        cap: the logarithm of the largest probability that a token that is not given may have.
        given: all tokens that are given at its place, the likeliest first.
    """

    token: int
    data: bytes
    logprob: float
    rank: float
    cap: float
    given: list[Candidate]


# The tokens of one choice of a response, how many of the first are the prompt, and why the text ended.
Choice = tuple[list[Step], int, str]


def read_response(response: Any) -> list[Choice]:
    """The tokens and log-probabilities of each choice of a response.

    It reads chat completions and text completions of OpenAI and of servers that speak its language (vLLM, SGLang,
    llama.cpp), and vLLM's `RequestOutput`, with the prompt if it has log-probabilities. It reads whole responses: a
    piece of a stream of a chat is refused. A piece of a stream of a text completion looks like a whole response, so
    join the pieces before.

    The emitted token is found in the list of the likeliest by its id if the server gives ids (llama.cpp, and vLLM with
    `return_tokens_as_token_ids`), otherwise by its text and log-probability. If it must be in the list and is not
    found, nothing is claimed at its place, and a warning counts such tokens.

    The cap, from the given tokens:

    - A server adds the emitted token to its list if that is not among the k likeliest. vLLM's chat puts it in the place
      of the last. So the emitted token does not set the cap, unless its rank says that it is among the likeliest.
    - The cap is the smallest of the other tokens. If only the emitted token is given, the cap is what is left of 1.
    - The value -9999.0 stands for "very unlikely". It is read as -inf for other tokens, and as unknown for the emitted
      one.
    - Text completions, and the chat of SGLang, give tokens by their text, and tokens of the same text are one entry.
      Where a list is shorter than others, or has bytes that are no character, the cap is what is left of 1. If that
      cannot be seen, the bounds may be too narrow: with vLLM, ask for `return_tokens_as_token_ids`, and give
      `Trace.from_response` a tokenizer.

    The server decides what the log-probabilities are of:

    - vLLM's V1 gives those of the raw logits.
    - With `logprobs_mode` "processed", and in older versions, temperature, penalties and masks come before. The gap of
      masked tokens is then an artefact.
    - vLLM's `logprob_token_ids` gives a list of tokens of your choice, without the likeliest ones. Nothing in the
      response says so: do not read it here.

    Args:
        response: an object, a dictionary, or JSON as text or bytes; or a list of vLLM's `RequestOutput`.
    """
    if isinstance(response, str | bytes | bytearray):
        try:
            response = json.loads(response)
        except ValueError as error:
            raise ValueError(f"expected a response as JSON, got text that is not: {error}") from None
    if isinstance(response, list | tuple):
        return [tokens for one in response for tokens in read_response(one)]
    if str(_get(response, "object") or "").endswith(".chunk"):
        raise ValueError(
            "expected a whole response, got a piece of a stream; join the `logprobs.content` of the chunks of each "
            "choice, or ask the server with stream=False"
        )
    outputs, choices = _get(response, "outputs"), _get(response, "choices")
    if outputs is not None:
        return [_vllm(response, output) for output in outputs]
    if choices is None:
        got = describe(response)
        raise ValueError(f"expected a response with `choices` (OpenAI) or `outputs` (vLLM's RequestOutput), got {got}")
    found = []
    for choice in choices:
        logprobs = _get(choice, "logprobs")
        content, tokens = _get(logprobs, "content"), _get(logprobs, "tokens")
        if content is None and tokens is None:
            raise ValueError(
                "expected log-probabilities in each choice, got none; ask the server for them, for instance with "
                "logprobs=True and top_logprobs=20 (chat) or logprobs=5 (completions)"
            )
        places = _completion_places(logprobs, tokens) if content is None else [_chat_place(x) for x in content]
        found.append((_steps(places, added=content is None), 0, str(_get(choice, "finish_reason") or "")))
    return found


def _chat_place(item: Any) -> Place:
    if _get(item, "prob") is not None:
        raise ValueError(
            "expected log-probabilities, got probabilities after sampling, which leave out the unlikely tokens; "
            "ask llama.cpp's server with post_sampling_probs=false"
        )
    own, data = _candidate(item), _get(item, "bytes")
    named = data is None or (not own.text and bytes(data) == str(_get(item, "token")).encode())
    top = [_candidate(x) for x in _get(item, "top_logprobs") or []]
    return Place(own, top, None if named else bytes(data))  # those of "token_id:123" are no text


def _completion_places(logprobs: Any, tokens: list[str]) -> list[Place]:
    chances, tops = (_get(logprobs, x) or [None] * len(tokens) for x in ("token_logprobs", "top_logprobs"))
    places = []
    for token, chance, top in zip(tokens, chances, tops, strict=True):
        own = Candidate(*_named(token), math.nan if chance is None else _number(chance))
        places.append(Place(own, [Candidate(*_named(name), _number(x)) for name, x in _items(top)]))
    return places


def _vllm(response: Any, output: Any) -> Choice:
    prompt = _get(response, "prompt_logprobs")
    before = list(_get(response, "prompt_token_ids") or ()) if prompt else []
    after, logprobs = list(_get(output, "token_ids") or ()), _get(output, "logprobs")
    if logprobs is None:
        raise ValueError("expected log-probabilities in each output, got none; set SamplingParams(logprobs=20)")
    places = []
    for token, given in (*zip(before, prompt or [], strict=True), *zip(after, logprobs, strict=True)):
        values = {int(key): x for key, x in _items(given)}  # the keys are texts if it was in JSON
        named = [(key, str(_get(x, "decoded_token") or ""), x) for key, x in values.items()]
        top = [Candidate(key, text, _number(_get(x, "logprob"))) for key, text, x in named]
        own = next((x for x in top if x.token == token), Candidate(token, "", math.nan))
        places.append(Place(own, top, rank=_get(values.get(token), "rank")))
    return _steps(places), len(before), str(_get(output, "finish_reason") or "")


def _steps(places: list[Place], *, added: bool = False) -> list[Step]:
    """The steps of what a server gave; `added`: it adds the emitted token to a list that does not have it."""
    # A server that keeps tokens by their text has one entry for all of the same text, so that a shorter list may have
    # lost a likely token. None is lost by a server that gives ids, or that has been seen to give a text twice.
    by_text = not any(len({x.text for x in place.top}) < len(place.top) for place in places)
    most, steps, lost = max((len(place.top) for place in places), default=0), [], 0
    for own, top, data, rank in places:
        near = [x for x in top if x.text == own.text and abs(x.logprob - own.logprob) < NEAR]
        same = [x for x in top if x.token == own.token] if own.token >= 0 else near
        others = [x for x in top if x is not same[0]] if same else top
        least = min((x.logprob for x in others), default=0.0)
        full = len(top) == most or (added and len(top) == most - 1 and own.logprob > least)
        whole = own.token >= 0 or not by_text or (full and not any(UNKNOWN in x.text for x in top))
        if not same and own.logprob > least + NEAR:
            lost += 1
            own, others = own._replace(logprob=math.nan), []
        others = [x if x.logprob > UNLIKELY else x._replace(logprob=-math.inf) for x in others]
        known = own.logprob > UNLIKELY
        given = sorted([own, *others] if known else others, key=lambda x: -x.logprob)
        cap = min((x.logprob for x in others), default=0.0) if whole else 0.0
        if rank is None:
            left = max(1.0 - sum(math.exp(x.logprob) for x in given), 0.0) + ROUNDING
            certain = known and (own.logprob >= cap or math.exp(own.logprob) >= left)  # no other can be likelier
            rank = 1.0 + sum(x.logprob > own.logprob for x in others) if certain else math.nan
        elif known and rank <= len(given):
            cap = min(cap, own.logprob)  # the emitted token is one of the likeliest
        data = own.text.encode("utf-8", "replace") if data is None else data
        steps.append(Step(own.token, data, own.logprob if known else math.nan, float(rank), cap, given))
    if lost:
        warnings.warn(
            f"expected each emitted token in the list of the likeliest, got {lost} tokens that are likely enough and "
            "are not found there, whose numbers are NaN; ask the server for token ids, with vLLM by "
            "return_tokens_as_token_ids=True",
            stacklevel=5,
        )
    return steps


def _candidate(item: Any) -> Candidate:
    """A token of a chat; llama.cpp gives its id as well."""
    (token, text), given = _named(str(_get(item, "token"))), _get(item, "id")
    return Candidate(given if isinstance(given, int) else token, text, _number(_get(item, "logprob")))


def _named(text: str) -> tuple[int, str]:
    """The id and the text of a token: vLLM writes "token_id:123" if it is asked for ids."""
    found = re.fullmatch(r"token(?:_id)?:(\d+)", text)
    return (int(found[1]), "") if found else (-1, text)


def _number(value: Any) -> float:
    """A log-probability, or an error; rounding may make it a little larger than 0."""
    if not isinstance(value, int | float) or not value <= 0.01:
        raise ValueError(
            f"expected log-probabilities, which are at most 0, got {value!r}; ask the server for log-probabilities, "
            "not for logits"
        )
    return min(float(value), 0.0)


def _get(source: Any, name: str) -> Any:
    """A field of a dictionary or of an object; None if there is none."""
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def _items(source: Any) -> list[tuple[Any, Any]]:
    """The pairs of a dictionary, of an object with fields (as OpenAI's client makes of some), or of nothing."""
    if hasattr(source, "model_dump"):
        source = source.model_dump()
    return [] if source is None else list((source if isinstance(source, Mapping) else vars(source)).items())


def texts_of_bytes(parts: Sequence[bytes]) -> list[str]:
    r"""The text of each part of a text in UTF-8: joined, they are the text of all bytes.

    >>> texts_of_bytes([b"na", b"\xc3", b"\xafve"])
    ['na', '', 'ïve']
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return [decoder.decode(part, final=i == len(parts)) for i, part in enumerate(parts, start=1)]


def records_of_response(response: Any, *, num_classes: int) -> list[TokenRecord]:
    """The records of a response's choices; see `Trace.from_response`."""
    records, broken = [], 0
    for steps, prompt_length, finish in read_response(response):
        width = max([1, *(len(step.given) for step in steps)])
        filled = [[*step.given, *[Candidate(-1, "", -math.inf)] * (width - len(step.given))] for step in steps]
        logprobs = torch.tensor([[x.logprob for x in row] for row in filled], dtype=torch.float64).reshape(-1, width)
        chance, rank, cap = torch.tensor([step[2:5] for step in steps], dtype=torch.float64).reshape(-1, 3).T
        lower, upper = coins_from_top_k(logprobs, num_classes=num_classes, cap=cap)
        given = logprobs[:, 0] > -math.inf
        broken += int((lower.odds.isnan() & given).sum())
        # The concentration is NaN where a token that is not given may be the likeliest, and where all numbers are.
        known = given & ~lower.concentration.isnan()
        found = {"confidence": lower.confidence, "odds": lower.odds}
        ends = {
            "lost_coins": (lower.loss * (num_classes - 1), upper.loss * (num_classes - 1)),
            "gap": (upper.gap, lower.gap),
            "concentration": (upper.concentration, lower.concentration),
        }
        for name, (low, high) in ends.items():
            found |= {name: (low + high) / 2, f"{name}_lower": low, f"{name}_upper": high}
        numbers = {name: x.masked_fill(~known, math.nan) for name, x in found.items()}
        numbers |= {"log_probability": chance, "rank": rank}
        ids, parts = [step.token for step in steps], texts_of_bytes([step.data for step in steps])
        rivals = torch.tensor([[x.token for x in row] for row in filled], dtype=torch.int64).reshape(-1, width)
        texts = parts if any(parts) or min(ids, default=0) < 0 else ()
        others = [[x.text for x in row] for row in filled]
        tokens = torch.tensor(ids, dtype=torch.int64)
        records.append(TokenRecord(tokens, numbers, rivals, logprobs, prompt_length, texts, others, finish))
    if broken:
        warnings.warn(
            f"expected log-probabilities of the likeliest tokens, got some that cannot sum to 1 at {broken} tokens, "
            "whose numbers are NaN; check that the server returns log-probabilities, not logits, and that the "
            f"vocabulary has {num_classes:,} tokens",
            stacklevel=3,
        )
    return records
