"""The outcome of a check, even if the check raises an error."""

import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

Status = Literal["passed", "failed", "skipped"]
LAST_FRAMES = 10


class Outcome(NamedTuple):
    """The outcome of one check.

    Attributes:
        name: the name of the check.
        status: "passed", "failed" or "skipped".
        expected: what a working machine gives, in a sentence.
        found: what this machine gave; empty if the check was skipped.
        seconds: how long the check took.
        note: why it was skipped, what it left out, or the last lines of the traceback.
        details: the numbers behind `found`, for the file.
        warnings: what was warned of during the check, each text once.
    """

    name: str
    status: Status
    expected: str
    found: str
    seconds: float
    note: str = ""
    details: Mapping[str, Any] = {}
    warnings: tuple[str, ...] = ()


class Finding(NamedTuple):
    """What the body of a check returns: whether the result is as expected, and what the result is."""

    passed: bool
    found: str
    note: str = ""
    details: Mapping[str, Any] = {}


class SkippedError(Exception):
    """Raised by the body of a check that cannot run here; its message is the reason."""


Body = Callable[[torch.device], Finding]


@dataclass(frozen=True)
class Check:
    """A check: a name, what is expected, and a function that looks at a device.

    It is called with a device, and gives an `Outcome`. It is timed, and an exception in it is a failure.
    """

    name: str
    expected: str
    body: Body

    def __call__(self, device: torch.device) -> Outcome:
        """Look at the device."""
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            status, found, note, details = _attempt(self.body, device)
        seconds = time.perf_counter() - start
        heard = tuple(dict.fromkeys(str(x.message) for x in caught))
        return Outcome(self.name, status, self.expected, found, seconds, note, details, heard)

    def skip(self, reason: str) -> Outcome:
        """The outcome if the check is not run."""
        return Outcome(self.name, "skipped", self.expected, "", 0.0, reason)


def check(name: str, expected: str) -> Callable[[Body], Check]:
    """Make a check of a function.

    >>> @check("sum", "1 and 1 are 2")
    ... def add(device):
    ...     found = (torch.ones((), device=device) * 2).item()
    ...     return Finding(found == 2, f"they are {found:g}")
    >>> add(torch.device("cpu"))[:4]
    ('sum', 'passed', '1 and 1 are 2', 'they are 2')
    """
    return lambda body: Check(name, expected, body)


def _attempt(body: Body, device: torch.device) -> tuple[Status, str, str, Mapping[str, Any]]:
    try:
        passed, found, note, details = body(device)
    except SkippedError as reason:
        return "skipped", "", str(reason), {}
    except Exception as error:
        return "failed", f"{type(error).__name__}: {_first_line(error)}", last_lines(error), {}
    return "passed" if passed else "failed", found, note, details


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def last_lines(error: BaseException) -> str:
    """Where an exception came from, and what it says. Paths are cut to their last two parts: the rest is private."""
    frames = traceback.extract_tb(error.__traceback__)[-LAST_FRAMES:]
    places = [f"{'/'.join(Path(x.filename).parts[-2:])}:{x.lineno} in {x.name}: {x.line}" for x in frames]
    return "\n".join([*places, f"{type(error).__name__}: {error}"])
