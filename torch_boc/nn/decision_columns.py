"""The columns that a conformal test and an acceptance add to those of the probe."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor

from ..functional.checks import check_share, check_trials
from ..functional.per_sample import SampleStats, sample_stats
from ..functional.registry import required_extras
from ..functional.table_columns import COLUMNS, TARGET_COLUMN, check_columns, column_extras, columns_of
from .acceptance import Acceptance
from .conformal import ConformalTest

# A test adds the p-value and whether to review the sample; an acceptance adds whether the prediction is accepted. Each
# column with its source, as messages call it.
TEST, ACCEPT = "a test", "an acceptance"
DECISION_COLUMNS = {"p_in_distribution": TEST, "review": TEST, "accepted": ACCEPT}
REMEDIES = {TEST: "conformal_test=, a ConformalTest", ACCEPT: "acceptance="}
# In rows these stay in float64: the odds of a confident prediction can be below what float32 holds.
WIDE = ("odds", "loss")
# A test and the level of `review`, an acceptance and the largest error rate among the accepted predictions.
Parts = tuple[ConformalTest | None, float, Acceptance | None, float]


def check_levels(
    conformal_test: ConformalTest | None, alpha: float, acceptance: Acceptance | None, max_error: float
) -> None:
    """Raise if one of these is something else. Warn if calibrated ones can flag or accept nothing at their levels."""
    check_share("alpha", alpha)
    check_share("max_error", max_error)
    for given, kind, level in ((conformal_test, ConformalTest, alpha), (acceptance, Acceptance, max_error)):
        if given is None:
            continue
        if not isinstance(given, kind):
            raise TypeError(f"expected a torch_boc.{kind.__name__}, got {type(given).__name__}")
        if isinstance(given.scoring.groups, int):
            raise ValueError(f"expected a torch_boc.{kind.__name__} without groups of your own; call it instead")
        if given.calibrated:
            given.threshold(level)


def check_decision_columns(
    columns: Iterable[str] | None,
    conformal_test: ConformalTest | None,
    acceptance: Acceptance | None,
    more: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the names of the columns of the probe, the test and the acceptance; or raise. None means all of them.

    `more` are further names that are known, but not among the columns of None.
    """
    given = {TEST: conformal_test, ACCEPT: acceptance}
    if columns is None:
        return (*COLUMNS, *(name for name, source in DECISION_COLUMNS.items() if given[source] is not None))
    names = check_columns(columns, (*DECISION_COLUMNS, *more))
    for source, part in given.items():
        added = [name for name in DECISION_COLUMNS if DECISION_COLUMNS[name] == source]
        chosen = [name for name in names if name in added]
        if part is None and chosen:
            raise ValueError(f"expected {source} for the column {chosen[0]!r}, got none; give {REMEDIES[source]}")
        if part is not None and not chosen:
            some = " or ".join(map(repr, added))
            raise ValueError(f"expected {some} among the columns, because {source} is given, got {list(names)}")
    return names


def decision_columns(parts: Parts, stats: SampleStats) -> dict[str, Tensor]:
    """The columns of the test and the acceptance."""
    test, alpha, acceptance, max_error = parts
    columns: dict[str, Tensor] = {}
    if test is not None:
        binned = test.bin_scores(stats)
        columns = {"p_in_distribution": test.test(binned), "review": test.flag(binned, alpha)}
    if acceptance is not None:
        columns["accepted"] = acceptance.accept(stats, max_error)
    return columns


class SampleColumns:
    """Computes the columns of samples: those of the probe, `p_in_distribution` and `review` of a test, and `accepted`.

    The logits are read once. Test and acceptance are copied, and follow the logits to their device. No value is read
    back, except for thresholds at the first call. The columns of the probe are in float32, but for `odds` and `loss`.
    With targets, `target_log_probability` comes first, unless columns are named.

    Args:
        columns: which columns, in this order; by default all.
        trials: the number of coin flips of the paper's p-value.
        conformal_test: a calibrated test, or None.
        alpha: the level of `review`.
        acceptance: a calibrated `Acceptance`, or None.
        max_error: the largest error rate among the accepted predictions.

    >>> test = ConformalTest("max_logit").calibrate(torch.linspace(1, 5, 99)[:, None] * torch.eye(3)[0])
    >>> SampleColumns(["prediction", "review"], conformal_test=test)(torch.tensor([[0.9, 0.0, 0.0], [0.0, 3.1, 0.0]]))
    {'prediction': tensor([0, 1]), 'review': tensor([ True, False])}
    """

    def __init__(
        self,
        columns: Iterable[str] | None = None,
        *,
        trials: int = 100,
        conformal_test: ConformalTest | None = None,
        alpha: float = 0.05,
        acceptance: Acceptance | None = None,
        max_error: float = 0.01,
    ) -> None:
        self.trials, self.alpha, self.max_error = check_trials(trials), alpha, max_error
        check_levels(conformal_test, alpha, acceptance, max_error)
        self.conformal_test, self.acceptance = copy.deepcopy(conformal_test), copy.deepcopy(acceptance)
        self.names = check_decision_columns(columns, conformal_test, acceptance, (TARGET_COLUMN,))
        self._needs_target = TARGET_COLUMN in self.names
        self._with_target = (TARGET_COLUMN, *self.names) if columns is None else self.names
        self._parts: list[ConformalTest | Acceptance] = [
            x for x in (self.conformal_test, self.acceptance) if x is not None
        ]
        for part in self._parts:
            part.check_calibrated()
            part.validate_args = False  # it could make the host wait for the first batch
        scores = [part.scoring.name for part in self._parts]
        self._extras = {*column_extras(self.names), *required_extras(scores)}

    def __call__(self, logits: Tensor, target: Tensor | None = None) -> dict[str, Tensor]:
        """The columns for logits of shape (N, C), and class indices of shape (N,) if there are targets."""
        if target is None and self._needs_target:
            raise ValueError(f"expected targets for the column {TARGET_COLUMN!r}, got a batch without; leave it out")
        for part in self._parts:
            part.move_to(logits.device)
        names = self.names if target is None else self._with_target
        labels = target.to(logits.device, non_blocking=True) if target is not None and TARGET_COLUMN in names else None
        stats = sample_stats(logits.detach(), labels, trials=self.trials, extras=self._extras)
        columns = columns_of(stats, [name for name in names if name not in DECISION_COLUMNS])
        columns = {name: x.float() if x.is_floating_point() and name not in WIDE else x for name, x in columns.items()}
        columns |= decision_columns((self.conformal_test, self.alpha, self.acceptance, self.max_error), stats)
        return {name: columns[name] for name in names}

    def empty(self, *, labelled: bool = False) -> dict[str, Tensor]:
        """The columns of no samples, with or without targets, on the CPU."""
        classes = [part.num_classes or 2 for part in self._parts]
        device = self._parts[0].counts.device if self._parts else None
        none = torch.zeros(0, *classes[:1] or [2], device=device)
        target = torch.arange(0) if labelled or self._needs_target else None
        return {name: column.cpu() for name, column in self(none, target).items()}
