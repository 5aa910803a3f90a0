"""Text files, read in pieces, so that a file may be larger than the memory."""

import codecs
import os
from collections.abc import Iterator
from pathlib import Path

# How many bytes are read at a time.
PIECE = 2**16


def text_pieces(path: str | os.PathLike[str], size: int = PIECE) -> Iterator[str]:
    """The text of a UTF-8 file in pieces of about `size` bytes, each of which ends at the end of a line.

    A line that is longer than a piece is cut after a space, or anywhere if it has none. The pieces together are the
    file, without a byte order mark at its beginning.

    Raises:
        ValueError: the file is not UTF-8; the message names the first byte that is wrong.
    """
    path, rest, place = Path(path), "", 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        while block := file.read(size):
            rest += _decoded(decoder, block, path, place)
            rest = rest.removeprefix("\ufeff") if place == 0 else rest
            place += len(block)
            end = _last_break(rest, size)
            if end:
                yield rest[:end]
                rest = rest[end:]
    rest += _decoded(decoder, b"", path, place, final=True)
    if rest:
        yield rest


def _decoded(decoder: codecs.IncrementalDecoder, block: bytes, path: Path, place: int, *, final: bool = False) -> str:
    waiting = len(decoder.getstate()[0])  # bytes of a character that began in the block before
    try:
        return decoder.decode(block, final)
    except UnicodeDecodeError as error:
        wrong = place - waiting + error.start
        raise ValueError(f"{path}: expected a text in UTF-8, got {error.reason} at byte {wrong:,}") from None


def _last_break(text: str, size: int) -> int:
    """Where a piece ends: after the last line, or in a long line after the last space, or at its end."""
    end = text.rfind("\n") + 1
    if end or len(text) < size:
        return end
    return text.rfind(" ") + 1 or len(text)
