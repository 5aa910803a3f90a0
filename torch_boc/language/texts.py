"""The text of each token, so that the joined texts are the decoded text, and a label for tokens that are no text."""

import codecs
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

UNKNOWN = "\ufffd"  # what a decoder shows for bytes that are no character, or not yet one
LONGEST = 4  # bytes of a character in UTF-8, and so the most tokens that one character may be spread over
OPTIONS = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}


def token_texts(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The text of each token at its place: joined, they are the text of all tokens.

    A character may be spread over several tokens. The token that completes it has it, and those before it have "".
    """
    whole = _decode(tokenizer, tokens)
    found = _by_windows(tokenizer, tokens)
    return found if "".join(found) == whole else _by_beginnings(tokenizer, tokens, whole)


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


def token_labels(tokenizer: Any, tokens: Iterable[int]) -> dict[int, str]:
    """What each token is called on its own, such as " the"; bytes that are no character as "⟨E2 80⟩"; "" for -1."""
    known = sorted({int(token) for token in tokens})
    return {token: _label(tokenizer, token) if token >= 0 else "" for token in known}


def id_label(token: int) -> str:
    """A token without its text: its number in brackets, or "?" if that is not known either."""
    return f"[{token}]" if token >= 0 else "?"


def clean(text: str) -> str:
    """The text without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


def _decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    return clean(tokenizer.decode(list(tokens), **OPTIONS))


def _by_windows(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The new text of each token after the last few before it, which is fast: each is decoded a few times only."""
    texts, start, read = [], 0, 0
    for end in range(1, len(tokens) + 1):
        known, text = _decode(tokenizer, tokens[start:read]), _decode(tokenizer, tokens[start:end])
        whole = not text.endswith(UNKNOWN) or end - read > LONGEST or end == len(tokens)
        if whole and text.startswith(known):
            texts.append(text[len(known) :])
            start, read = read, end
        else:
            texts.append("")
    return texts


def _by_beginnings(tokenizer: Any, tokens: Sequence[int], whole: str) -> list[str]:
    """Parts of the whole text: each ends where the text of the tokens so far stops to agree with it. Slow but sure."""
    texts, done = [], 0
    for end in range(1, len(tokens) + 1):
        text = whole if end == len(tokens) else _decode(tokenizer, tokens[:end]).rstrip(UNKNOWN)
        agreed = next((i for i, pair in enumerate(zip(text, whole, strict=False)) if pair[0] != pair[1]), len(text))
        stop = max(done, min(agreed, len(whole)))
        texts.append(whole[done:stop])
        done = stop
    return texts


def _label(tokenizer: Any, token: int) -> str:
    text = _decode(tokenizer, [token])
    names = tokenizer.convert_ids_to_tokens([token]) if hasattr(tokenizer, "convert_ids_to_tokens") else [text]
    name = clean(names[0]) if isinstance(names[0], str) else text
    if UNKNOWN in text:
        data = _bytes_of(name)
        return f"⟨{data.hex(' ').upper()}⟩" if data else text
    if name.startswith("▁") and not text.startswith(" "):  # SentencePiece strips the space at the beginning of a text
        return f" {text}"
    return text or name


def _bytes_of(name: str) -> bytes:
    """The bytes of a token of bytes, as byte fallback ("<0xE2>") or byte-level BPE names them; b"" for others."""
    if found := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", name):
        return bytes.fromhex(found[1])
    alphabet = _byte_alphabet()
    return bytes(alphabet[x] for x in name) if all(x in alphabet for x in name) else b""


@lru_cache
def _byte_alphabet() -> dict[str, int]:
    """The characters by which byte-level BPE writes bytes: those that can be seen stand for themselves."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(hidden)}
