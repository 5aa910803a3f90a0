"""Samples of the test set that stand in another set as well: counted, and warned of."""

import warnings
from collections.abc import Mapping
from typing import Any

from ..calibration import OverlapWarning, overlap_test
from ..calibration.overlap import overlap_message
from ..data.sets import LogitSet


def overlap_rows(test: LogitSet, groups: Mapping[str, Mapping[str, LogitSet]]) -> list[dict[str, Any]]:
    """Rows of the table `overlaps`, with a warning for each set that shares more samples with `test` than chance."""
    rows = []
    for kind, sets in groups.items():
        for name, data in sets.items():
            found = overlap_test(test.logits, data.logits, test.target, data.target)
            row = {"set": name, "kind": kind, "samples": len(data), **found._asdict()}
            rows.append(row | {"share": found.shared / len(test)})
            if found.suspicious:
                message = overlap_message(kind, found.shared, len(test), test=repr(test.name), other=repr(name))
                warnings.warn(message.rstrip("."), OverlapWarning, stacklevel=3)
    return rows
