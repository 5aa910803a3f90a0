"""The results of a command: tables on the screen, JSON, and files."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from ..data.atomic import check_folder, replacing
from ..report.report import FILES
from .console import put, screen
from .render import show_comparison, show_report
from .spelling import spell_json

DEFAULT_FOLDER = Path("boc-report")


def choose_folder(out: Path | None, *, json: bool, files: Iterable[str] = FILES) -> Path | None:
    """The folder for the report, or None. A folder that cannot be written to is an error before the work begins."""
    if json and out is None:
        return None
    return check_folder(out or DEFAULT_FOLDER, files)


def save_report(report: Any, folder: Path | None, progress: Callable[[str], None]) -> list[Path]:
    """Write the report to `folder`, if there is one; returns the files."""
    if folder is None:
        return []
    progress("drawing")
    paths: list[Path] = report.save(folder)
    return paths


def print_report(report: Any, paths: list[Path], *, title: list[str], json: bool) -> None:
    """Print the report: as JSON and nothing else, or as tables and a list of the files."""
    console = screen()
    if json:
        console.file.write(spell_json(report.to_json(), console.encoding))
        return
    for line, style in zip(title, ("bold", "dim"), strict=True):
        put(console, line, style)
    show_report(report, console)
    list_files(paths, console)


def print_comparison(comparison: Any, paths: list[Path], *, title: str, json: bool) -> None:
    """The same for several reports side by side. The list of files has the page and the folder of each report."""
    console = screen()
    if json:
        console.file.write(spell_json(comparison.to_json(), console.encoding))
        return
    put(console, title, "bold")
    show_comparison(comparison, console)
    list_files(paths[:1], console)
    for folder in dict.fromkeys(path.parent for path in paths[1:]):
        inside = [path for path in paths if path.parent == folder]
        total = size(sum(path.stat().st_size for path in inside))
        put(console, f"{total:>9}  {folder / 'report.html'} and {len(inside) - 1} more", soft_wrap=True)


def list_files(paths: list[Path], console: Console) -> None:
    """Print the files that were written, with their sizes."""
    if paths:
        put(console, "\nWrote", "bold")
    for path in paths:
        put(console, f"{size(path.stat().st_size):>9}  {path}", soft_wrap=True)


def size(count: float) -> str:
    """A number of bytes, in a suitable unit.

    >>> size(812), size(20_480), size(3_500_000)
    ('812 B', '20.5 kB', '3.5 MB')
    """
    units = ["B", "kB", "MB", "GB"]
    while count >= 1000 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"


@contextmanager
def csv_file(path: Path) -> Iterator[Callable[[Any], None]]:
    """A function that appends pyarrow tables to a CSV file. The file appears at the end, if there was no error."""
    from pyarrow import csv

    writer = None
    # Arrow would refuse a path that is not UTF-8; therefore it gets an open file.
    with replacing(path) as temporary, temporary.open("wb") as file:

        def write(table: Any) -> None:
            nonlocal writer
            writer = writer or csv.CSVWriter(file, table.schema)
            writer.write_table(table)

        yield write
        if writer is not None:
            writer.close()
