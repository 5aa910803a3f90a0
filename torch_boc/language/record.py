"""The numbers of one sequence of tokens, on the host, and the text of each token."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

UNKNOWN = "\ufffd"  # what a decoder shows for bytes that are no character, or not yet one


@dataclass(frozen=True)
class TokenRecord:
    """One sequence of T tokens.

    Attributes:
        tokens: (T,) in int64, on the CPU; the prompt first, if it is part of the record.
        numbers: (T,) in float64, on the CPU, under the names of `functional.tokens.TOKEN_COLUMNS`; NaN where a token
            was not scored.
        rivals: (T, k) in int64, the likeliest tokens at each position, the prediction first; -1 where there is none.
        rival_log_probabilities: (T, k) in float64.
        prompt_length: how many of the first tokens are the prompt.
        finish: why the sequence ended: "eos", "length", or "" for anything else.
        texts: the text of each token; joined, they are the text. "" for a token that ends within a character. This and
            what follows is empty before `with_texts`.
        labels: what each token is called on its own.
        rival_texts: what the likeliest tokens at each position are called.
    """

    tokens: Tensor
    numbers: Mapping[str, Tensor]
    rivals: Tensor
    rival_log_probabilities: Tensor
    prompt_length: int = 0
    finish: str = ""
    texts: Sequence[str] = ()
    labels: Sequence[str] = ()
    rival_texts: Sequence[Sequence[str]] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    def column(self, name: str) -> Tensor:
        """The numbers of this name; NaN if the record has none."""
        return self.numbers.get(name, torch.full((len(self),), math.nan)).double()

    def with_texts(self, tokenizer: Any) -> "TokenRecord":
        """The record with the texts that the tokenizer gives; token ids without one."""

        @cache
        def name(token: int) -> str:
            return "" if token < 0 else f"[{token}]" if tokenizer is None else token_label(tokenizer, token)

        tokens = self.tokens.tolist()
        labels = [name(token) for token in tokens]
        texts = labels if tokenizer is None else token_texts(tokenizer, tokens)
        rivals = [[*map(name, row)] for row in self.rivals.tolist()]
        return replace(self, texts=texts, labels=labels, rival_texts=rivals)

    @property
    def first(self) -> int:
        """The first token to show with numbers: that of the prompt if any of it has numbers, or the one after it."""
        start = self.prompt_length
        scored = any(not bool(column[:start].isnan().all()) for column in self.numbers.values())
        return 0 if start and scored else start

    def summary(self) -> dict[str, Any]:
        """The numbers of what was generated, or of the prompt if nothing was; the record must have texts."""
        start = self.prompt_length if self.prompt_length < len(self) else 0
        names = ("log_probability", "rank", "lost_coins", "confidence", "entropy")
        chance, rank, lost, confidence, entropy = (self.column(name)[start:] for name in names)
        scored = not bool(chance.isnan().all())
        lowest = int(chance.nan_to_num(math.inf, neginf=-math.inf).argmin()) if scored else -1
        return {
            "tokens": len(chance),
            "prompt_tokens": self.prompt_length,
            "perplexity": math.exp(min(-float(chance.nanmean()), 700.0)),
            "mean_lost_coins": float(lost.nanmean()),
            "median_lost_coins": float(lost.nanquantile(0.5)) if len(lost) else math.nan,
            "mean_confidence": float(confidence.nanmean()),
            "mean_entropy": float(entropy.nanmean()),
            "share_of_rank_1": float((rank[~rank.isnan()] == 1).double().mean()),
            "lowest_log_probability": float(chance[lowest]) if scored else math.nan,
            "lowest_position": start + lowest if scored else -1,
            "lowest_text": self.labels[start + lowest] if scored else "",
            "finish": self.finish,
        }


def clean(text: str) -> str:
    """The text without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


def _decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    return clean(tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def token_texts(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The text of each token at its position: joined, they are the text of all tokens.

    A character may be spread over several tokens. The token that completes it has it, and those before it have "".
    """
    whole, texts, done = _decode(tokenizer, tokens), list[str](), 0
    for end in range(1, len(tokens) + 1):
        # A token's text ends where the text of the tokens so far stops to agree with the whole text.
        text = whole if end == len(tokens) else _decode(tokenizer, tokens[:end]).rstrip(UNKNOWN)
        stop = max(done, len(os.path.commonprefix([text, whole])))  # noqa: RUF071, of characters
        texts.append(whole[done:stop])
        done = stop
    return texts


def token_label(tokenizer: Any, token: int) -> str:
    """What a token is called on its own, such as " the"; as its vocabulary names it if it is a part of a character."""
    text, name = _decode(tokenizer, [token]), clean(str(tokenizer.convert_ids_to_tokens(token)))
    if UNKNOWN in text or not text:
        return name
    # SentencePiece strips the space at the beginning of a text.
    return f" {text}" if name.startswith("▁") and not text.startswith(" ") else text
