"""The parts of a report: cells, tables and sections."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from .chart import Chart
from .format import interval_text, number


class Cell(NamedTuple):
    """One cell of a table.

    Attributes:
        text: the value or the name.
        small: an interval or a second name, in small type.
        best: whether the cell is emphasised.
        mark: a warning next to the text, such as "upside down".
        bar: a share that a page shows as a bar below the text; None for no bar.
    """

    text: str
    small: str = ""
    best: bool = False
    mark: str = ""
    bar: float | None = None


NOTHING = Cell("–")


class Table(NamedTuple):
    """A table, in which the first cell of each row is the name of the row.

    Attributes:
        caption: stands above the table on a page.
        columns: the titles of the columns.
        rows: the rows; each has a cell for each column.
        kind: the class of the table on a page; "sortable" if a click on a title sorts its rows.
    """

    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    kind: str = ""


def make_table(caption: str, columns: Mapping[str, Sequence[Cell | str]], kind: str = "") -> Table:
    """A table from its columns, by title: cells, or texts that become cells."""
    rows = []
    for values in zip(*columns.values(), strict=True):
        rows.append([Cell(value) if isinstance(value, str) else value for value in values])
    return Table(caption, list(columns), rows, kind)


def cells(table: Any, column: str, digits: int = 4, *, best: float = math.nan, **options: Any) -> list[Cell]:
    """The values of a column with their intervals; those that look like the best one are emphasised.

    Args:
        table: a DataFrame.
        column: one of its columns.
        digits: the number of decimals.
        best: the best of all values, if one is to be emphasised.
        options: further arguments of `number`.
    """
    made = []
    for _, row in table.iterrows():
        text, around = number(row[column], digits, **options), interval_text(row, column, digits, **options)
        made.append(NOTHING if text == NOTHING.text else Cell(text, around, text == number(best, digits, **options)))
    return made


class Section(NamedTuple):
    """One topic of a report, with everything that the outputs show of it.

    Attributes:
        title: the topic.
        sentences: the findings. The first one is the lead, and all of them are in the verdict.
        charts: figures by name, each with what it shows in words.
        tables: tables that are shown.
        more: tables behind a click, by what is written there.
        note: how to read it, in small type.
        aside: sentences behind the first click, which are not in the verdict.
    """

    title: str
    sentences: list[str]
    charts: Mapping[str, tuple[Chart, str]] = MappingProxyType({})
    tables: Sequence[Table] = ()
    more: Mapping[str, Sequence[Table]] = MappingProxyType({})
    note: str = ""
    aside: Sequence[str] = ()
