"""`logit_set`: a LogitSet from tensors, arrays, a mapping or a file."""

import os
from typing import Any

from .atomic import printable
from .files import read_logits
from .sets import LogitSet, set_of_arrays


def logit_set(source: Any, name: str, *, from_probabilities: bool = False) -> LogitSet:
    """`source` as a LogitSet called `name`.

    Args:
        source: a LogitSet; a path (see `read_logits`); logits as a tensor or array; a pair (logits, target); or a
            mapping with "logits", perhaps one of labels, label, targets, target, y, y_true or ground_truth, and any
            further columns of one number per sample.
        name: the name of the set in tables and messages. Control characters in it and in the names of columns are
            written as escapes.
        from_probabilities: whether `source` holds probabilities instead of logits: no value is negative, and every row
            sums to 1 within 0.02. Their logarithms are then the logits, with 1e-30 in place of 0. A LogitSet already
            holds logits, and is not changed.
    """
    name = printable(name)
    if isinstance(source, str | os.PathLike):
        return read_logits(source, name, from_probabilities=from_probabilities)
    return set_of_arrays(source, name, from_probabilities=from_probabilities)
