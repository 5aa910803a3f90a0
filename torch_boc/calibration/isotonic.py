"""Isotonic calibration: the confidence of the predicted class by isotonic regression."""

from typing import Any

import torch
from torch import Tensor

from .._optional import require
from .base import Calibrated, Calibrator, coins_of


class IsotonicCalibration(Calibrator):
    """The nondecreasing function of the confidence that best fits the correctness, 1 or 0, by least squares.

    It is that of scikit-learn's `IsotonicRegression`: linear between the confidences of the fit, and constant beyond
    them. It calibrates the confidence of the predicted class only, so there are no calibrated logits.

    >>> logits, target = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 1, 0])
    >>> IsotonicCalibration().fit(logits, target).calibrate(logits).confidence
    tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """

    name = "isotonic"
    gives_logits = False

    def __init__(self) -> None:
        self._knots: tuple[Any, Any] = ((), ())

    def _fit(self, logits: Tensor, target: Tensor) -> None:
        coins = coins_of(logits)
        optimize = require("scipy", "optimize", purpose="this calibrator needs").optimize
        knots, index, samples = coins.confidence.cpu().unique(return_inverse=True, return_counts=True)
        accuracy = index.bincount((coins.prediction == target).cpu().double()) / samples
        values = optimize.isotonic_regression(accuracy.numpy(), weights=samples.double().numpy()).x
        self._knots = knots.numpy(), values

    def _calibrate(self, logits: Tensor) -> Calibrated:
        coins = coins_of(logits)
        interpolated = require("numpy", purpose="this calibrator needs").interp(coins.confidence.cpu(), *self._knots)
        return Calibrated(coins.prediction, torch.from_numpy(interpolated).to(coins.confidence), None)
