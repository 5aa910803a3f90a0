"""What is to be known before any number: sets that are too small, and samples that stand in two sets."""

from collections.abc import Iterable

from ..calibration.overlap import overlap_message
from .parts import Topic
from .results import Results
from .words import listed, quoted

# Below this many samples no interval is to be trusted.
FEW_SAMPLES = 100


def few_samples(results: Results) -> Iterable[str]:
    """A warning where a set is too small for its numbers."""
    sizes = results.settings["samples"].items()
    small = [f"{quoted(name)} has {size}" for name, size in sizes if size < FEW_SAMPLES]
    if small:
        yield f"Below {FEW_SAMPLES} samples the numbers are rough and the intervals too narrow: {listed(small)}."


def overlaps(results: Results) -> Iterable[str]:
    """A sentence for each set that shares samples with the test set."""
    test, size = next(iter(results.settings["samples"].items()))
    for _, row in results.overlaps[results.overlaps["suspicious"].astype(bool)].iterrows():
        yield overlap_message(row["kind"], row["shared"], size, test=quoted(test), other=quoted(row["set"]))


CAVEATS = Topic(sentences=(few_samples, overlaps))
