"""A record with the text of each token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .record import TokenRecord
from .texts import clean, id_label, token_labels, token_texts


@dataclass(frozen=True)
class TextSequence:
    """One sequence of T tokens with texts.

    Attributes:
        record: its numbers.
        texts: the text of each token; joined, they are the text. "" for a token that ends within a character.
        labels: what each token is called on its own.
        rival_labels: what the likeliest tokens at each place are called.
    """

    record: TokenRecord
    texts: list[str]
    labels: list[str]
    rival_labels: list[list[str]]

    @property
    def numbers(self) -> Mapping[str, Tensor]:
        """The numbers of the tokens, by name."""
        return self.record.numbers

    @property
    def summed(self) -> slice:
        """The tokens that a summary is about: what was generated, or the prompt if nothing was."""
        start = self.record.prompt_length
        return slice(start if start < len(self.record) else 0, None)

    @property
    def first(self) -> int:
        """The first token to show with numbers: that of the prompt if any of it has numbers, or the one after it."""
        start = self.record.prompt_length
        known = any(not bool(column[:start].isnan().all()) for column in self.numbers.values())
        return 0 if start and known else start


def sequence_of(record: TokenRecord, tokenizer: Any) -> TextSequence:
    """The record with the texts that it has, or that the tokenizer gives; otherwise with token ids."""
    tokens, rivals = record.tokens.tolist(), record.rivals.tolist()
    names = token_labels(tokenizer, [*tokens, *(x for row in rivals for x in row)]) if tokenizer is not None else {}
    texts = _texts(record, tokens, tokenizer)
    shown = names if tokenizer is not None and record.texts is None else {}
    called = record.labels or [""] * len(tokens)
    labels = [
        clean(x) or shown.get(token) or text or id_label(token)
        for token, text, x in zip(tokens, texts, called, strict=True)
    ]
    return TextSequence(record, texts, labels, _rival_labels(record, rivals, names))


def _texts(record: TokenRecord, tokens: list[int], tokenizer: Any) -> list[str]:
    if record.texts is not None:
        return [clean(text) for text in record.texts]
    return token_texts(tokenizer, tokens) if tokenizer is not None else [id_label(token) for token in tokens]


def _rival_labels(record: TokenRecord, rivals: list[list[int]], names: Mapping[int, str]) -> list[list[str]]:
    known: Sequence[Sequence[str]] = record.rival_texts or [[""] * len(row) for row in rivals]
    return [
        [
            clean(text) or names.get(token) or (id_label(token) if token >= 0 else "")
            for token, text in zip(*pair, strict=True)
        ]
        for pair in zip(rivals, known, strict=True)
    ]
