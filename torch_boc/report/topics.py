"""The topics of a report in their order, and what is collected from all of them for pages, terminal and files.

A new section of the report needs a file with a `Topic`, and its name in this list.
"""

from collections.abc import Collection, Iterable
from typing import Any

from .calibration import CALIBRATION
from .caveats import CAVEATS
from .detection import DETECTION
from .flips import FLIPS
from .gap import GAP
from .parts import Caption, ContrastRow, Figure, Section, Table
from .results import Results
from .screening import SCREENING

TOPICS = (CAVEATS, CALIBRATION, DETECTION, SCREENING, GAP, FLIPS)


def sections(results: Results, drawn: Collection[str] = ()) -> list[Section]:
    """The sections of the report. A topic without tables has no section.

    Args:
        results: the numbers.
        drawn: the names of the figures that were drawn.
    """
    found = [
        Section(topic.title, topic.text(results), topic.tables(results), captions(results, drawn, topic.figures))
        for topic in TOPICS
    ]
    return [section for section in found if section.tables]


def main_tables(results: Results) -> list[Table]:
    """The tables for a terminal and a notebook, which are those with a heading."""
    return [table for section in sections(results) for table in section.tables if table.heading]


def verdict(results: Results) -> list[str]:
    """What the numbers say, in sentences: calibration, which score to use, and what the gap adds to confidence."""
    return [text for topic in TOPICS for say in (*topic.sentences, *topic.details) for text in say(results)]


def key_sentences(results: Results) -> list[str]:
    """The most important sentences of the verdict, for the comparison of several models."""
    return [text for topic in TOPICS for say in topic.sentences for text in say(results)]


def draw_figures(results: Results) -> dict[str, Any]:
    """The figures of matplotlib by name. A figure that has nothing to show is left out."""
    drawn = {figure.name: figure.draw(results) for figure in all_figures()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def all_figures() -> list[Figure]:
    """All figures that a report can have."""
    return [figure for topic in TOPICS for figure in topic.figures]


def captions(results: Results, drawn: Collection[str], among: Iterable[Figure] | None = None) -> list[Caption]:
    """The captions of the figures that were drawn.

    Args:
        results: the numbers.
        drawn: the names of the figures that were drawn.
        among: the figures to consider; all by default.
    """
    chosen = all_figures() if among is None else among
    return [Caption(x.name, x.caption, f"{x.describe(results)}.") for x in chosen if x.name in drawn]


def contrast_rows() -> list[ContrastRow]:
    """The rows of the table of several models."""
    return [row for topic in TOPICS for row in topic.contrast()]


def glossary() -> list[tuple[str, str]]:
    """Symbols and short names with their meanings."""
    return [pair for topic in TOPICS for pair in topic.glossary]
