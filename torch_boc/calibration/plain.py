"""Confidences without calibrated logits: the softmax probability itself, the dominance, and isotonic regression."""

from typing import Any

import torch
from torch import Tensor

from .._optional import require
from ..core.coins import Coins
from .base import Calibrated, Calibrator, coins_of


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


class IsotonicCalibration(Calibrator):
    """The nondecreasing function of the confidence that is the best least-squares fit to being right (1) or wrong (0).

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
        known, place, samples = coins.confidence.cpu().unique(return_inverse=True, return_counts=True)
        right = place.bincount((coins.prediction == target).cpu().double()) / samples
        self._knots = known.numpy(), optimize.isotonic_regression(right.numpy(), weights=samples.double().numpy()).x

    def _calibrate(self, logits: Tensor) -> Calibrated:
        coins = coins_of(logits)
        interpolated = require("numpy", purpose="this calibrator needs").interp(coins.confidence.cpu(), *self._knots)
        return Calibrated(coins.prediction, torch.from_numpy(interpolated).to(coins.confidence), None)
