"""An error in a worker of Ray as one error of the program, without the pages of Ray's own trace."""

import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .._optional import require

# Ray gives the program the text of an error and not the error itself, so that the report is a line of this text.
MARK = "torch_boc reports: "
REPORT = re.compile(f"{re.escape(MARK)}(\\{{.*\\}})\\s*$", re.MULTILINE)
# Errors that the program gets as what they were: all of them can be made from a text alone. Others, such as those
# that a library defines, become a RuntimeError that begins with their name.
KINDS: tuple[type[Exception], ...] = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, IndexError, KeyError, LookupError, MemoryError),
    *(ModuleNotFoundError, NotImplementedError, OverflowError, RuntimeError, TypeError, ValueError, ZeroDivisionError),
    *(ConnectionError, FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, OSError),
    *(PermissionError, TimeoutError),
)
SAME = {kind.__name__: kind for kind in KINDS}


class WorkerError(RuntimeError):
    """An error in a worker. Its text is for the program that started the worker."""


@contextmanager
def reporting(work: str) -> Iterator[None]:
    """In a worker: an error within the block is raised again, in a form that `one_error` understands.

    Args:
        work: what the worker does, for the message.
    """
    try:
        yield
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}:{frame.lineno} in {frame.name}"
        report = {"kind": type(error).__name__, "text": str(error), "work": work, "place": place}
        raise WorkerError(MARK + json.dumps(report)) from error


@contextmanager
def one_error() -> Iterator[None]:
    """In the program: what a worker has reported is one error, which says what was wrong and where.

    Errors of Ray itself, such as a cluster without memory, stay as they are.

    >>> with one_error():
    ...     with reporting("predicting 2 rows"):
    ...         raise ValueError("expected logits, got text")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: expected logits, got text (while predicting 2 rows, at ...)
    """
    try:
        yield
    except Exception as error:
        found = REPORT.search(str(error))
        if found is None:
            raise
        raise _as_error(json.loads(found[1])) from None


def _as_error(report: dict[str, str]) -> Exception:
    where = f"(while {report['work']}, at {report['place']})"
    kind, text = SAME.get(report["kind"]), f"{report['text']} {where}"
    return RuntimeError(f"{report['kind']}: {text}") if kind is None else kind(text)


def check_picklable(value: Any, what: str) -> None:
    """Raise unless Ray can send `value` to its workers."""
    try:
        require("ray", "cloudpickle", purpose="work on a cluster needs").cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"expected {what} that can be pickled, got {error}; define it in a module, or let it make what it needs "
            "(models, open files, locks) when it is called"
        ) from error
