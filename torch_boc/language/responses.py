"""What servers of language models return with log-probabilities, as numbers of tokens."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from ..functional.top_k import CoinBounds, coins_from_top_k
from .formats import choices_of
from .record import TokenRecord
from .steps import Step
from .texts import texts_of_bytes


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
        self.tokens = torch.tensor([step.token for step in steps], dtype=torch.int64)
        self.texts = texts_of_bytes(step.data for step in steps)
        width = max([1, *(len(step.given) for step in steps)])
        rows = [sorted(step.given, key=lambda x: -x.logprob) for step in steps]
        self.logprobs = _matrix([[x.logprob for x in row] for row in rows], width, -math.inf)
        self.candidates = _matrix([[x.token for x in row] for row in rows], width, -1).long()
        self.candidate_texts = [[x.text for x in row] + [""] * (width - len(row)) for row in rows]
        places = [next((i for i, x in enumerate(row) if x.emitted), -1) for row in rows]
        self.index = torch.tensor(places, dtype=torch.int64)
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
    return [ResponseTokens(choice.steps, choice.prompt_length, choice.finish) for choice in choices_of(response)]


def records_of_response(response: Any, *, num_classes: int) -> list[TokenRecord]:
    """The records of a response's choices; see `Trace.from_response`."""
    read = read_response(response)
    bounds = [coins_from_top_k(tokens.logprobs, num_classes=num_classes, cap=tokens.cap) for tokens in read]
    pairs = list(zip(read, bounds, strict=True))
    if broken := sum(int((x.lower.odds.isnan() & _given(tokens)).sum()) for tokens, x in pairs):
        warnings.warn(
            f"expected log-probabilities of the likeliest tokens, got some that cannot sum to 1 at {broken} tokens, "
            "whose numbers are NaN; check that the server returns log-probabilities, not logits, and that the "
            f"vocabulary has {num_classes:,} tokens",
            stacklevel=3,
        )
    return [_record(*pair, num_classes) for pair in pairs]


def _given(tokens: ResponseTokens) -> Tensor:
    """Where any log-probability is given."""
    return tokens.logprobs[:, 0] > -math.inf


def _record(tokens: ResponseTokens, bounds: CoinBounds, num_classes: int) -> TokenRecord:
    # The concentration is NaN where a token that is not given may be the likeliest, and where all numbers are.
    known = _given(tokens) & ~bounds.lower.concentration.isnan()
    own = tokens.logprobs.gather(-1, tokens.index.clamp_min(0).unsqueeze(-1)).squeeze(-1)
    numbers = {
        "log_probability": _where(tokens.index >= 0, own),
        "rank": tokens.rank,
        "confidence": _where(known, bounds.lower.confidence),
        "odds": _where(known, bounds.lower.odds),
    }
    for name, (low, high) in _ends(bounds, num_classes).items():
        low, high = _where(known, low), _where(known, high)
        numbers |= {name: (low + high) / 2, f"{name}_lower": low, f"{name}_upper": high}
    return TokenRecord(
        tokens.tokens,
        {**numbers, "entropy": torch.full_like(own, math.nan)},
        tokens.candidates,
        tokens.logprobs,
        tokens.prompt_length,
        tokens.texts if any(tokens.texts) or bool((tokens.tokens < 0).any()) else None,
        tokens.candidate_texts,
        tokens.finish,
    )


def _ends(bounds: CoinBounds, num_classes: int) -> dict[str, tuple[Tensor, Tensor]]:
    """The smallest and the largest possible value of each number that is not exact."""
    lower, upper = bounds
    return {
        "lost_coins": (lower.loss * (num_classes - 1), upper.loss * (num_classes - 1)),
        "gap": (upper.gap, lower.gap),
        "concentration": (upper.concentration, lower.concentration),
    }


def _where(known: Tensor, values: Tensor) -> Tensor:
    return values.masked_fill(~known, math.nan)


def _matrix(rows: list[list[Any]], width: int, empty: float) -> Tensor:
    padded = [[*row, *[empty] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.float64).reshape(len(rows), width)
