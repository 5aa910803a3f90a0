"""Isotonic calibration: a nondecreasing function of the confidence."""

from typing import Any

import torch
from torch import Tensor

from .base import Calibrated, Calibrator, coins_of, require_sklearn


class IsotonicCalibration(Calibrator):
    """The nondecreasing function of the confidence that is the best least-squares fit to being right (1) or wrong (0).

    It is scikit-learn's `IsotonicRegression`, which is constant beyond the confidences of the fit. It calibrates the
    confidence of the predicted class only, so there are no calibrated logits.

    >>> logits, target = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 1, 0])
    >>> IsotonicCalibration().fit(logits, target).calibrate(logits).confidence
    tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """

    name = "isotonic"
    gives_logits = False

    def __init__(self) -> None:
        self._regression: Any = None

    def _fit(self, logits: Tensor, target: Tensor) -> None:
        coins = coins_of(logits)
        regression = require_sklearn().isotonic.IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        correct = (coins.prediction == target).double()
        self._regression = regression.fit(coins.confidence.cpu().numpy(), correct.cpu().numpy())

    def _calibrate(self, logits: Tensor) -> Calibrated:
        coins = coins_of(logits)
        confidence = torch.from_numpy(self._regression.predict(coins.confidence.cpu().numpy()))
        return Calibrated(coins.prediction, confidence.to(coins.confidence), None)
