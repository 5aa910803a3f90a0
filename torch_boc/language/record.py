"""The numbers of one sequence of tokens, on the host, wherever they came from, and the text of each token."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..functional.tokens import TOKEN_COLUMNS

UNKNOWN = "\ufffd"  # what a decoder shows for bytes that are no character, or not yet one
# The characters by which byte-level BPE writes bytes: those that can be seen stand for themselves.
SEEN = [*range(33, 127), *range(161, 173), *range(174, 256)]
HIDDEN = [byte for byte in range(256) if byte not in SEEN]
BYTES = {chr(byte): byte for byte in SEEN} | {chr(256 + place): byte for place, byte in enumerate(HIDDEN)}
LONGEST = 4  # bytes of a character in UTF-8, and so the most tokens that one character may be spread over


@dataclass(frozen=True)
class TokenRecord:
    """One sequence of T tokens.

    Attributes:
        tokens: (T,) in int64, on the CPU; the prompt first, if it is part of the record.
        numbers: (T,) in float64, on the CPU, under the names of `functional.tokens.TOKEN_COLUMNS`; NaN where a token
            was not scored. A number of which only bounds are known stands under `NAME_lower` and `NAME_upper` as well.
        rivals: (T, k) in int64, the likeliest tokens at each place, the prediction first; -1 where there is none.
        rival_log_probabilities: (T, k) in float64.
        prompt_length: how many of the first tokens are the prompt.
        texts: the text of each token, if it is known without a tokenizer.
        rival_texts: the text of each rival, likewise.
        finish: why the sequence ended, such as "eos", "length" or "stop"; "" if it is not known.
        labels: what each token is called on its own, if that is not its text: it may be a part of a character.
    """

    tokens: Tensor
    numbers: Mapping[str, Tensor]
    rivals: Tensor
    rival_log_probabilities: Tensor
    prompt_length: int = 0
    texts: Sequence[str] | None = None
    rival_texts: Sequence[Sequence[str]] | None = None
    finish: str = ""
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Refuse parts of different lengths."""
        parts = {**self.numbers, "rivals": self.rivals, "rival_log_probabilities": self.rival_log_probabilities}
        for name, part in {**parts, "texts": self.texts}.items():
            if part is not None and len(part) != len(self.tokens):
                raise ValueError(f"expected {name} of {len(self.tokens)} tokens, got {len(part)}")

    def __len__(self) -> int:
        return len(self.tokens)


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

    @classmethod
    def of(cls, record: TokenRecord, tokenizer: Any) -> "TextSequence":
        """The record with the texts that it has, or that the tokenizer gives; otherwise with token ids."""
        tokens, rivals = record.tokens.tolist(), record.rivals.tolist()
        known = {token for row in (tokens, *rivals) for token in row if token >= 0}
        names = {} if tokenizer is None else {token: token_label(tokenizer, token) for token in known}
        given = record.rival_texts or [[""] * len(row) for row in rivals]
        rival_labels = [
            [clean(text) or names.get(token) or (id_label(token) if token >= 0 else "") for token, text in pairs]
            for pairs in (zip(*rows, strict=True) for rows in zip(rivals, given, strict=True))
        ]
        if record.texts is not None:
            texts, names = [clean(text) for text in record.texts], {}
        else:
            texts = [id_label(x) for x in tokens] if tokenizer is None else token_texts(tokenizer, tokens)
        own = zip(record.labels or [""] * len(tokens), tokens, texts, strict=True)
        labels = [clean(label) or names.get(token) or text or id_label(token) for label, token, text in own]
        return cls(record, texts, labels, rival_labels)

    @property
    def first(self) -> int:
        """The first token to show with numbers: that of the prompt if any of it has numbers, or the one after it."""
        start = self.record.prompt_length
        known = any(not bool(column[:start].isnan().all()) for column in self.record.numbers.values())
        return 0 if start and known else start

    def summary(self) -> dict[str, Any]:
        """The numbers of what was generated, or of the prompt if nothing was."""
        start = self.record.prompt_length if self.record.prompt_length < len(self.record) else 0
        columns = {name: self.record.numbers.get(name, torch.empty(0))[start:].double() for name in TOKEN_COLUMNS}
        known = {name: column[~column.isnan()] for name, column in columns.items()}
        chance, lost = known["log_probability"], known["lost_coins"]
        # A token of unknown rank is not the likeliest if one that is given is likelier.
        best = nn.functional.pad(self.record.rival_log_probabilities[start:], (0, 1), value=-math.inf)[:, 0]
        others = columns["rank"].isnan() & (best > -math.inf) & ~(columns["log_probability"] >= best)
        first = torch.cat([known["rank"] == 1, torch.zeros(int(others.sum()), dtype=torch.bool)])
        place = int(columns["log_probability"].nan_to_num(math.inf, neginf=-math.inf).argmin()) if len(chance) else -1
        return {
            "tokens": len(self.texts[start:]),
            "prompt_tokens": self.record.prompt_length,
            "perplexity": math.exp(min(-float(chance.mean()), 700.0)) if len(chance) else math.nan,
            "mean_lost_coins": float(lost.mean()),
            "median_lost_coins": float(lost.quantile(0.5)) if len(lost) else math.nan,
            "mean_confidence": float(known["confidence"].mean()),
            "mean_entropy": float(known["entropy"].mean()),
            "share_of_rank_1": float(first.double().mean()),
            "lowest_log_probability": float(chance.min()) if len(chance) else math.nan,
            "lowest_position": start + place if len(chance) else -1,
            "lowest_text": self.labels[start + place] if len(chance) else "",
            "finish": self.record.finish,
        }


