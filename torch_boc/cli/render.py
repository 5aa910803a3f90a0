"""A report in a terminal of 80 columns."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..evaluation import layout

WIDTH = 80
MARK = "†"


def show(report: Any, console: Console) -> None:
    """Both tables and what they say; intervals and diagnostics are in the files."""
    calibration = layout.calibration_table(report.results)
    if calibration is not None:
        calibration = without(calibration, "by chance")
        console.print("\nCalibration: lower errors (ECE, NLL, Brier) are better", style="bold")
        console.print(terminal_table(calibration, console.width))
    for name, table in zip(dict.fromkeys(report.ood["ood"]), layout.ood_tables(report.results), strict=True):
        console.print(f"\nOut of distribution, {name}: higher AUROC and AUPR, lower FPR95 are better", style="bold")
        console.print(terminal_table(table, console.width))
    console.print("\nWhat this says", style="bold")
    sentences = Table.grid(padding=(0, 1))
    for sentence in report.verdict:
        sentences.add_row("-", Text(sentence))
    console.print(sentences)


def without(table: layout.Table, title: str) -> layout.Table:
    """The table without a column that there is no room for."""
    place = table.columns.index(title)
    rows = [row[:place] + row[place + 1 :] for row in table.rows]
    return layout.Table(table.caption, table.columns[:place] + table.columns[place + 1 :], rows)


def terminal_table(table: layout.Table, width: int = WIDTH) -> Table:
    """A table with the best values bold, notes cut short if they must, and numbers never."""
    marks = ", ".join(dict.fromkeys(name.mark for name, *_ in table.rows if name.mark))
    result = Table(
        caption=Text(f"{MARK} {marks}") if marks else None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    notes = [_note(name) for name, *_ in table.rows]
    _add_columns(result, table, notes, min(width, WIDTH))
    for (name, *values), note in zip(table.rows, notes, strict=True):
        cells = [Text(cell.text, style="bold" if cell.best else "") for cell in values]
        row = [Text(name.text), *([Text(note)] if any(notes) else []), *cells]
        result.add_row(*row, style="dim" if name.mark == layout.UPSIDE_DOWN else "")
    return result


def _add_columns(result: Table, table: layout.Table, notes: list[str], limit: int) -> None:
    """Numbers take the room they need, names and then notes what is left of the terminal, or of 80 columns."""
    widths = [
        max(cell_len(x) for x in (title, *(row[i].text for row in table.rows))) for i, title in enumerate(table.columns)
    ]
    left = max(8, limit - 1 - sum(width + 2 for width in widths[1:]) - (4 if any(notes) else 2))
    named = min(widths[0], max(left // 2, left - max(map(cell_len, notes), default=0)))
    result.add_column(table.columns[0], no_wrap=True, overflow="ellipsis", width=named)
    if any(notes):
        room = min(left - named, max(map(cell_len, notes)))
        result.add_column("", no_wrap=True, overflow="ellipsis", width=room)
    for title, width in zip(table.columns[1:], widths[1:], strict=True):
        result.add_column(title, justify="right", no_wrap=True, width=width)


def _note(name: layout.Cell) -> str:
    """What stands beside a name: the split or the key, and a mark that the line below the table explains."""
    return f"{MARK * bool(name.mark)}{' ' * bool(name.mark and name.small)}{name.small.removeprefix('fitted on ')}"
