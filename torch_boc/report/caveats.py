"""What is to be known before any number: sets that are too small, and samples that stand in two sets."""

from collections.abc import Iterable

from ..calibration.overlap import overlap_message
from .parts import Topic
from .results import Results
from .words import listed, quoted

# Below this many samples no interval is to be trusted.
SMALL_SET = 100


def small_set_sentence(results: Results) -> Iterable[str]:
    """A warning where a set is too small for its numbers."""
    sizes = results.settings["samples"].items()
    small = [f"{quoted(name)} has {size}" for name, size in sizes if size < SMALL_SET]
    if small:
        yield f"Below {SMALL_SET} samples the numbers are rough and the intervals too narrow: {listed(small)}."


def overlap_sentences(results: Results) -> Iterable[str]:
    """A sentence for each set that shares samples with the test set."""
    test, size = next(iter(results.settings["samples"].items()))
    for _, row in results.overlaps[results.overlaps["suspicious"].astype(bool)].iterrows():
        yield overlap_message(row["kind"], row["shared"], size, test=quoted(test), other=quoted(row["set"]))


CAVEATS = Topic(sentences=(small_set_sentence, overlap_sentences))
