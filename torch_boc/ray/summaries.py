"""The summary of the probe, and a calibrated test, over the rows of a Ray data set."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from ..core.contract import COINS
from ..functional.checks import check_trials
from ..functional.columns import restore_evidence
from ..functional.evidence import Evidence
from ..functional.summary import summarize as summary_of
from ..functional.tally import Tally, add_evidence, add_logits, empty_tally
from ..nn import ConformalTest
from .arrays import column_tensor
from .folding import fold
from .grouping import fold_groups


@dataclass(frozen=True)
class Source:
    """Where the evidence of the rows of a table is.

    Attributes:
        logits: the name of the column of logits. A table without it has the columns of a predictor.
        target: the name of the column of targets, which need not be there.
        num_classes: the number of classes for tables without logits, or None to find it.
        trials: the number of coin flips of p-values.
    """

    logits: str
    target: str
    num_classes: int | None = None
    trials: int = 100

    def targets(self, table: Any) -> Tensor | None:
        """The targets, or None."""
        return column_tensor(table, self.target) if self.target in table.column_names else None

    def rows(self, table: Any) -> Tensor | None:
        """The logits, or None if the table has none."""
        return column_tensor(table, self.logits) if self.logits in table.column_names else None

    def evidence(self, table: Any) -> Evidence:
        """The evidence as far as it follows from the columns of a predictor."""
        names = [name for name in (*COINS, "energy", "logit_gap") if name in table.column_names]
        columns, target = {name: column_tensor(table, name) for name in names}, self.targets(table)
        columns |= {} if target is None else {"target": target}
        try:
            return restore_evidence(columns, num_classes=self.num_classes, trials=self.trials)
        except ValueError as error:
            raise ValueError(f"expected a column {self.logits!r}, or those of a predictor: {error}") from error


@dataclass(frozen=True)
class Tallying:
    """Adds tables to a tally."""

    source: Source
    alpha: float
    ignore_index: int | None

    def __call__(self, total: Tally, table: Any) -> Tally:
        """The tally with the rows of a table."""
        logits = self.source.rows(table)
        how: dict[str, Any] = {"alpha": self.alpha}
        if logits is None:
            evidence = self.source.evidence(table)
            if evidence.target is not None and self.ignore_index is not None:
                evidence = evidence._replace(counted=evidence.target != self.ignore_index)
            add_evidence(total, evidence, **how)
        else:
            how |= {"trials": self.source.trials, "ignore_index": self.ignore_index}
            add_logits(total, logits, self.source.targets(table), **how)
        return total


def add_tallies(total: Tally, other: Tally) -> Tally:
    """The tally of both, in place of the first."""
    for x, y in zip(total, other, strict=True):
        x.add_(y)
    return total


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
    """Summarize the probe over all rows of a Ray data set, with the keys of `torch_boc.functional.boc_summary`.

    The rows have logits, as lists or tensors of one length, or they are rows that a predictor has written, with
    `prediction`, `odds`, `loss`, `concentration` and `free_gap`. Each worker adds up the blocks that it has, and only
    the tallies travel. Without logits, `nll` is NaN if there is a wrong
    prediction, because the columns do not tell the target's logit.

    Args:
        dataset: a `ray.data.Dataset`.
        by: the name of a column: there is a summary for each of its values, by way of an `AggregateFnV2`.
            Null and NaN are no values to group by, and are refused: leave such rows out, or give them a value.
        logits: the name of the column of logits.
        target: the name of the column of targets. Without it, the keys that need targets are NaN.
        num_classes: the number of classes, for rows without logits; by default it follows from the columns.
        trials: the number of coin flips of the p-values.
        bins: the number of bins of the calibration errors.
        alpha: the level of `rejection_rate`.
        ignore_index: rows with this target do not count.

    Returns:
        A dict of scalar tensors in float64; with `by`, a dict of such dicts by the values of the column.
    """
    source = Source(logits, target, num_classes, check_trials(trials))
    how: Any = (partial(empty_tally, bins), Tallying(source, alpha, ignore_index), add_tallies)
    if by is not None:
        return {key: summary_of(total) for key, total in fold_groups(dataset, by, *how).items()}
    return summary_of(fold(dataset, *how))


@dataclass(frozen=True)
class Counting:
    """Adds tables of held-out samples to a test."""

    source: Source
    test: ConformalTest

    def empty(self) -> ConformalTest:
        """A test without held-out samples."""
        return self.test.clone()

    def __call__(self, test: ConformalTest, table: Any) -> ConformalTest:
        """The test with the rows of a table."""
        rows = self.source.rows(table)
        test.update(self.source.evidence(table) if rows is None else rows)
        return test


def add_held_out(test: ConformalTest, other: ConformalTest) -> ConformalTest:
    """The test with the held-out samples of both, in place of the first."""
    return test.merge(other)


def calibrate(
    dataset: Any, test: ConformalTest | None = None, *, logits: str = "logits", num_classes: int | None = None
) -> ConformalTest:
    """Calibrate a `ConformalTest` with all rows of a Ray data set, which are held-out in-distribution samples.

    Args:
        dataset: a `ray.data.Dataset` with logits, or with the columns of a predictor, as for `summarize`. Without
            logits, a test has the scores that follow from the columns, such as "log_odds", and no temperature.
        test: the test to calibrate, which is copied without its held-out samples; by default `ConformalTest()`.
        logits: the name of the column of logits.
        num_classes: the number of classes, for rows without logits.

    Returns:
        The calibrated test.

    Raises:
        ValueError: if there is no row, or a row has NaN or +inf.
    """
    if not (test is None or isinstance(test, ConformalTest)):
        raise TypeError(f"expected test as a torch_boc.ConformalTest, got {type(test).__name__}")
    blank = ConformalTest() if test is None else test.clone().cpu()
    blank.reset()
    counting = Counting(Source(logits, "target", num_classes), blank)
    found: ConformalTest = fold(dataset, counting.empty, counting, add_held_out)
    if invalid := int(found.invalid):
        raise ValueError(f"expected held-out rows without NaN and +inf, got {invalid} such rows; leave them out")
    found.check_calibrated()
    return found
