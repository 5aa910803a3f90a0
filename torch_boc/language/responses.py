"""What servers of language models return with log-probabilities, as numbers of tokens."""

import codecs
import json
import math
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional.top_k import coins_from_top_k
from .record import UNKNOWN, TokenRecord

# What OpenAI and vLLM write for a token that is very unlikely, because JSON has no infinity.
UNLIKELY = -9999.0
# What the rounding of log-probabilities to float32 can hide of what is left of 1.
ROUNDING = 1e-6


class Candidate(NamedTuple):
    """A token and its log-probability: `token` is -1 and `text` is "" if it is not known, and `logprob` is NaN."""

    token: int
    text: str
    logprob: float


class Step(NamedTuple):
    """One emitted token with what the server gave at its place.

    Attributes:
        token: the id, or -1.
        data: the bytes of its text.
        rank: its rank, or NaN.
        given: all tokens that are given at its place, the likeliest first.
        place: where it is among them, or -1.
        cap: the logarithm of the largest probability that a token that is not given may have.
    """

    token: int
    data: bytes
    rank: float
    given: list[Candidate]
    place: int
    cap: float


class ResponseTokens:
    """The tokens of one choice of a response, and the log-probabilities that the server gave for each.

    Attributes:
        tokens: (T,) in int64, the emitted tokens; -1 where the server gave a text only.
        texts: the text of each; joined, they are the text of the choice.
        logprobs: (T, k) in float64, the given log-probabilities, the largest first; -inf where there are fewer.
        candidates: (T, k) in int64, the tokens that they are of, or -1.
        candidate_texts: their texts; "" where there is none.
        index: (T,) in int64, the place of the emitted token among the k; -1 if its log-probability is not given.
        cap: (T,) in float64, the logarithm of the largest probability that a token that is not given may have.
        rank: (T,) in float64, the rank of the emitted token; NaN if it is not known.
        prompt_length: how many of the first tokens are the prompt.
        finish: why the text ended, in the words of the server.
    """

    def __init__(self, steps: list[Step], prompt_length: int, finish: str) -> None:
        self.prompt_length, self.finish = prompt_length, finish
        width = max([1, *(len(step.given) for step in steps)])
        nothing = Candidate(-1, "", -math.inf)
        rows = [[*step.given, *[nothing] * (width - len(step.given))] for step in steps]
        shape = (len(steps), width)
        logprobs = [[x.logprob for x in row] for row in rows]
        self.logprobs = torch.tensor(logprobs, dtype=torch.float64).reshape(shape)
        self.candidates = torch.tensor([[x.token for x in row] for row in rows], dtype=torch.int64).reshape(shape)
        self.candidate_texts = [[x.text for x in row] for row in rows]
        self.tokens = torch.tensor([step.token for step in steps], dtype=torch.int64)
        self.texts = texts_of_bytes(step.data for step in steps)
        self.index = torch.tensor([step.place for step in steps], dtype=torch.int64)
        self.cap = torch.tensor([step.cap for step in steps], dtype=torch.float64)
        self.rank = torch.tensor([step.rank for step in steps], dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.tokens)


