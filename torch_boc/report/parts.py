"""The parts of a report: cells, tables, captions and sections, and the topics that make them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .tables import Results
from .words import interval_text, number

UPSIDE_DOWN = "upside down"


class Cell(NamedTuple):
    """One cell of a table.

    Attributes:
        text: the value or the name.
        small: an interval or a second name, in small type.
        best: whether the cell is emphasised.
        mark: a warning beside the text, such as "upside down".
    """

    text: str
    small: str = ""
    best: bool = False
    mark: str = ""


NOTHING = Cell("–")


class Table(NamedTuple):
    """A table, in which the first cell of each row is the name of the row.

    Attributes:
        caption: stands above the table on a page.
        columns: the titles of the columns.
        rows: the rows; each has a cell for each column.
        heading: stands above the table in a terminal. A table without a heading is shown on pages only.
        pages_only: the titles of the columns that a terminal has no room for.
    """

    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    heading: str = ""
    pages_only: tuple[str, ...] = ()


class Caption(NamedTuple):
    """The name of a figure, its caption, and the text that a screen reader says instead of the image."""

    name: str
    caption: str
    alt: str


class Section(NamedTuple):
    """A heading, a paragraph, tables, and the captions of the figures that were drawn."""

    title: str
    text: str
    tables: list[Table]
    captions: list[Caption]

    def words(self) -> list[str]:
        """All texts of the section, in which symbols may appear."""
        cells = [cell for table in self.tables for row in table.rows for cell in row]
        texts = [self.text, *(x for table in self.tables for x in (table.caption, *table.columns))]
        texts += [x for cell in cells for x in (cell.text, cell.mark)]
        return texts + [caption.caption for caption in self.captions]


@dataclass(frozen=True)
class Figure:
    """A figure of a topic.

    Attributes:
        name: the key in `Report.figures()`, and the name of the file.
        draw: makes a figure of matplotlib, or None if there is nothing to show.
        caption: stands below the figure.
        describe: gives the numbers of the figure in words, without a full stop, for people who cannot see it.
    """

    name: str
    draw: Callable[[Results], Any]
    caption: str
    describe: Callable[[Results], str]


Sentences = Callable[[Results], Iterable[str]]
ContrastRow = tuple[Cell, Callable[[Results], Cell]]


@dataclass(frozen=True)
class Topic:
    """One subject of a report, with everything that the outputs show of it. `topics.TOPICS` lists all topics.

    Attributes:
        title: the heading of the section.
        text: gives the paragraph below the heading.
        tables: gives the tables of the section. A topic without tables has no section.
        figures: the figures of the section.
        sentences: give sentences for the verdict, also for the comparison of several models.
        details: give further sentences for the verdict on one model.
        contrast: rows for the table of several models: a name, and a function that gives the cell of a model.
        glossary: symbols and short names of this topic, with their meanings.
    """

    title: str = ""
    text: Callable[[Results], str] = lambda results: ""
    tables: Callable[[Results], list[Table]] = lambda results: []
    figures: tuple[Figure, ...] = ()
    sentences: tuple[Sentences, ...] = ()
    details: tuple[Sentences, ...] = ()
    contrast: Callable[[], Iterable[ContrastRow]] = tuple
    glossary: tuple[tuple[str, str], ...] = ()


def are_best(column: Any, choose: Callable[..., Any]) -> Sequence[bool]:
    """Which values are the best after rounding, so that numbers that look equal are emphasised alike."""
    rounded = column.astype(float).round(4)
    best = choose(rounded.dropna(), default=math.nan)
    return [value == best for value in rounded]


def row_cell(row: Any, column: str, *, sign: bool = False, best: bool = False) -> Cell:
    """The value of a column in a row, with its interval."""
    return Cell(number(row[column], sign=sign), interval_text(row, column, sign=sign), bool(best))


def first_cell(table: Any, column: str) -> Cell:
    """The value of a column in the first row of a table, with its interval."""
    return row_cell(table.iloc[0], column) if len(table) else NOTHING
