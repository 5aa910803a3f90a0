"""The parts of a report: cells, tables, captions and sections, and the topics that make them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..pages import Cell as Cell
from ..pages import Table as Table
from .results import Results
from .words import interval_text, number

UPSIDE_DOWN = "upside down"


NOTHING = Cell("–")


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


def _no_tables(results: Results) -> list[Table]:
    return []


def _no_text(results: Results) -> str:
    return ""


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
        contrast: gives rows for the table of several models: a name, and a function that gives the cell of a model.
        glossary: symbols and short names of this topic, with their meanings.
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
    """The tables without those that are None."""
    return [table for table in tables if table is not None]


def are_best(column: Any, choose: Callable[..., Any]) -> Sequence[bool]:
    """Which values are the best after rounding, so that numbers that look equal are emphasised alike."""
    rounded = column.astype(float).round(4)
    best = choose(rounded.dropna(), default=math.nan)
    return [value == best for value in rounded]


def value_cell(table: Any, column: str, *, sign: bool = False) -> Cell:
    """The value of a column in the first row, with its interval."""
    if not len(table):
        return NOTHING
    return Cell(number(table.iloc[0][column], sign=sign), interval_text(table.iloc[0], column, sign=sign))