def columns_of(sequences: Sequence[TextSequence]) -> list[str]:
    """The names of all numbers of the sequences: those that every token has, then the others in their order."""
    return list(dict.fromkeys([*TOKEN_COLUMNS, *(name for sequence in sequences for name in sequence.record.numbers)]))


def id_label(token: int) -> str:
    """A token without its text: its number in brackets, or "?" if that is not known either."""
    return f"[{token}]" if token >= 0 else "?"


def clean(text: str) -> str:
    """The text without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


def _decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    return clean(tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def token_texts(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The text of each token at its place: joined, they are the text of all tokens.

    A character may be spread over several tokens. The token that completes it has it, and those before it have "".
    """
    # The new text of each token after the last few before it, which is fast: each is decoded a few times only.
    texts, start, read = [], 0, 0
    for end in range(1, len(tokens) + 1):
        known, text = _decode(tokenizer, tokens[start:read]), _decode(tokenizer, tokens[start:end])
        complete = not text.endswith(UNKNOWN) or end - read > LONGEST or end == len(tokens)
        if complete and text.startswith(known):
            texts.append(text[len(known) :])
            start, read = read, end
        else:
            texts.append("")
    whole = _decode(tokenizer, tokens)
    if "".join(texts) == whole:
        return texts
    # Slow but sure: each part ends where the text of the tokens so far stops to agree with the whole text.
    texts, done = [], 0
    for end in range(1, len(tokens) + 1):
        text = whole if end == len(tokens) else _decode(tokenizer, tokens[:end]).rstrip(UNKNOWN)
        agreed = next((i for i, pair in enumerate(zip(text, whole, strict=False)) if pair[0] != pair[1]), len(text))
        stop = max(done, min(agreed, len(whole)))
        texts.append(whole[done:stop])
        done = stop
    return texts


def token_label(tokenizer: Any, token: int) -> str:
    """What a token is called on its own, such as " the"; bytes that are no character as "⟨E2 80⟩"."""
    text = _decode(tokenizer, [token])
    names = tokenizer.convert_ids_to_tokens([token]) if hasattr(tokenizer, "convert_ids_to_tokens") else [text]
    name = clean(names[0]) if isinstance(names[0], str) else text
    if UNKNOWN in text:
        found = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", name)  # as byte fallback names it
        known = bytes(BYTES[x] for x in name) if all(x in BYTES for x in name) else b""
        data = bytes.fromhex(found[1]) if found else known
        return f"⟨{data.hex(' ').upper()}⟩" if data else text
    if name.startswith("▁") and not text.startswith(" "):  # SentencePiece strips the space at the beginning of a text
        return f" {text}"
    return text or name
