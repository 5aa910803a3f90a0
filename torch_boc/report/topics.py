"""The topics of a report in their order, and what is collected from all of them for pages, terminal and files.

A new section of the report needs a file with a `Topic`, and its name in this list.
"""

import math
import re
from collections.abc import Collection, Iterable
from typing import Any

from ..calibration.leaks import overlap_message
from ..data.sets import SMALLEST
from .calibration import CALIBRATION
from .coherence import FLIPS, GAP
from .detection import DETECTION
from .parts import Caption, ContrastRow, Figure, Section, Table, Topic
from .screening import SCREENING
from .tables import Results
from .words import listed, number, quoted

TITLE = "Bag-of-Coins report"
COMPARISONS = (
    "what a sentence calls “shown” is corrected for all comparisons of the same kind, by Holm’s method, at the level "
    "of 5 %; the intervals in the tables are not corrected"
)
ECE_INTERVAL = "for the lower end of the ECE, what chance adds is subtracted"
OOD_INTERVAL = "for AUROC vs MSP by DeLong’s method; wider, as for binomial counts, if few samples are on one side"
SHARES = "for shares of flagged samples by Clopper and Pearson’s method"
FROM_PROBABILITIES = (
    f"logarithms of the given probabilities, with {SMALLEST} in place of a probability of 0; the energy is left out, "
    "because it is always 0 after a softmax"
)
# The intervals of a set with fewer samples than this are too narrow.
SMALL_SET = 100


def small_set_sentence(results: Results) -> Iterable[str]:
    """A warning if a set is too small."""
    sizes = results.settings["samples"].items()
    small = [f"{quoted(name)} has {size}" for name, size in sizes if size < SMALL_SET]
    if small:
        yield f"With fewer than {SMALL_SET} samples numbers are rough and intervals too narrow: {listed(small)}."


def overlap_sentences(results: Results) -> Iterable[str]:
    """A sentence for each set that shares samples with the test set."""
    test, size = next(iter(results.settings["samples"].items()))
    for _, row in results.overlaps[results.overlaps["suspicious"].astype(bool)].iterrows():
        yield overlap_message(row["kind"], row["shared"], size, test=quoted(test), other=quoted(row["set"]))


def column_sentence(results: Results) -> Iterable[str]:
    """What is missing because the tables hold columns instead of logits."""
    if results.settings.get("from_columns"):
        yield (
            "The tables hold the columns of a predictor, not logits, so these parts are left out: "
            f"{listed(results.settings['left_out'])}."
        )


def sampled_sentence(results: Results) -> Iterable[str]:
    """That random rows were read of large sets."""
    sizes, totals = results.settings["samples"], results.settings.get("sampled", {})
    drawn = [f"{sizes[name]:,} of the {total:,} rows of {quoted(name)}" for name, total in totals.items()]
    if drawn:
        yield f"A random sample was read: {listed(drawn)}. All numbers and intervals are those of the sample."


CAVEATS = Topic(sentences=(small_set_sentence, overlap_sentences, column_sentence, sampled_sentence))
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


def headline(results: Results) -> str:
    """The sets, their sizes and the most important settings, in one line."""
    settings = results.settings
    parts = [", ".join(f"{name} {count:,}" for name, count in settings["samples"].items())]
    accuracy = float(settings.get("accuracy", math.nan))
    if not math.isnan(accuracy):
        parts.append(f"accuracy {number(accuracy)}")
    return " · ".join([*parts, f"{settings['classes']} classes", f"k = {settings['trials']}"])


def measured_how(results: Results) -> list[tuple[str, str]]:
    """The settings, as pairs of a name and a value."""
    settings = results.settings
    intervals = f"95 %, bootstrap with {settings['replicates']:,} replicates, seed {settings['seed']}"
    for table, words in ((results.calibration, ECE_INTERVAL), (results.ood, OOD_INTERVAL), (results.screening, SHARES)):
        intervals += f"; {words}" if len(table) else ""
    drawn = settings.get("sampled", {}).items()
    rows = ", ".join(f"{name} {settings['samples'][name]:,} of {total:,}" for name, total in drawn)
    how = f"drawn uniformly, seed {settings['seed']}; all numbers and intervals are those of these rows"
    pairs = [
        ("samples", ", ".join(f"{name} {count:,}" for name, count in settings["samples"].items())),
        ("classes", str(settings["classes"])),
        ("logits", FROM_PROBABILITIES if settings.get("from_probabilities") else ""),
        ("calibration error", f"{settings['bins']} bins of equal width, closed on the right"),
        ("coin flips", f"k = {settings['trials']}"),
        ("intervals", intervals),
        ("several comparisons", COMPARISONS),
        ("random rows", f"{rows} rows, {how}" if rows else ""),
        ("left out", "; ".join(settings.get("left_out", ()))),
        ("date", str(settings.get("date", ""))),
        ("versions", ", ".join(f"{name} {version}" for name, version in settings.get("versions", {}).items())),
    ]
    return [(name, value) for name, value in pairs if value]


class Introductions:
    """Remembers which symbols have been explained, so that each is explained once, where it first appears.

    >>> reader = Introductions()
    >>> [name for name, _ in reader.of(["Best is BoC: ECE 0.01"])], reader.of(["The ECE again"])
    (['ECE', 'q̄', 'BoC'], [])
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, texts: Iterable[str]) -> list[tuple[str, str]]:
        """The symbols in these texts that have not been explained yet, with their meanings, in the glossary's order.

        If a meaning contains other symbols, these are explained as well.
        """
        fresh = _within(texts) - self._known
        while more := _within(text for name, text in glossary() if name in fresh) - self._known - fresh:
            fresh |= more
        self._known |= fresh
        return [(name, text) for name, text in glossary() if name in fresh]


def _within(texts: Iterable[str]) -> set[str]:
    whole = "\n".join(texts)
    return {name for name, _ in glossary() if re.search(rf"(?<![\w’'-]){re.escape(name)}(?![\w-])", whole)}
