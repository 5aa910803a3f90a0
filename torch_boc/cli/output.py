"""What commands print and write: results on stdout, progress and messages on stderr, and files of samples."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.table import Column, Table
from rich.text import Text

from ..data.atomic import check_file, replacing
from ..data.errors import printable

STDOUT = "-"
WIDTH = 80


class Terminal(Console):
    """A console for names that users give: it escapes control characters."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, stderr=stderr)

    def render_str(self, text: str, **options: Any) -> Text:
        """All text passes here on its way to the screen, that of tables too."""
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)


def print_error(message: str) -> None:
    """Print one line on stderr; it does not disturb a spinner."""
    sys.stderr.write(f"torch-boc: {printable(' '.join(message.splitlines()))}\n")
    sys.stderr.flush()


def print_json(content: Mapping[str, Any], **options: Any) -> None:
    """Print an object as JSON in ASCII, in which NaN and infinity are null."""
    from ..report.report import strict

    typer.echo(json.dumps(strict(content), allow_nan=False, **options))


@contextmanager
def spinner(begin: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr with a text, which can be changed; nothing if stderr is not a terminal."""
    console = Terminal(stderr=True)
    spinner = "dots" if console.encoding.startswith("utf") else "line"
    with console.status(console.render_str(begin), spinner=spinner) as status:
        yield lambda message: status.update(console.render_str(message))


def list_files(paths: Iterable[str | Path | None], console: Console) -> None:
    """Print the files that were written, with their sizes."""
    written = [Path(path) for path in paths if path is not None and path != STDOUT]
    if written:
        console.print("\nWrote", style="bold")
    for path in written:
        console.print(f"{decimal(path.stat().st_size):>9}  {path}", soft_wrap=True)


def show_table(rows: list[list[Any]], console: Console) -> None:
    """Print a table. The first row has the titles, and the first column names."""
    table = Table(box=SIMPLE_HEAD if console.encoding.startswith("utf") else None, padding=(0, 1, 0, 0))
    titles, *rest = [[f"{x:.4g}" if isinstance(x, float) else str(x) for x in row] for row in rows]
    for place, title in enumerate(titles):
        number = not any(letter.isalpha() for row in rest for letter in row[place])
        title = "\n".join(wrap(title, 10, break_long_words=False)) if place else title
        table.add_column(title, justify="right" if place else "left", overflow="fold", no_wrap=number)
    for row in rest:
        table.add_row(*row)
    console.print(table, width=min(console.width, WIDTH))


def show_pairs(pairs: Iterable[tuple[str, str]], console: Console) -> None:
    """Print pairs of texts in two columns."""
    grid = Table.grid(Column(overflow="fold"), Column(overflow="fold"), padding=(0, 1))
    for pair in pairs:
        grid.add_row(*pair)
    console.print(grid, width=min(console.width, WIDTH))


def check_output(out: str | None, sources: Iterable[str | None]) -> None:
    """Raise if no table can be written to `out`, or if `out` is one of the inputs."""
    if out is None or out == STDOUT:
        return
    path = check_file(out)
    if path.suffix.lower() not in (".parquet", ".csv"):
        raise ValueError(f"{out}: expected an output that ends in .parquet or .csv, got {path.suffix or 'no ending'!r}")
    if path.exists() and any(source and Path(source).exists() and path.samefile(source) for source in sources):
        raise ValueError(f"{out}: expected an output that is not the input, got the same file; choose another path")


@contextmanager
def sample_file(out: str | None) -> Iterator[Callable[..., None]]:
    """A function that appends columns to a Parquet or CSV file, which appears whole at the end, if there is no error.

    It does nothing if `out` is None, and "-" is CSV on stdout.
    """
    from .._optional import require_pyarrow
    from ..data.parquet import ParquetFile

    with ExitStack() as stack:
        if out is None:
            yield lambda columns, num_classes=None: None
        elif out.lower().endswith(".parquet"):
            yield stack.enter_context(ParquetFile(out)).write
        else:
            # Arrow would refuse a path that is not UTF-8; therefore it gets an open file.
            printed = out == STDOUT
            file = sys.stdout.buffer if printed else stack.enter_context(stack.enter_context(replacing(out)).open("wb"))
            arrow, headers = require_pyarrow(), [True]

            def write(columns: Mapping[str, Any], num_classes: int | None = None) -> None:
                table = arrow.table({name: x if isinstance(x, list) else x.numpy() for name, x in columns.items()})
                arrow.csv.write_csv(table, file, arrow.csv.WriteOptions(include_header=bool(headers) and headers.pop()))

            yield write
