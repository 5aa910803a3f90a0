"""A report in a terminal of 80 columns."""

from collections.abc import Iterable
from typing import Any

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..report import parts
from ..report.topics import Introductions, main_tables
from .console import put
from .spelling import spell

WIDTH = 80
PLAIN_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
SIGNS = "†‡§"
GUTTER = 2
LEAST_ROOM = 12  # for names and notes
FRAME = 6  # the width of the borders of a table that has a column for notes


def show_report(report: Any, console: Console) -> None:
    """Print the main tables and the verdict. Intervals and diagnostics are in the files only."""
    reader = Introductions()
    for table in main_tables(report.results):
        put(console, f"\n{table.heading}", "bold")
        short = without(table, *table.pages_only)
        for part in _fitting(spelled(short, console.encoding), min(console.width, WIDTH)):
            console.print(terminal_table(part, console.width, box_for(console)))
        _introduce(reader, table_words(short), console)
    put(console, "\nWhat this says", "bold")
    console.print(bullets(spell(sentence, console.encoding) for sentence in report.verdict))
    _introduce(reader, report.verdict, console)


def _introduce(reader: Introductions, texts: Iterable[str], console: Console) -> None:
    """Print the meanings of the symbols in these texts that were not explained before, in dim letters."""
    grid = Table.grid(padding=(0, 1))
    for name, meaning in reader.of(texts):
        grid.add_row(*(Text(spell(text, console.encoding)) for text in (name, meaning)))
    if grid.row_count:
        console.print(grid, style="dim", width=min(console.width, WIDTH))


def table_words(table: parts.Table) -> list[str]:
    """The titles of the columns of a table, and the names of its rows."""
    return [*table.columns, *(row[0].text for row in table.rows)]


def show_comparison(comparison: Any, console: Console) -> None:
    """Print all models in one table, and then the sentences about each. Intervals are in the files only."""
    table = spelled(comparison.table(), console.encoding)
    put(console, "\nLower ECE and higher AUROC are better", "bold")
    for part in cut_to_width(table, min(console.width, WIDTH)):
        console.print(terminal_table(part, console.width, box_for(console)))
    reader = Introductions()
    _introduce(reader, table_words(comparison.table()), console)
    for more in comparison.tables():
        put(console, f"\n{more.caption}", "bold")
        for part in cut_to_width(spelled(beside(more), console.encoding), min(console.width, WIDTH)):
            console.print(terminal_table(part, console.width, box_for(console)))
        _introduce(reader, table_words(more), console)
    for name, report in comparison.reports.items():
        put(console, f"\n{name}", "bold")
        put(console, report.results.settings["title"], "dim")
        console.print(bullets(spell(sentence, console.encoding) for sentence in comparison.sentences(name)))
        _introduce(reader, comparison.sentences(name), console)


def beside(table: parts.Table) -> parts.Table:
    """The table with each interval beside its value."""

    def cell(x: parts.Cell) -> parts.Cell:
        return x._replace(text=f"{x.text} ({x.small})", small="") if x.small else x

    return table._replace(rows=[[row[0], *map(cell, row[1:])] for row in table.rows])


def bullets(sentences: Iterable[str]) -> Table:
    """A list with a dash before each sentence."""
    grid = Table.grid(padding=(0, 1))
    for sentence in sentences:
        grid.add_row("-", Text(sentence))
    return grid


def spelled(table: parts.Table, encoding: str) -> parts.Table:
    """The table in characters that the terminal can show."""

    def cell(x: parts.Cell) -> parts.Cell:
        return x._replace(text=spell(x.text, encoding), small=spell(x.small, encoding))

    titles = [spell(title, encoding) for title in table.columns]
    return parts.Table(spell(table.caption, encoding), titles, [[cell(x) for x in row] for row in table.rows])


def _fitting(table: parts.Table, width: int) -> list[parts.Table]:
    """The table, or its parts if the numbers would leave too little room for names and notes."""
    room = width - FRAME - sum(column + GUTTER for column in _widths(table)[1:])
    return [table] if room >= LEAST_ROOM else cut_to_width(table, width)


