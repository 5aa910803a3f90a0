"""Does a calibration split look like training data? Rows of a table, and warnings."""

import warnings
from collections.abc import Mapping

from ..calibration import LeakWarning, leak_test
from ..data.sets import LogitSet
from ..functional.coins import bag_of_coins
from ..report.tables import LeakRow
from .inputs import labelled
from .probing import ProbedSet


def leak_rows(test: ProbedSet, splits: Mapping[str, LogitSet]) -> list[LeakRow]:
    """Rows of the table `leaks`, with a warning for each split whose accuracy is too high for unseen data."""
    if test.correct is None:
        return []
    return find_leaks(int(test.correct.sum()), len(test.data), splits, stacklevel=4)


def find_leaks(right: int, samples: int, splits: Mapping[str, LogitSet], *, stacklevel: int) -> list[LeakRow]:
    """The same for a test set of so many samples, of which so many are predicted right."""
    rows = []
    for split, data in splits.items():
        logits, target = labelled(data)
        here = int((bag_of_coins(logits).prediction == target).sum())
        found = leak_test(here, len(data), right, samples)
        rows.append(LeakRow(split, len(data), *found))
        if found.suspicious:
            message = (
                f"calibration split {split!r} looks like training data: accuracy {found.accuracy:.4f} on it, "
                f"{found.test_accuracy:.4f} on the test set; calibrators fitted on it will be overconfident"
            )
            warnings.warn(message, LeakWarning, stacklevel=stacklevel)
    return rows
