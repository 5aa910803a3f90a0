"""The tables of a page."""

from typing import NamedTuple


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