def read_response(response: Any) -> list[ResponseTokens]:
    """The tokens and log-probabilities of each choice of a response, in what `coins_from_top_k` takes.

    It reads chat completions and text completions of OpenAI and of servers that speak its language (vLLM, SGLang,
    llama.cpp), and vLLM's `RequestOutput`, with the prompt if it has log-probabilities. It reads whole responses: a
    piece of a stream of a chat is refused. A piece of a stream of a text completion looks like a whole response, so
    join the pieces before.

    The cap, from the given tokens:

    - A server adds the emitted token to its list if that is not among the k likeliest. vLLM's chat puts it in the place
      of the last. So the emitted token does not set the cap, unless its rank says that it is among the likeliest.
    - The cap is the smallest of the other tokens. If only the emitted token is given, the cap is what is left of 1.
    - The value -9999.0 stands for "very unlikely". It is read as -inf for other tokens, and as unknown for the emitted
      one.
    - Text completions give tokens by their text, and tokens of the same text are one entry. Where a list is shorter
      than others, or has bytes that are no character, the cap is what is left of 1. If that cannot be seen, the bounds
      may be too narrow: with vLLM, ask for `return_tokens_as_token_ids`, and give `Trace.from_response` a tokenizer.

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
        names = [*map(str, response if isinstance(response, Mapping) else getattr(response, "__dict__", ()))]
        fields = f"the fields {', '.join(names)}" if names else "no fields"
        raise ValueError(
            "expected a response with `choices` (OpenAI) or `outputs` (vLLM's RequestOutput), got "
            f"{type(response).__name__} with {fields}"
        )
    found = []
    for choice in choices:
        logprobs = _get(choice, "logprobs")
        content, tokens = _get(logprobs, "content"), _get(logprobs, "tokens")
        if content is None and tokens is None:
            raise ValueError(
                "expected log-probabilities in each choice, got none; ask the server for them, for instance with "
                "logprobs=True and top_logprobs=20 (chat) or logprobs=5 (completions)"
            )
        steps = _completion_steps(logprobs, tokens) if content is None else [_chat_step(item) for item in content]
        found.append(ResponseTokens(steps, 0, str(_get(choice, "finish_reason") or "")))
    return found


def _chat_step(item: Any) -> Step:
    own, listed = _candidate(item), [*(_get(item, "top_logprobs") or [])]
    others = [_candidate(x, known=True) for x in listed]
    # Two tokens may have the same text and bytes: the emitted one is the one of the same log-probability.
    for i, x in enumerate(listed):
        same = all(_get(x, name) == _get(item, name) for name in ("token", "bytes"))
        if same and abs(others[i].logprob - own.logprob) < 1e-3:
            del others[i]
            break
    given = _get(item, "bytes")
    return _step(own, others, data=bytes(given) if given is not None and own.token < 0 else None)


def _completion_steps(logprobs: Any, tokens: list[str]) -> list[Step]:
    chances = _get(logprobs, "token_logprobs") or [None] * len(tokens)
    tops = [_items(top) for top in _get(logprobs, "top_logprobs") or [None] * len(tokens)]
    most = max((len(top) for top in tops), default=0)
    steps = []
    for token, chance, top in zip(tokens, chances, tops, strict=True):
        own = Candidate(*_named(token), _number(chance, known=False))
        others = [Candidate(*_named(name), _number(x)) for name, x in top if name != token]
        # Tokens of the same text are one entry, so that a shorter list may have lost a likely token. The emitted token
        # makes a list longer by one if it is not among the likeliest.
        inside = own.logprob > min((x.logprob for x in others), default=0.0)
        whole = len(top) == most or (len(top) == most - 1 and inside)
        steps.append(_step(own, others, whole=whole and not any(UNKNOWN in name for name, _ in top)))
    return steps


def _vllm(response: Any, output: Any) -> ResponseTokens:
    prompt = _get(response, "prompt_logprobs")
    before = list(_get(response, "prompt_token_ids") or ()) if prompt else []
    after, logprobs = list(_get(output, "token_ids") or ()), _get(output, "logprobs")
    if logprobs is None:
        raise ValueError("expected log-probabilities in each output, got none; set SamplingParams(logprobs=20)")
    steps = []
    for token, given in (*zip(before, prompt or [], strict=True), *zip(after, logprobs, strict=True)):
        found, rank = {token: Candidate(token, "", math.nan)}, None
        for key, value in ((int(key), value) for key, value in _items(given)):  # the keys are texts if it was in JSON
            chance = _number(_get(value, "logprob"), known=key != token)
            found[key] = Candidate(key, str(_get(value, "decoded_token") or ""), chance)
            rank = _get(value, "rank") if key == token else rank
        steps.append(_step(found.pop(token), list(found.values()), rank=rank))
    return ResponseTokens(steps, len(before), str(_get(output, "finish_reason") or ""))


def _step(
    own: Candidate,
    others: list[Candidate],
    *,
    rank: float | None = None,
    data: bytes | None = None,
    whole: bool = True,
) -> Step:
    """A step from the emitted token and the others that the server gave.

    Args:
        own: the emitted token.
        others: the other tokens.
        rank: the rank of the emitted token, if the server gives it.
        data: the bytes of the emitted token, which may be a part of a character; by default those of its text.
        whole: whether no likelier token can be missing among the others.
    """
    known = own.logprob > UNLIKELY
    others = [x if x.logprob > UNLIKELY else x._replace(logprob=-math.inf) for x in others]
    given = [own, *others] if known else others
    cap = min((x.logprob for x in others), default=0.0) if whole else 0.0
    if rank is None:
        left = max(1.0 - sum(math.exp(x.logprob) for x in given), 0.0) + ROUNDING
        certain = known and (own.logprob >= cap or math.exp(own.logprob) >= left)  # no other can be likelier
        rank = 1.0 + sum(x.logprob > own.logprob for x in others) if certain else math.nan
    elif known and whole and rank <= len(given):
        cap = min(cap, own.logprob)  # the emitted token is one of the likeliest
    given.sort(key=lambda x: -x.logprob)
    place = next((i for i, x in enumerate(given) if x is own), -1)
    data = own.text.encode("utf-8", "replace") if data is None else data
    return Step(own.token, data, float(rank), given, place, cap)


def _candidate(item: Any, *, known: bool = False) -> Candidate:
    """A token of a chat."""
    return Candidate(*_named(str(_get(item, "token"))), _number(_get(item, "logprob"), known=known))


def _named(text: str) -> tuple[int, str]:
    """The id and the text of a token: vLLM writes "token_id:123" if it is asked for ids."""
    found = re.fullmatch(r"token(?:_id)?:(\d+)", text)
    return (int(found[1]), "") if found else (-1, text)


def _number(value: Any, *, known: bool = True) -> float:
    """A log-probability, or an error; rounding may make it a little larger than 0. NaN for None, if it may be that."""
    if value is None and not known:
        return math.nan
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


def texts_of_bytes(parts: Iterable[bytes]) -> list[str]:
    r"""The text of each part of a text in UTF-8: joined, they are the text of all bytes.

    >>> texts_of_bytes([b"na", b"\xc3", b"\xafve"])
    ['na', '', 'ïve']
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = [decoder.decode(part) for part in parts]
    if texts:
        texts[-1] += decoder.decode(b"", final=True)
    return texts


