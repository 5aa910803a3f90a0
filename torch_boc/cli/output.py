"""What commands print and write: results on stdout, progress and messages on stderr, and files of samples."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..data.atomic import check_file, check_folder, printable, replacing
from .options import FOLDER

if TYPE_CHECKING:
    from torch import Tensor

    from ..report import parts

STDOUT = "-"
WIDTH = 80
LEAST_ROOM = 12  # for the names of rows, and for notes beside them
PLAIN_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
SIGNS = "†‡§"
# Symbols of the report in plain letters; symbols of two characters come first.
LETTERS = {
    **{"q̄": "q_bar", "p̂": "p_hat", "Δ": "Delta", "ρ": "rho", "²": "^2", "×": "x", "∞": "inf", "≥": ">=", "≤": "<="},
    **{"−": "-", "–": "-", "—": "-", "·": "|", "…": ".", "“": '"', "”": '"', "‘": "'", "’": "'", "→": "->"},
    **{"†": "*", "‡": "+", "§": "#", "\u00a0": " "},
}


def spell(text: str, encoding: str) -> str:
    r"""The text, or, if `encoding` is not a UTF, with symbols as letters and other characters as escapes.

    >>> spell("q̄ − p̂ of 日", "ascii"), spell("q̄", "utf-8")
    ('q_bar - p_hat of \\u65e5', 'q̄')
    """
    if encoding.startswith("utf"):
        return text
    for symbol, plain in LETTERS.items():
        text = text.replace(symbol, plain)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def terminal(out: str | None = None) -> Console:
    """The console for text and tables: stdout, or stderr if `out` is stdout. In a pipe it is 80 columns wide."""
    return Console(highlight=False, markup=False, emoji=False, stderr=out == STDOUT)


def put(console: Console, text: str, style: str = "", **options: Any) -> None:
    """Print text that may hold names given by users. Control characters and unknown characters are escaped."""
    lines = "\n".join(map(printable, text.split("\n")))
    console.print(spell(lines, console.encoding), style=style, **options)


def say(message: str) -> None:
    """Print one line on stderr; it does not disturb a spinner."""
    line = printable(" ".join(message.splitlines()))
    sys.stderr.write(spell(f"torch-boc: {line}\n", (getattr(sys.stderr, "encoding", None) or "utf-8").lower()))
    sys.stderr.flush()


def print_json(content: str | Mapping[str, Any], **options: Any) -> None:
    """Print JSON, or an object as JSON, in which NaN and infinity are null; other letters as the encoding allows."""
    console = terminal()
    plain = not console.encoding.startswith("utf")
    if isinstance(content, str):
        text = json.dumps(json.loads(content), indent=2) + "\n" if plain else content
    else:
        from ..report.report import strict

        text = json.dumps(strict(content), allow_nan=False, ensure_ascii=plain, **options) + "\n"
    console.file.write(text)
    console.file.flush()


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


def choose_folder(out: str | None, *, json: bool, files: Iterable[str]) -> Path | None:
    """The folder for the report, or None. A folder that cannot be written to is an error before the work begins."""
    return None if json and out is None else check_folder(out or FOLDER, files)


def list_files(paths: Iterable[str | Path | None], console: Console) -> None:
    """Print the files that were written, with their sizes; of each folder the first, and how many more."""
    written = [Path(path) for path in paths if path is not None and path != STDOUT]
    if written:
        put(console, "\nWrote", "bold")
    for _, group in groupby(written, key=lambda path: path.parent):
        inside = list(group)
        more = f" and {len(inside) - 1} more" if len(inside) > 1 else ""
        put(console, f"{size(sum(x.stat().st_size for x in inside)):>9}  {inside[0]}{more}", soft_wrap=True)


def size(count: float) -> str:
    """A number of bytes, in a suitable unit.

    >>> size(812), size(20_480), size(3_500_000)
    ('812 B', '20.5 kB', '3.5 MB')
    """
    units = ["B", "kB", "MB", "GB"]
    while count >= 1000 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"


def show_report(report: Any, console: Console) -> None:
    """Print the main tables and the verdict. Intervals and diagnostics are in the files only."""
    from ..report.topics import Introductions, main_tables

    reader = Introductions()
    for table in main_tables(report.results):
        put(console, f"\n{table.heading}", "bold")
        places = [i for i, title in enumerate(table.columns) if title not in table.pages_only]
        show_table(only(table, places), console, reader)
    put(console, "\nWhat this says", "bold")
    show_sentences(report.verdict, console, reader)


def show_comparison(comparison: Any, console: Console) -> None:
    """Print all models in one table, and then the sentences about each. Intervals are in the files only."""
    from ..report.topics import Introductions

    reader = Introductions()
    put(console, "\nLower ECE and higher AUROC are better", "bold")
    show_table(comparison.table(), console, reader)
    for table in comparison.tables():
        put(console, f"\n{table.caption}", "bold")
        cells = [[x._replace(text=f"{x.text} ({x.small})") if x.small else x for x in row[1:]] for row in table.rows]
        rows = [[row[0], *rest] for row, rest in zip(table.rows, cells, strict=True)]
        show_table(table._replace(rows=rows), console, reader)
    for name, report in comparison.reports.items():
        put(console, f"\n{name}", "bold")
        put(console, report.results.settings["title"], "dim")
        show_sentences(comparison.sentences(name), console, reader)


def show_table(table: "parts.Table", console: Console, reader: Any) -> None:
    """Print a table, in parts if it is too wide, and the meanings of symbols in it that were not explained before."""
    width = min(console.width, WIDTH)
    for part in cut_to_width(table, width):
        console.print(terminal_table(part, console.encoding), width=width)
    _introduce(reader, [*table.columns, *(row[0].text for row in table.rows)], console)


def show_sentences(sentences: Iterable[str], console: Console, reader: Any) -> None:
    """Print sentences with a dash before each, and the meanings of new symbols in them."""
    show_pairs((("-", sentence) for sentence in sentences), console)
    _introduce(reader, sentences, console)


def _introduce(reader: Any, texts: Iterable[str], console: Console) -> None:
    if found := reader.of(texts):
        show_pairs(found, console, "dim")


def show_pairs(pairs: Iterable[tuple[str, str]], console: Console, style: str = "") -> None:
    """Print names or marks with a text beside each, in two columns."""
    grid = Table.grid(padding=(0, 1))
    for pair in pairs:
        grid.add_row(*(Text(spell(printable(text), console.encoding), overflow="fold") for text in pair))
    console.print(grid, style=style, width=min(console.width, WIDTH))


def only(table: "parts.Table", places: list[int]) -> "parts.Table":
    """The table with these columns."""
    rows = [[row[i] for i in places] for row in table.rows]
    return table._replace(columns=[table.columns[i] for i in places], rows=rows)


def cut_to_width(table: "parts.Table", width: int) -> Iterator["parts.Table"]:
    """The table in parts that fit into the width. Each part has the names of the rows."""
    columns = zip(table.columns, *table.rows, strict=True)
    widths = [max(cell_len(title), *(cell_len(cell.text) for cell in cells)) + 2 for title, *cells in columns]
    notes = max((cell_len(row[0].small) + 3 * bool(row[0].mark) for row in table.rows), default=0)
    room = width - 1 - min(widths[0], max(LEAST_ROOM, width // 3)) - min(notes, LEAST_ROOM)
    places: list[int] = []
    for place in range(1, len(widths)):
        if places and sum(widths[i] for i in (*places, place)) > room:
            yield only(table, [0, *places])
            places = []
        places.append(place)
    yield only(table, [0, *places])


def terminal_table(table: "parts.Table", encoding: str = "utf-8") -> Table:
    """The table for a terminal, with the best values in bold. Long names and notes are broken, numbers are not."""
    from ..report.parts import UPSIDE_DOWN

    marks = dict(zip(dict.fromkeys(name.mark for name, *_ in table.rows if name.mark), SIGNS, strict=False))
    caption = Text(spell(", ".join(f"{sign} {mark}" for mark, sign in marks.items()), encoding)) if marks else None
    box = SIMPLE_HEAD if encoding.startswith("utf") else PLAIN_HEAD
    result = Table(caption=caption, caption_justify="left", box=box, padding=(0, 1, 0, 0))
    # A note is the split or the key, and a sign, which the line below the table explains.
    notes = [f"{marks.get(name.mark, '')} {name.small.removeprefix('fitted on ')}".strip() for name, *_ in table.rows]
    for title in (table.columns[0], *([""] if any(notes) else [])):
        result.add_column(spell(title, encoding), overflow="fold")
    for title in table.columns[1:]:
        result.add_column(spell(title, encoding), justify="right", no_wrap=True, overflow="fold")
    for (name, *values), note in zip(table.rows, notes, strict=True):
        cells = [Text(spell(cell.text, encoding), style="bold" if cell.best else "") for cell in values]
        row = [Text(spell(text, encoding)) for text in (name.text, *([note] if any(notes) else []))]
        result.add_row(*row, *cells, style="dim" if name.mark == UPSIDE_DOWN else "")
    return result


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
def sample_file(out: str | None) -> Iterator[Callable[[Mapping[str, "Tensor | list[str]"]], None]]:
    """A function that appends columns to a Parquet or CSV file, which appears whole at the end, if there is no error.

    It does nothing if `out` is None, and "-" is CSV on stdout.
    """
    if out is None:
        yield lambda columns: None
        return
    from .._optional import require_pyarrow
    from ..data.parquet import ParquetFile

    if out.lower().endswith(".parquet"):
        with ParquetFile(out) as parquet:
            yield parquet.write
        return
    arrow, headers = require_pyarrow(), [True]

    def write(columns: Mapping[str, Any], file: Any) -> None:
        table = arrow.table({name: x if isinstance(x, list) else x.numpy() for name, x in columns.items()})
        arrow.csv.write_csv(table, file, arrow.csv.WriteOptions(include_header=bool(headers) and headers.pop()))

    if out == STDOUT:
        yield partial(write, file=sys.stdout.buffer)
        return
    # Arrow would refuse a path that is not UTF-8; therefore it gets an open file.
    with replacing(out) as temporary, temporary.open("wb") as file:
        yield partial(write, file=file)
