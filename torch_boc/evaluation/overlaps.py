"""How many samples of the test set are also in another set, with a warning if there are too many."""

import warnings
from collections.abc import Mapping

from ..calibration import OverlapWarning, overlap_test
from ..calibration.leaks import overlap_message
from ..data.sets import LogitSet
from ..report.tables import OverlapRow


def overlap_rows(test: LogitSet, groups: Mapping[str, Mapping[str, LogitSet]]) -> list[OverlapRow]:
    """Rows of the table `overlaps`, with a warning if more samples are shared than chance explains."""
    rows = []
    for kind, sets in groups.items():
        for name, data in sets.items():
            found = overlap_test(test.logits, data.logits, test.target, data.target)
            share = found.shared / len(test)
            rows.append(OverlapRow(set=name, kind=kind, samples=len(data), share=share, **found._asdict()))
            if found.suspicious:
                message = overlap_message(kind, found.shared, len(test), test=repr(test.name), other=repr(name))
                warnings.warn(message.rstrip("."), OverlapWarning, stacklevel=3)
    return rows