def records_of_response(response: Any, *, num_classes: int) -> list[TokenRecord]:
    """The records of a response's choices; see `Trace.from_response`."""
    records, broken = [], 0
    for tokens in read_response(response):
        lower, upper = coins_from_top_k(tokens.logprobs, num_classes=num_classes, cap=tokens.cap)
        given = tokens.logprobs[:, 0] > -math.inf
        broken += int((lower.odds.isnan() & given).sum())
        # The concentration is NaN where a token that is not given may be the likeliest, and where all numbers are.
        known = given & ~lower.concentration.isnan()
        own = tokens.logprobs.gather(-1, tokens.index.clamp_min(0).unsqueeze(-1)).squeeze(-1)
        numbers = {
            "log_probability": _where(tokens.index >= 0, own),
            "rank": tokens.rank,
            "confidence": _where(known, lower.confidence),
            "odds": _where(known, lower.odds),
        }
        ends = {
            "lost_coins": (lower.loss * (num_classes - 1), upper.loss * (num_classes - 1)),
            "gap": (upper.gap, lower.gap),
            "concentration": (upper.concentration, lower.concentration),
        }
        for name, pair in ends.items():
            low, high = (_where(known, x) for x in pair)
            numbers |= {name: (low + high) / 2, f"{name}_lower": low, f"{name}_upper": high}
        has_texts = any(tokens.texts) or bool((tokens.tokens < 0).any())
        record = TokenRecord(
            tokens.tokens,
            {**numbers, "entropy": torch.full_like(own, math.nan)},
            tokens.candidates,
            tokens.logprobs,
            tokens.prompt_length,
            tokens.texts if has_texts else None,
            tokens.candidate_texts,
            tokens.finish,
        )
        records.append(record)
    if broken:
        warnings.warn(
            f"expected log-probabilities of the likeliest tokens, got some that cannot sum to 1 at {broken} tokens, "
            "whose numbers are NaN; check that the server returns log-probabilities, not logits, and that the "
            f"vocabulary has {num_classes:,} tokens",
            stacklevel=3,
        )
    return records


def _where(known: Tensor, values: Tensor) -> Tensor:
    return values.masked_fill(~known, math.nan)
