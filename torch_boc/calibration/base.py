"""What all calibrators have in common, the checks of their input, and two baselines that fit nothing."""

import math
import warnings
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from ..core.coins import Coins
from ..core.tally import is_class
from ..functional.checks import are_probabilities, check_logits, check_target
from ..functional.per_sample import sample_stats


class Calibrated(NamedTuple):
    """The result of a calibrator for N samples.

    Attributes:
        prediction: (N,), the top class, int64.
        confidence: (N,), the probability that it is correct, in [0, 1], float64 (float32 on MPS).
        logits: (N, C), calibrated; None if the method gives a confidence only. The likelihood of the targets is then
            that of the raw logits.
    """

    prediction: Tensor
    confidence: Tensor
    logits: Tensor | None


class Calibrator:
    """A method that is fitted on the logits and targets of one set, and calibrates the logits of other sets.

    A subclass has a `name` and the methods `_fit` and `_calibrate`, or `of_coins` if it learns nothing. Their input is
    checked: logits have the shape (N, C) and no NaN or +inf, each row has at least one finite logit, and targets are
    classes.

    Attributes:
        name: the name of the method in tables and messages.
        needs_fit: whether it learns from a calibration split.
        gives_logits: whether it calibrates the logits of all classes; if not, it gives a confidence only.
    """

    name: str
    needs_fit: ClassVar[bool] = True
    gives_logits: ClassVar[bool] = True
    num_classes: int | None = None  # None before it is fitted

    def of_coins(self, coins: Coins) -> Tensor | None:
        """The confidence, for a method that needs no logits; None for the others."""
        return None

    @property
    def temperature(self) -> float:
        """The temperature that logits are divided by; NaN for a method without a temperature."""
        return math.nan

    def fit(self, logits: Tensor, target: Tensor) -> Self:
        """Fit on logits of shape (N, C) and their class indices of shape (N,); returns the calibrator itself."""
        if not self.needs_fit:
            return self
        rows, classes = check_rows(logits), check_classes_of(logits, target)
        if bool(are_probabilities(rows, 1)):
            warnings.warn(
                f"{self.name}: expected logits or log-probabilities, got what looks like probabilities (every row is "
                "non-negative and sums to 1); pass the logits, or probabilities.clamp_min(1e-30).log()",
                stacklevel=2,
            )
        self._fit(rows, classes)
        self.num_classes = rows.shape[1]
        return self

    def calibrate(self, logits: Tensor) -> Calibrated:
        """Prediction and calibrated confidence for each row of logits of shape (N, C)."""
        rows = check_rows(logits)
        self._check_fitted()
        if self.num_classes not in (None, rows.shape[1]):
            got = f"as in the fit, got {rows.shape[1]}"
            raise ValueError(f"{self.name}: expected logits with {self.num_classes} classes, {got}")
        return self._calibrate(rows)

    def _check_fitted(self) -> None:
        if self.needs_fit and self.num_classes is None:
            raise RuntimeError(
                f"{self.name}: expected a fitted calibrator, got one that is not fitted; call fit(logits, target) first"
            )

    def _fit(self, logits: Tensor, target: Tensor) -> None:
        """Learn from the samples of a split."""
        raise NotImplementedError

    def _calibrate(self, logits: Tensor) -> Calibrated:
        """Calibrate the samples of another set. Methods with `of_coins` need no more than that."""
        coins = coins_of(logits)
        confidence = self.of_coins(coins)
        assert confidence is not None
        return Calibrated(coins.prediction, confidence, logits if self.gives_logits else None)


class Uncalibrated(Calibrator):
    """The largest softmax probability, without calibration.

    >>> Uncalibrated().calibrate(torch.tensor([[2.0, 1.0, 0.0, -1.0]])).confidence
    tensor([0.6439], dtype=torch.float64)
    """

    name = "MSP"
    needs_fit = False

    def of_coins(self, coins: Coins) -> Tensor:
        """The confidence of the coins."""
        return coins.confidence


class DominanceConfidence(Calibrator):
    """The dominance as a confidence, the paper's c_BoC: the mean chance that the top class beats a rival.

    It is never below the largest softmax probability, so it can only help if the confidence is too low.

    >>> DominanceConfidence().calibrate(torch.tensor([[2.0, 1.0, 0.0, -1.0]])).confidence
    tensor([0.8548], dtype=torch.float64)
    """

    name = "BoC"
    needs_fit = False
    gives_logits = False

    def of_coins(self, coins: Coins) -> Tensor:
        """The dominance of the coins."""
        return coins.dominance


def check_rows(logits: Tensor) -> Tensor:
    """The detached logits, if they have the shape (N, C) and each row has a softmax; otherwise an error."""
    check_logits(logits, -1)
    if logits.ndim != 2 or len(logits) == 0:
        raise ValueError(f"expected logits of shape (N, C) with at least one row, got shape {tuple(logits.shape)}")
    bad = ~logits.detach().amax(1).isfinite()  # the maximum of a row with NaN is NaN
    if bool(bad.any()):
        raise ValueError(
            f"expected rows of finite logits (or some -inf), got NaN, +inf or only -inf in {int(bad.sum())} of "
            f"{len(bad)} rows, first in row {int(bad.nonzero()[0])}; leave these rows out"
        )
    return logits.detach()


def check_classes_of(logits: Tensor, target: Tensor) -> Tensor:
    """The targets in int64 on the device of the logits, if they are classes; otherwise an error."""
    target = check_target(target, logits.shape[:1])
    inside = is_class(target, logits.shape[1])
    if not bool(inside.all()):
        raise ValueError(
            f"expected targets in [0, {logits.shape[1]}), got {int((~inside).sum())} outside, "
            f"such as {int(target[~inside][0])}; leave these samples out"
        )
    return target.to(logits.device)


def draw_samples(logits: Tensor, target: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """At most this many samples, drawn at random, the same in every call."""
    if len(logits) <= most:
        return logits, target
    chosen = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0))[:most].to(logits.device)
    return logits[chosen], target[chosen]


def minimize(weights: Tensor, loss_and_slope: Callable[[], float], steps: int, tolerance: float) -> int:
    """Minimise by L-BFGS in place, until no slope exceeds the tolerance; returns the number of steps.

    `loss_and_slope` returns the loss at the weights, and writes its slope to `weights.grad`.
    """
    limits = {"max_iter": steps, "max_eval": 10 * steps, "tolerance_grad": tolerance, "tolerance_change": 0.0}
    search = torch.optim.LBFGS([weights], line_search_fn="strong_wolfe", **limits)  # type: ignore[arg-type]
    search.step(loss_and_slope)
    return int(search.state[weights]["n_iter"])


def coins_of(logits: Tensor) -> Coins:
    """The coins of each row in float64, in which a confidence of 1 - 1e-12 is not 1."""
    return sample_stats(logits.detach()).coins
