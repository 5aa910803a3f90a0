"""A conformal test beside the probe: which columns it adds, and their values."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor

from ..functional.checks import bare, check_share, check_trials
from ..functional.columns import COLUMNS, check_columns, column_extras, columns_of, sample_columns
from ..functional.evidence import gather
from ..functional.registry import need_extras
from ..functional.screening import Placing
from .conformal import ConformalTest

# What a test adds to the columns: the p-value, and whether a person should look at the sample.
SCREENED = ("p_in_distribution", "review")


def check_test(test: ConformalTest | None, alpha: float) -> ConformalTest | None:
    """Return `test` if it is a test or None, or raise. Warn if a calibrated test can flag no sample at this level."""
    check_share("alpha", alpha)
    if not (test is None or isinstance(test, ConformalTest)):
        raise TypeError(f"expected test as a torch_boc.ConformalTest, got {type(test).__name__}")
    if test is not None and test.calibrated:
        test.check_level(alpha)
    return test


def check_screened_columns(columns: Iterable[str] | None, test: ConformalTest | None) -> tuple[str, ...]:
    """Return the names of the columns of the probe and, with a test, of the test; or raise. None means all of them."""
    if test is None:
        asked = [] if columns is None or isinstance(columns, str) else [name for name in columns if name in SCREENED]
        if asked:
            raise ValueError(f"expected a test for the column {asked[0]!r}, got none; give test=, a ConformalTest")
        return check_columns(columns)
    names = check_columns(columns, SCREENED)
    if not set(SCREENED) & set(names):
        raise ValueError(
            f"expected 'p_in_distribution' or 'review' among the columns, because a test is given, got {list(names)}; "
            "add one of them, or leave the test out"
        )
    return names


def verdict(test: ConformalTest, placing: Placing, alpha: float) -> dict[str, Tensor]:
    """The columns of the test for samples of which `place` has said where they are, with one axis."""
    p = test.p_values_at(placing)
    return dict(zip(SCREENED, (p, ~(p > alpha)), strict=True))


class SampleColumns:
    """Makes the columns of samples: those of the probe and, with a test, `p_in_distribution` and `review`.

    The logits are read once for both, unless the test has a temperature. The test is copied, and follows the logits to
    their device. No value is read back.

    Args:
        columns: which columns, in this order; by default all.
        trials: the number of coin flips of the paper's p-value.
        test: a calibrated test, or None.
        alpha: the level of `review`.

    >>> test = ConformalTest("max_logit").calibrate(torch.linspace(1, 5, 99)[:, None] * torch.eye(3)[0])
    >>> SampleColumns(["prediction", "review"], test=test)(torch.tensor([[0.9, 0.0, 0.0], [0.0, 3.1, 0.0]]))
    {'prediction': tensor([0, 1]), 'review': tensor([ True, False])}
    """

    def __init__(
        self,
        columns: Iterable[str] | None = None,
        *,
        trials: int = 100,
        test: ConformalTest | None = None,
        alpha: float = 0.05,
    ) -> None:
        self.trials, self.alpha = check_trials(trials), alpha
        self.test = copy.deepcopy(check_test(test, alpha))
        self.names = check_screened_columns(columns, test)
        self._own = [name for name in self.names if name in COLUMNS]
        if self.test is not None:
            self.test.check_calibrated()
            self.test.validate_args = False  # it could make the host wait for the first batch

    def __call__(self, logits: Tensor) -> dict[str, Tensor]:
        """The columns for logits of shape (N, C)."""
        if self.test is None:
            return columns_of(gather(bare(logits), trials=self.trials, extras=column_extras(self._own)), self._own)
        self.test.follow(logits.device)
        scoring, found = self.test.scoring, {}
        if scoring.temperature == 1.0:
            extras = {*column_extras(self._own), *need_extras([scoring.name])}
            evidence = gather(bare(logits), trials=self.trials, extras=extras)
            found, placing = columns_of(evidence, self._own), self.test.place(evidence)
        else:
            placing = self.test.place(logits, dim=-1)
            if self._own:
                found = sample_columns(logits, trials=self.trials, columns=self._own)
        found |= verdict(self.test, placing, self.alpha)
        return {name: found[name] for name in self.names}

    def of_nothing(self) -> dict[str, Tensor]:
        """The columns of no samples, on the CPU."""
        classes = 2 if self.test is None else self.test.num_classes or 2
        device = None if self.test is None else self.test.counts.device
        return {name: column.cpu() for name, column in self(torch.zeros(0, classes, device=device)).items()}
