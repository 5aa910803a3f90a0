"""A set of logits from whatever a user has: tensors, arrays, a mapping, or a file."""

import os
from typing import Any

from ..storage.files import printable
from .files import read_logits
from .sets import LogitSet, set_of_arrays


def logit_set(source: Any, name: str, *, from_probabilities: bool = False) -> LogitSet:
    """`source` as a LogitSet called `name`.

    Args:
        source: a LogitSet; a path (see `read_logits`); logits as a tensor or array; a pair (logits, target); or a
            mapping with "logits", perhaps one of labels, label, targets, target, y, y_true or ground_truth, and any
            further columns of one number a sample.
        name: how tables and messages call the set. In it and in names of columns, control characters are written as
            escapes.
        from_probabilities: whether `source` holds probabilities in the place of logits: not negative, and of sum 1
            within 0.02 in every row. Their logarithms are the logits; 0 is taken for 1e-30. A LogitSet holds logits
            already, and stays as it is.
    """
    name = printable(name)
    if isinstance(source, str | os.PathLike):
        return read_logits(source, name, from_probabilities=from_probabilities)
    return set_of_arrays(source, name, from_probabilities=from_probabilities)