def cut_to_width(table: parts.Table, width: int) -> list[parts.Table]:
    """The table cut into parts of about equal size that fit into the width. Each part has the names of the rows."""
    first, *widths = _widths(table)
    first = min(first, max(LEAST_ROOM, width // 3))  # a longer name is cut
    groups = _groups(widths, width - FRAME - first, len(widths))
    groups = _groups(widths, width - FRAME - first, -(-len(widths) // len(groups)))
    return [_only(table, [0, *(place + 1 for place in group)]) for group in groups]


def _groups(widths: list[int], room: int, most: int) -> list[list[int]]:
    """The places of the columns, in groups of at most `most` columns that fit into `room`."""
    groups: list[list[int]] = [[]]
    for place, _ in enumerate(widths):
        taken = sum(widths[i] + GUTTER for i in (*groups[-1], place))
        if groups[-1] and (taken > room or len(groups[-1]) == most):
            groups.append([])
        groups[-1].append(place)
    return groups


def without(table: parts.Table, *titles: str) -> parts.Table:
    """The table without the columns that have these titles."""
    return _only(table, [i for i, title in enumerate(table.columns) if title not in titles])


def _only(table: parts.Table, places: list[int]) -> parts.Table:
    rows = [[row[i] for i in places] for row in table.rows]
    return parts.Table(table.caption, [table.columns[i] for i in places], rows)


def box_for(console: Console) -> Box:
    """The line below the head of a table, in characters that the terminal can show."""
    return SIMPLE_HEAD if console.encoding.startswith("utf") else PLAIN_HEAD


def terminal_table(table: parts.Table, width: int = WIDTH, box: Box = SIMPLE_HEAD) -> Table:
    """The table for the terminal, with the best values in bold. Long notes are cut, numbers are not."""
    marks = dict(zip(dict.fromkeys(name.mark for name, *_ in table.rows if name.mark), SIGNS, strict=False))
    result = Table(
        caption=Text(", ".join(f"{sign} {mark}" for mark, sign in marks.items())) if marks else None,
        caption_justify="left",
        box=box,
        padding=(0, 1, 0, 0),
    )
    notes = [_note(name, marks.get(name.mark, "")) for name, *_ in table.rows]
    _add_columns(result, table, notes, min(width, WIDTH))
    for (name, *values), note in zip(table.rows, notes, strict=True):
        cells = [Text(cell.text, style="bold" if cell.best else "") for cell in values]
        row = [Text(name.text), *([Text(note)] if any(notes) else []), *cells]
        result.add_row(*row, style="dim" if name.mark == parts.UPSIDE_DOWN else "")
    return result


def _add_columns(result: Table, table: parts.Table, notes: list[str], limit: int) -> None:
    """Numbers take the width that they need. Names, and then notes, take the rest of the terminal, or of 80 columns."""
    widths = _widths(table)
    left = max(8, limit - 1 - sum(width + GUTTER for width in widths[1:]) - (4 if any(notes) else 2))
    named = min(widths[0], max(left // 2, left - max(map(cell_len, notes), default=0)))
    result.add_column(table.columns[0], no_wrap=True, overflow="ellipsis", width=named)
    if any(notes):
        room = min(left - named, max(map(cell_len, notes)))
        result.add_column("", no_wrap=True, overflow="ellipsis", width=room)
    for title, width in zip(table.columns[1:], widths[1:], strict=True):
        result.add_column(title, justify="right", no_wrap=True, width=width)


def _widths(table: parts.Table) -> list[int]:
    """The width that each column needs."""
    return [
        max(cell_len(x) for x in (title, *(row[i].text for row in table.rows))) for i, title in enumerate(table.columns)
    ]


def _note(name: parts.Cell, sign: str) -> str:
    """The note beside a name: the split or the key, and a sign, which the line below the table explains."""
    return f"{sign}{' ' * bool(sign and name.small)}{name.small.removeprefix('fitted on ')}"
