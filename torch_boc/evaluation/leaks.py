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
    rows = []
    for split, data in splits.items():
        logits, target = labelled(data)
        right = int((bag_of_coins(logits).prediction == target).sum())
        found = leak_test(right, len(data), int(test.correct.sum()), len(test.data))
        rows.append(LeakRow(split, len(data), *found))
        if found.suspicious:
            message = (
                f"calibration split {split!r} looks like training data: accuracy {found.accuracy:.4f} on it, "
                f"{found.test_accuracy:.4f} on the test set; calibrators fitted on it will be overconfident"
            )
            warnings.warn(message, LeakWarning, stacklevel=3)
    return rows
