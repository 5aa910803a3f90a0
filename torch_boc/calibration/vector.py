"""Vector scaling: temperature scaling, and then a weight and a bias for each class, which stay near 1 and 0."""

import math

import torch
from torch import Tensor

from ..core.dtypes import to_wide
from .base import Calibrated, Calibrator, coins_of, draw_samples, minimize
from .temperature import TemperatureScaling

# The penalty has the weight of this many samples, or of one for each class if these are more. On six networks with 4 to
# 150 classes and 200 held-out samples, a tenth of it loses up to 0.025 of log loss, and this loses 0.003.
PENALTY = 100
MOST_NUMBERS = 2**24  # of a fit: 128 MiB in float64, several times
STEPS, TOLERANCE = 200, 1e-8
LOWEST = -1e4  # instead of -inf; its exponential is 0


class VectorScaling(Calibrator):
    """Vector scaling (Guo et al., 2017) after temperature scaling, shrunk towards it where samples are few.

    With p the probabilities at the fitted temperature, the calibrated logits are (1 + v) log p + b. The weights v and
    the biases b minimise, over the n samples of the fit,

        mean -log softmax((1 + v) log p + b)[target]  +  max(C, 100) / n * (|v|^2 + |b|^2)

    It corrects what differs between classes, which a temperature cannot, and with few samples it is nearly temperature
    scaling. Predictions can change. A sample whose target has a logit of -inf is left out of the fit. Calibrate
    `Acceptance` with other samples than those of the fit.

    >>> logits, target = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).repeat(500, 1), torch.tensor([0, 0, 0, 1]).repeat(250)
    >>> VectorScaling().fit(logits, target).calibrate(logits[:2]).confidence  # class 1: accuracy 1/2
    tensor([0.9060, 0.5316], dtype=torch.float64)
    """

    name = "vector scaling"

    def __init__(self) -> None:
        self._temperature, self._weights = 1.0, torch.zeros(2, 0)

    def _fit(self, logits: Tensor, target: Tensor) -> None:
        classes = logits.shape[1]
        logits, target = draw_samples(logits, target, max(2, MOST_NUMBERS // classes))
        first = TemperatureScaling()
        first._fit(logits, target)
        self._temperature = math.exp(first.log_temperature)
        possible = logits.gather(1, target.unsqueeze(1)).isfinite().squeeze(1)
        rows, index = self._log_probabilities(logits[possible]).cpu().double(), target[possible].unsqueeze(1).cpu()
        penalty, weights = max(classes, PENALTY) / len(rows), torch.zeros(2, classes, dtype=torch.float64)

        def loss_and_slope() -> float:
            scores = torch.addcmul(weights[1] + rows, rows, weights[0]).log_softmax(1)
            loss = penalty * weights.square().sum() - scores.gather(1, index).mean()
            excess = scores.exp_().scatter_add_(1, index, rows.new_full(index.shape, -1.0))
            weights.grad = torch.stack([(excess * rows).mean(0), excess.mean(0)]) + 2 * penalty * weights
            return float(loss)

        minimize(weights, loss_and_slope, STEPS, TOLERANCE)
        self._weights = weights

    def _calibrate(self, logits: Tensor) -> Calibrated:
        rows = self._log_probabilities(logits)
        weight, bias = self._weights.to(rows)
        scaled = torch.addcmul(bias + rows, rows, weight)
        coins = coins_of(scaled)
        return Calibrated(coins.prediction, coins.confidence, scaled)

    def _log_probabilities(self, logits: Tensor) -> Tensor:
        return (to_wide(logits) / self._temperature).log_softmax(1).clamp_min(LOWEST)
