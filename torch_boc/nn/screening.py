"""A conformal test beside the probe: which columns it adds, and their values."""

from collections.abc import Iterable

from torch import Tensor

from ..functional.columns import COLUMNS, check_columns, sample_columns
from ..functional.placing import Placing, place_samples
from ..functional.screening import columns_and_places
from ..functional.thresholds import check_share
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


def screen(test: ConformalTest, rows: Tensor, alpha: float) -> dict[str, Tensor]:
    """The columns of the test for logits of shape (..., C). No value is read back."""
    verdict = _verdict(test, place_samples(test.comparable(rows, dim=-1), test.scoring), alpha)
    return {name: column.reshape(rows.shape[:-1]) for name, column in verdict.items()}


def screened_columns(
    logits: Tensor, test: ConformalTest | None, *, alpha: float, trials: int, columns: tuple[str, ...]
) -> dict[str, Tensor]:
    """The columns of the probe and of the test for logits of shape (N, C), from one pass if there is no temperature.

    Args:
        logits: the samples.
        test: a calibrated test, or None.
        alpha: the level of `review`.
        trials: the number of coin flips of the p-value.
        columns: names that `check_screened_columns` has returned for this test.
    """
    if test is None:
        return sample_columns(logits, trials=trials, columns=columns)
    own = [name for name in columns if name in COLUMNS]
    found, placing = columns_and_places(test.comparable(logits, dim=-1), test.scoring, own, trials)
    found |= _verdict(test, placing, alpha)
    return {name: found[name] for name in columns}


def _verdict(test: ConformalTest, placing: Placing, alpha: float) -> dict[str, Tensor]:
    p = test.p_values_at(placing)
    return dict(zip(SCREENED, (p, ~(p > alpha)), strict=True))
