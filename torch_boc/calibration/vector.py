"""Vector scaling: multinomial logistic regression on the logits."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from ..functional.precision import widen
from .base import Calibrated, Calibrator, coins_of, require_sklearn

MAX_ITERATIONS = 2000
# A tenth of scikit-learn's own, with which the error after calibration depends on where the search began.
TOLERANCE = 1e-5
# Products in a step of the search, samples times weights: with so many the fit takes more than a minute on one core.
SLOW = 10**10


class VectorScaling(Calibrator):
    """Multinomial logistic regression of the targets on the logits, as in the paper: scikit-learn's, with its penalty.

    It finds what `LogisticRegression(C=strength)` would find for the logits as they are, given the time: here they are
    centred and scaled, all by the same factor and the penalty with them, which changes nothing but the convergence.
    Calibrated logits are the decision function, in float64. The C^2 weights need many samples (5,000 are too few for a
    hundred classes), and their fit takes ten seconds for 100 classes, but minutes for 1000.

    A class without a sample in the calibration split gets odds of 1 to n + 1, for n samples, against all that have one:
    1 / (n + 2) by Laplace's rule, so that the likelihood of such a target is small but not 0. A logit of -inf counts as
    the smallest finite logit of the calibration split.

    Args:
        strength: how much the samples weigh against the penalty, scikit-learn's C.
        max_samples: of larger calibration splits, this many are drawn at random (with a fixed seed) for the fit.
    """

    name = "vector scaling"

    def __init__(self, *, strength: float = 1.0, max_samples: int = 100_000) -> None:
        if not strength > 0:
            raise ValueError(f"expected strength above 0, got {strength}")
        if max_samples < 2:
            raise ValueError(f"expected max_samples of at least 2, got {max_samples}")
        self.strength, self.max_samples = strength, max_samples
        self._samples = 0
        self._lowest = 0.0
        self._classes = self._weight = self._bias = torch.zeros(0)

    def _fit(self, logits: Tensor, target: Tensor) -> None:
        logits, target = _draw(logits, target, self.max_samples)
        if len(logits) * logits.shape[1] ** 2 > SLOW:
            warnings.warn(
                f"{self.name}: {logits.shape[1]:,} classes and {len(logits):,} samples take minutes, perhaps many; "
                "fewer samples take less",
                stacklevel=3,
            )
        lowest = logits[logits.isfinite()].min().item()
        rows = _finite(logits, lowest).cpu().double()
        mean = rows.mean(0)
        spread = max(float((rows - mean).square().mean().sqrt()), 1e-9)
        regression = _regression((rows - mean) / spread, target.cpu(), self.strength * spread**2, self.name)
        weight, bias = torch.from_numpy(regression.coef_) / spread, torch.from_numpy(regression.intercept_)
        if len(weight) == 1:  # scikit-learn has one column for two classes: the log-odds of the second
            weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
        self._samples, self._lowest = len(rows), lowest
        self._classes, self._weight, self._bias = torch.from_numpy(regression.classes_), weight, bias - weight @ mean

    def _calibrate(self, logits: Tensor) -> Calibrated:
        rows = _finite(logits, self._lowest)
        seen = torch.addmm(self._bias.to(rows), rows, self._weight.T.to(rows))
        scaled = seen
        if seen.shape[1] < logits.shape[1]:
            unseen = seen.logsumexp(1, keepdim=True) - math.log(self._samples + 1)
            scaled = unseen.repeat(1, logits.shape[1]).index_copy_(1, self._classes.to(rows.device), seen)
        coins = coins_of(scaled)
        return Calibrated(coins.prediction, coins.confidence, scaled)


def _finite(logits: Tensor, lowest: float) -> Tensor:
    return widen(logits).nan_to_num(neginf=lowest)


def _draw(logits: Tensor, target: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """At most `size` of the samples, the same at every call."""
    if len(logits) <= size:
        return logits, target
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0))[:size].to(logits.device)
    return logits[order], target[order]


def _regression(features: Tensor, target: Tensor, strength: float, name: str) -> Any:
    """scikit-learn's regression, fitted; that it has not converged is said in our words."""
    sklearn = require_sklearn()
    if len(present := target.unique()) < 2:
        raise ValueError(
            f"{name}: expected targets of at least 2 classes, got only class {int(present)} in {len(target)} samples; "
            "if the data are sorted by class, shuffle them before they are split"
        )
    regression = sklearn.linear_model.LogisticRegression(C=strength, max_iter=MAX_ITERATIONS, tol=TOLERANCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sklearn.exceptions.ConvergenceWarning)
        regression.fit(features.numpy(), target.numpy())
    if regression.n_iter_.max() >= MAX_ITERATIONS:
        warnings.warn(f"{name}: no convergence in {MAX_ITERATIONS} iterations; its numbers are rough", stacklevel=4)
    return regression
