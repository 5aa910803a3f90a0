"""Matrix scaling, the paper's "vector scaling": multinomial logistic regression of the targets on the logits."""

import math
import warnings

import torch
from torch import Tensor

from ..core.dtypes import accumulation_dtype, to_wide
from .base import Calibrated, Calibrator, coins_of, draw_samples, minimize

MAX_ITERATIONS = 2000
# The search ends when the largest slope is below this. With 1e-5, and more so with scikit-learn's own 1e-4, rounding
# decides where the search ends, and this changes the calibration error by 0.0004.
TOLERANCE = 1e-6
# Of larger calibration splits, this many samples are drawn at random, with a fixed seed.
MOST_SAMPLES = 100_000


class MatrixScaling(Calibrator):
    """Multinomial logistic regression of the targets on the logits, with scikit-learn's penalty.

        mean_i -log softmax(W x_i + b)[y_i]  +  |W|^2 / (2 N)

    The paper calls this method "vector scaling". It has a full matrix of weights and a bias; `VectorScaling` (Guo et
    al., 2017) has one weight for each class, which is a diagonal matrix.

    It finds the same weights as scikit-learn's `LogisticRegression`, if that one has enough iterations.
    Here the logits are centred, and they and the penalty are scaled by one factor, for faster convergence. The
    calibrated logits are the decision function, in float64; its products are in float32, unless the logits are float64.
    The C^2 weights need time and many samples: 5,000 are too few for a hundred classes, and a warning says so;
    `VectorScaling` is better there.

    If a class has no sample among the n samples of the fit, its odds against all classes with samples are 1 to n + 1.
    This is Laplace's rule, 1 / (n + 2): the likelihood of such a target is small but not 0. A logit of -inf is replaced
    by the smallest finite logit of the calibration split.

    Calibrate `Acceptance` and `ConformalTest` with other samples than those of the fit, which void their guarantees.
    """

    name = "matrix scaling"

    def __init__(self) -> None:
        self._samples, self._lowest = 0, 0.0
        self._classes = self._weight = self._bias = self._mean = torch.zeros(0)

    def _fit(self, logits: Tensor, target: Tensor) -> None:
        logits, target = draw_samples(logits, target, MOST_SAMPLES)
        if (weights := logits.shape[1] ** 2) > len(logits):
            warnings.warn(
                f"{self.name}: {logits.shape[1]:,} classes and {len(logits):,} samples for {weights:,} weights: "
                "predictions may become worse; vector scaling needs fewer",
                stacklevel=3,
            )
        classes, index = target.cpu().unique(return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"{self.name}: expected targets of at least 2 classes, got only class {int(classes)} in {len(target)} "
                "samples; if the data are sorted by class, shuffle them before they are split"
            )
        lowest = logits[logits.isfinite()].min().item()
        rows = _finite(logits, lowest).cpu().double()
        mean = rows.mean(0)
        rows -= mean
        spread = max(float(rows.square().mean().sqrt()), 1e-9)
        rows, index = rows.div_(spread), index.unsqueeze(1)
        # For two classes, scikit-learn's penalty is on one column, the difference of the two columns here.
        penalty = (2 if len(classes) == 2 else 1) / (spread**2 * len(rows))
        fit = torch.zeros(len(classes), rows.shape[1] + 1, dtype=torch.float64)

        def loss_and_slope() -> float:
            weight, bias = fit[:, :-1], fit[:, -1]
            scores = torch.addmm(bias, rows, weight.T).log_softmax(1)
            loss = penalty / 2 * weight.square().sum() - scores.gather(1, index).mean()
            excess = scores.exp_().scatter_add_(1, index, rows.new_full(index.shape, -1.0)) / len(rows)
            fit.grad = torch.cat([excess.T @ rows + penalty * weight, excess.sum(0).unsqueeze(1)], 1)
            return float(loss)

        if minimize(fit, loss_and_slope, MAX_ITERATIONS, TOLERANCE) >= MAX_ITERATIONS:
            message = f"{self.name}: the fit did not converge in {MAX_ITERATIONS} iterations; its numbers are rough"
            warnings.warn(message, stacklevel=3)
        self._samples, self._lowest, self._mean = len(rows), lowest, mean
        self._classes, self._weight, self._bias = classes, fit[:, :-1] / spread, fit[:, -1]

    def _calibrate(self, logits: Tensor) -> Calibrated:
        rows = _finite(logits, self._lowest)
        rows = (rows - self._mean.to(rows)).to(accumulation_dtype(logits.dtype))
        seen = to_wide(torch.addmm(self._bias.to(rows), rows, self._weight.T.to(rows)))
        scaled = seen
        if seen.shape[1] < logits.shape[1]:
            unseen = seen.logsumexp(1, keepdim=True) - math.log(self._samples + 1)
            scaled = unseen.repeat(1, logits.shape[1]).index_copy_(1, self._classes.to(rows.device), seen)
        coins = coins_of(scaled)
        return Calibrated(coins.prediction, coins.confidence, scaled)


def _finite(logits: Tensor, lowest: float) -> Tensor:
    return to_wide(logits).nan_to_num(neginf=lowest)
