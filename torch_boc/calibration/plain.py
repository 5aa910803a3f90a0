"""Confidences that need no calibration data: the softmax probability itself, and the dominance."""

from typing import Self

from torch import Tensor

from ..core.coins import Coins
from .base import Calibrated, Calibrator, coins_of


class _Unfitted(Calibrator):
    """A calibrator that learns nothing. It has a `fit`, as all calibrators do."""

    needs_fit = False

    def fit(self, logits: Tensor, target: Tensor) -> Self:
        """Do nothing; returns the calibrator itself."""
        return self

    def _check_fitted(self) -> None:
        pass

    def _fit(self, logits: Tensor, target: Tensor) -> None:
        pass


class Uncalibrated(_Unfitted):
    """The largest softmax probability, without calibration.

    >>> Uncalibrated().calibrate(torch.tensor([[2.0, 1.0, 0.0, -1.0]])).confidence
    tensor([0.6439], dtype=torch.float64)
    """

    name = "MSP"
    in_diagram = True

    def _calibrate(self, logits: Tensor) -> Calibrated:
        coins = coins_of(logits)
        return Calibrated(coins.prediction, self.confidence_of(coins), logits)

    def confidence_of(self, coins: Coins) -> Tensor:
        """See `Calibrator`."""
        return coins.confidence


class DominanceConfidence(_Unfitted):
    """The dominance as a confidence, the paper's c_BoC: the mean chance that the top class beats a rival.

    It is never below the largest softmax probability, so it can only help if the confidence is too low.

    >>> DominanceConfidence().calibrate(torch.tensor([[2.0, 1.0, 0.0, -1.0]])).confidence
    tensor([0.8548], dtype=torch.float64)
    """

    name = "BoC"
    gives_logits = False
    in_diagram = True

    def _calibrate(self, logits: Tensor) -> Calibrated:
        coins = coins_of(logits)
        return Calibrated(coins.prediction, self.confidence_of(coins), None)

    def confidence_of(self, coins: Coins) -> Tensor:
        """See `Calibrator`."""
        return coins.dominance
