"""Text for terminals that cannot show every character."""

import codecs
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HANDLER = "torch_boc.spell"
# Symbols of the report in plain letters; symbols of two characters come first.
LETTERS = {
    **{"q̄": "q_bar", "p̂": "p_hat", "Δ": "Delta", "ρ": "rho", "²": "^2", "×": "x", "∞": "inf", "≥": ">=", "≤": "<="},
    **{"−": "-", "–": "-", "—": "-", "·": "|", "…": ".", "“": '"', "”": '"', "‘": "'", "’": "'", "→": "->"},
    **{"†": "*", "‡": "+", "§": "#", "\u00a0": " "},
}


def spell(text: str, encoding: str) -> str:
    r"""The text in characters that `encoding` has. Symbols become letters, and other characters become escapes.

    >>> spell("q̄ − p̂ of 日", "ascii"), spell("q̄", "utf-8")
    ('q_bar - p_hat of \\u65e5', 'q̄')
    """
    if _fits(text, encoding):
        return text
    for symbol, plain in LETTERS.items():
        if symbol in text and not _fits(symbol, encoding):
            text = text.replace(symbol, plain)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def spell_json(text: str, encoding: str) -> str:
    """JSON in characters that `encoding` has; other characters become escapes of JSON."""
    if _fits(text, encoding):
        return text
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in pairs)


@contextmanager
def lenient_output() -> Iterator[None]:
    """Within the block, characters that an output cannot encode are spelled in others, and are no error."""
    codecs.register_error(HANDLER, _spell_rest)
    changed: list[tuple[Any, str | None]] = []
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            changed.append((stream, stream.errors))
            stream.reconfigure(errors=HANDLER)
    try:
        yield
    finally:
        for stream, errors in changed:
            if not stream.closed:
                stream.reconfigure(errors=errors)


def _fits(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeError:
        return False
    return True


def _spell_rest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    rest = error.object[error.start : error.end]
    return "".join(LETTERS.get(char) or char.encode("ascii", "backslashreplace").decode() for char in rest), error.end
