"""What a reader must know first: sets that are too small, and samples that are in two sets."""

from collections.abc import Iterable

from ..calibration.leaks import overlap_message
from .parts import Topic
from .results import Results
from .words import listed, quoted

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


CAVEATS = Topic(sentences=(small_set_sentence, overlap_sentences, column_sentence))
