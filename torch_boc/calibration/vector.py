"""Vector scaling, which others call matrix scaling: multinomial logistic regression on the logits."""

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from ..core.precision import accumulator, widen
from .base import Calibrated, Calibrator, coins_of
from .softmax import Regression, fit_softmax, is_large

MAX_ITERATIONS = 2000
# The search ends when the largest slope is below this. With 1e-5, and more so with scikit-learn's own 1e-4, rounding
# decides where the search ends, and this changes the calibration error by 0.0004. Products in float32 allow no less.
TOLERANCE, LARGE_TOLERANCE = 1e-6, 1e-5
# A step of the search takes samples * weights products. This many take a second on one core, and there may be hundreds
# of steps.
SLOW = 2 * 10**10


class VectorScaling(Calibrator):
    """Multinomial logistic regression of the targets on the logits, with scikit-learn's penalty, as in the paper.

    The name is that of the paper. Others call this method matrix scaling, because it has a full matrix of weights and a
    bias. What they call vector scaling (Guo et al., 2017) has one weight for each class, which is a diagonal matrix.

    It finds the same weights as scikit-learn's `LogisticRegression(C=strength)`, if that one has enough iterations.
    Here the logits are centred, and they and the penalty are scaled by one factor, so that the search converges faster.
    The calibrated logits are the decision function, in float64; its products are in float32, unless the logits are
    float64. The C^2 weights need many samples: 5,000 are too few for a hundred classes. They also need time: there are
    ten to some hundred steps, and each takes samples * C^2 products. A warning says if a fit will take minutes.

    If a class has no sample among the n samples of the fit, its odds against all classes with samples are 1 to n + 1.
    This is Laplace's rule, 1 / (n + 2): the likelihood of such a target is small but not 0. A logit of -inf is replaced
    by the smallest finite logit of the calibration split.

    Args:
        strength: the weight of the samples against the penalty, scikit-learn's C.
        max_samples: if the calibration split is larger, this many samples are drawn at random, with a fixed seed.
        progress: called once a second with a few words about how far the fit is.
    """

    name = "vector scaling"

    def __init__(
        self, *, strength: float = 1.0, max_samples: int = 100_000, progress: Callable[[str], object] | None = None
    ) -> None:
        if not strength > 0:
            raise ValueError(f"expected strength above 0, got {strength}")
        if max_samples < 2:
            raise ValueError(f"expected max_samples of at least 2, got {max_samples}")
        self.strength, self.max_samples, self.progress = strength, max_samples, progress
        self._samples = 0
        self._lowest = 0.0
        self._classes = self._weight = self._bias = self._mean = torch.zeros(0)

    def _fit(self, logits: Tensor, target: Tensor) -> None:
        logits, target = _draw(logits, target, self.max_samples)
        if len(logits) * logits.shape[1] ** 2 > SLOW:
            warnings.warn(
                f"{self.name}: {logits.shape[1]:,} classes and {len(logits):,} samples may take many minutes; "
                "fewer samples take less time",
                stacklevel=3,
            )
        lowest = logits[logits.isfinite()].min().item()
        rows = _finite(logits, lowest).cpu().double()
        mean = rows.mean(0)
        rows -= mean
        spread = max(float(rows.square().mean().sqrt()), 1e-9)
        classes, place = target.cpu().unique(return_inverse=True)
        self._check_classes(classes, len(target))
        fit = self._regression(rows.div_(spread), place, self.strength * spread**2)
        self._samples, self._lowest, self._mean = len(rows), lowest, mean
        self._classes, self._weight, self._bias = classes, fit.weight / spread, fit.bias

    def _check_classes(self, classes: Tensor, samples: int) -> None:
        if len(classes) < 2:
            raise ValueError(
                f"{self.name}: expected targets of at least 2 classes, got only class {int(classes)} in {samples} "
                "samples; if the data are sorted by class, shuffle them before they are split"
            )

    def _regression(self, features: Tensor, target: Tensor, strength: float) -> Regression:
        fit = fit_softmax(
            features,
            target,
            strength=strength,
            tolerance=LARGE_TOLERANCE if is_large(features, int(target.max()) + 1) else TOLERANCE,
            max_iterations=MAX_ITERATIONS,
            progress=self.progress,
        )
        if not fit.converged:
            words = f"{self.name}: the fit did not converge in {MAX_ITERATIONS} iterations; its numbers are rough"
            warnings.warn(words, stacklevel=4)
        return fit

    def _calibrate(self, logits: Tensor) -> Calibrated:
        rows = _finite(logits, self._lowest)
        rows = (rows - self._mean.to(rows)).to(accumulator(logits.dtype))
        seen = widen(torch.addmm(self._bias.to(rows), rows, self._weight.T.to(rows)))
        scaled = seen
        if seen.shape[1] < logits.shape[1]:
            unseen = seen.logsumexp(1, keepdim=True) - math.log(self._samples + 1)
            scaled = unseen.repeat(1, logits.shape[1]).index_copy_(1, self._classes.to(rows.device), seen)
        coins = coins_of(scaled)
        return Calibrated(coins.prediction, coins.confidence, scaled)


def _finite(logits: Tensor, lowest: float) -> Tensor:
    return widen(logits).nan_to_num(neginf=lowest)


def _draw(logits: Tensor, target: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """At most `size` of the samples, the same ones in every call."""
    if len(logits) <= size:
        return logits, target
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0))[:size].to(logits.device)
    return logits[order], target[order]
