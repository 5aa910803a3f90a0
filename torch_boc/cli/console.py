"""Where output goes: results to stdout; progress, warnings and errors to stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..data.atomic import printable
from .spelling import spell


def screen() -> Console:
    """The console for text and tables on stdout. For a file or a pipe it is 80 columns wide."""
    return Console(highlight=False, markup=False, emoji=False)


def put(console: Console, text: str, style: str = "", **options: Any) -> None:
    """Print text that may hold names given by users. Control characters and unknown characters are escaped."""
    lines = "\n".join(map(printable, text.split("\n")))
    console.print(spell(lines, console.encoding), style=style, **options)


def say(message: str) -> None:
    """Print one line on stderr; it does not disturb a spinner."""
    line = printable(" ".join(message.splitlines()))
    sys.stderr.write(spell(f"torch-boc: {line}\n", getattr(sys.stderr, "encoding", None) or "utf-8"))
    sys.stderr.flush()


@contextmanager
def working(begin: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr with a text, which can be changed; nothing if stderr is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda message: None
        return
    spinner = "dots" if console.encoding.startswith("utf") else "line"
    with console.status(Text(printable(begin)), spinner=spinner) as status:
        yield lambda message: status.update(Text(spell(printable(message), console.encoding)))


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, advanced by a function; nothing if stderr is not a terminal.

    If the total is None, because nobody knows it, the bar shows that work is being done.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda amount: progress.update(task, advance=amount)
