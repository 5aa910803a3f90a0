"""The summary of the probe, and a calibrated test, over the rows of a Ray dataset."""

import pickle
import zlib
from collections.abc import Callable
from typing import Any

from ..data.parquet import stored_classes
from ..data.tables import numpy
from ..functional.checks import check_trials
from ..inference.batch_predictor import Arrays
from ..inference.row_summary import RowSummary, stats_of
from ..nn import ConformalTest
from .inference import check_dataset


def fold(
    dataset: Any, empty: Callable[[], Any], add: Callable[[Any, Arrays], Any], merge: Callable[[Any, Any], Any]
) -> Any:
    """Fold the blocks of a Ray dataset into one state.

    Each block becomes a state in the worker that has the block, which is `add(empty(), block)`. Only the states travel
    to the program, which merges them one after the other. The dataset need not fit in memory.
    """

    def state_of(block: Arrays) -> dict[str, Any]:
        rows = len(next(iter(block.values()), ()))
        state = pickle.dumps(add(empty(), block) if rows else empty(), pickle.HIGHEST_PROTOCOL)
        return {"state": numpy().array([zlib.compress(state, 1)], object)}  # counts are mostly zeros

    total = empty()
    states = dataset.map_batches(state_of, batch_format="numpy", batch_size=None)
    for block in states.iter_batches(batch_format="numpy", batch_size=None):
        for state in block["state"]:
            total = merge(total, pickle.loads(zlib.decompress(state)))
    return total


def classes_of(dataset: Any) -> int | None:
    """The number of classes of rows that a predictor wrote, if it is known before any row is read."""
    check_dataset(dataset)
    schema = dataset.schema(fetch_if_missing=False)
    return stored_classes(getattr(getattr(schema, "base_schema", None), "metadata", None))


def summarize(
    dataset: Any,
    *,
    by: str | None = None,
    logits: str = "logits",
    target: str = "target",
    num_classes: int | None = None,
    trials: int = 100,
    bins: int = 15,
    alpha: float = 0.05,
    ignore_index: int | None = None,
) -> Any:
    """Summarize the probe over all rows of a Ray dataset, with the keys of `torch_boc.functional.boc_summary`.

    The rows have logits, as lists or tensors of one length, or they are rows that a predictor has written, with
    `prediction`, `odds`, `loss`, `concentration` and `free_gap`. Each worker adds up the blocks that it has, and only
    the tallies travel. Without logits and `target_log_probability`, `nll` is NaN if there is a wrong prediction.

    Args:
        dataset: a `ray.data.Dataset`.
        by: the name of a column: there is a summary for each of its values. Null and NaN are refused: leave such rows
            out, or give them a value.
        logits: the name of the column of logits.
        target: the name of the column of targets. Without it, the keys that need targets are NaN.
        num_classes: the number of classes, for rows without logits; by default that in the metadata of the files.
        trials: the number of coin flips of the p-values.
        bins: the number of bins of the calibration errors.
        alpha: the level of `rejection_rate`.
        ignore_index: rows with this target do not count.

    Returns:
        A dict of scalar tensors in float64; with `by`, a dict of such dicts by the values of the column.
    """
    check_trials(trials)
    rows = RowSummary(by, logits, target, num_classes or classes_of(dataset), trials, bins, alpha, ignore_index)
    return rows.result(fold(dataset, dict, rows.add, rows.merge))


def calibrate(
    dataset: Any, conformal_test: ConformalTest | None = None, *, logits: str = "logits", num_classes: int | None = None
) -> ConformalTest:
    """Calibrate a `ConformalTest` with all rows of a Ray dataset, which are held-out in-distribution samples.

    Args:
        dataset: a `ray.data.Dataset` with logits, or with the columns of a predictor, as for `summarize`. Without
            logits, a test has the scores that follow from the columns, such as "log_odds".
        conformal_test: the test to calibrate, which is copied without its held-out samples; by default
            `ConformalTest("log_odds")`.
        logits: the name of the column of logits.
        num_classes: the number of classes, for rows without logits; by default that in the metadata of the files.

    Returns:
        The calibrated test.

    Raises:
        ValueError: if there is no row, or a row has NaN or +inf.
    """
    if not (conformal_test is None or isinstance(conformal_test, ConformalTest)):
        raise TypeError(f"expected conformal_test as a torch_boc.ConformalTest, got {type(conformal_test).__name__}")
    blank = ConformalTest("log_odds") if conformal_test is None else conformal_test.clone().cpu()
    blank.reset()
    classes = num_classes or classes_of(dataset)

    def add(test: ConformalTest, block: Arrays) -> ConformalTest:
        test.update(stats_of(block, logits, classes))
        return test

    test: ConformalTest = fold(dataset, blank.clone, add, lambda one, other: one.merge(other))
    if invalid := int(test.invalid):
        raise ValueError(f"expected held-out rows without NaN and +inf, got {invalid} such rows; leave them out")
    test.check_calibrated()
    return test
