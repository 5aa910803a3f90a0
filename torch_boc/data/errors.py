"""What goes wrong with files and sets, as errors of one line that are safe to print."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "alloc_failed")
# Control characters, surrogates (how Python holds bytes that are not UTF-8), line breaks, marks of text direction.
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class ContentError(ValueError):
    """The file is not damaged, but its content is not what is needed."""


class FileError(ValueError):
    """What is wrong with a file, said with its path."""


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Turns what goes wrong with a file into errors of one line that begin with its path."""
    shown = printable(path)
    try:
        yield
    except Exception as error:  # libraries raise all kinds of errors on damaged files
        text = printable(" ".join(str(error).split()))
        # A damaged file may ask for a place before its beginning, which is EINVAL.
        system = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL, errno.ENOMEM)
        if isinstance(error, FileError | Warning) or text.startswith(shown) or system:
            raise
        if is_memory_error(error):
            raise MemoryError(f"{shown}: too little memory to read it; use a larger machine, or fewer rows") from error
        if isinstance(error, ImportError | ContentError):
            raise (FileError if isinstance(error, ContentError) else ImportError)(f"{shown}: {text}") from None
        kind, reason = Path(path).suffix.lower() or "Parquet", text or type(error).__name__
        raise FileError(f"{shown}: expected a whole {kind} file, got one that seems damaged: {reason}") from error


@contextmanager
def error_prefix(name: str) -> Iterator[None]:
    """Puts the name of the set in front of the message of an error."""
    try:
        yield
    except (TypeError, ValueError) as error:  # of classes that may need other arguments, such as UnicodeDecodeError
        raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{name}: {error}") from None


def is_memory_error(error: BaseException) -> bool:
    """Whether `error` says that there is too little memory, of a GPU or of the CPU; each library has its own words."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, ValueError | TypeError | LookupError | ImportError):  # may contain names of files
        return False
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # of torch, not imported here
    return named or any(text in str(error).lower() for text in MEMORY)


def printable(text: str) -> str:
    r"""The text, with every character that a terminal would obey or could not show written as an escape.

    >>> print(printable("\x1b[31mred"))
    \x1b[31mred
    """
    return HIDDEN.sub(lambda match: ascii(match[0])[1:-1], text)
