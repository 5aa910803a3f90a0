"""What a report is made of: cells, tables and captions, sections of them, and topics that give all of it."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .results import Results
from .words import interval_text, number

UPSIDE_DOWN = "upside down"


class Cell(NamedTuple):
    """A value, an interval or a name in small type, emphasis, and a mark such as "upside down"."""

    text: str
    small: str = ""
    best: bool = False
    mark: str = ""


NOTHING = Cell("–")


class Table(NamedTuple):
    """A caption, titles of the columns, and rows whose first cell names the row.

    Attributes:
        caption: stands over the table on a page.
        columns: titles.
        rows: as many cells as there are columns in each.
        heading: stands over the table in a terminal. A table without one is shown on pages only.
        pages_only: titles of columns that a terminal has no room for.
    """

    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    heading: str = ""
    pages_only: tuple[str, ...] = ()


class Caption(NamedTuple):
    """The name of a figure, a caption for all, and what a screen reader says in place of the image."""

    name: str
    caption: str
    alt: str


class Section(NamedTuple):
    """A heading, a paragraph, tables, and the captions of the figures that there are."""

    title: str
    text: str
    tables: list[Table]
    captions: list[Caption]

    def words(self) -> list[str]:
        """All that a reader sees of the section: where symbols may first appear."""
        cells = [cell for table in self.tables for row in table.rows for cell in row]
        texts = [self.text, *(x for table in self.tables for x in (table.caption, *table.columns))]
        texts += [x for cell in cells for x in (cell.text, cell.mark)]
        return texts + [caption.caption for caption in self.captions]


@dataclass(frozen=True)
class Figure:
    """A figure of a topic.

    Attributes:
        name: its key in `Report.figures()`, and the name of its file.
        draw: makes a figure of matplotlib, or None where there is nothing to show.
        caption: stands under it.
        describe: its numbers in words, without a full stop, for those who cannot see it.
    """

    name: str
    draw: Callable[[Results], Any]
    caption: str
    describe: Callable[[Results], str]


Sentences = Callable[[Results], Iterable[str]]
ContrastRow = tuple[Cell, Callable[[Results], Cell]]


def _no_tables(results: Results) -> list[Table]:
    return []


def _no_text(results: Results) -> str:
    return ""


@dataclass(frozen=True)
class Topic:
    """One subject of a report, with all that any output shows of it; `topics.TOPICS` lists them.

    Attributes:
        title: the heading of its section.
        text: the paragraph under the heading.
        tables: those of its section; a topic without tables has no section.
        figures: those of its section.
        sentences: of the verdict, also where several models stand side by side.
        details: sentences of the verdict that follow them, for one model alone.
        contrast: its rows in a table of several models: the name, and a function that gives the cell of a model.
        glossary: symbols and short names that belong to it, and what they mean.
    """

    title: str = ""
    text: Callable[[Results], str] = _no_text
    tables: Callable[[Results], list[Table]] = _no_tables
    figures: tuple[Figure, ...] = ()
    sentences: tuple[Sentences, ...] = ()
    details: tuple[Sentences, ...] = ()
    contrast: Callable[[], Iterable[ContrastRow]] = tuple
    glossary: tuple[tuple[str, str], ...] = ()


def present(*tables: Table | None) -> list[Table]:
    """The tables that there are."""
    return [table for table in tables if table is not None]


def are_best(column: Any, choose: Callable[..., Any]) -> Sequence[bool]:
    """Which values are the best as they are printed, so that equal numbers are emphasised alike."""
    rounded = column.astype(float).round(4)
    best = choose(rounded.dropna(), default=math.nan)
    return [value == best for value in rounded]


def value_cell(table: Any, column: str, *, sign: bool = False) -> Cell:
    """A value of the first row with its interval."""
    if not len(table):
        return NOTHING
    return Cell(number(table.iloc[0][column], sign=sign), interval_text(table.iloc[0], column, sign=sign))
