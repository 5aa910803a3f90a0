"""Baselines that learn nothing: the softmax probability itself, and the dominance."""

from torch import Tensor

from ..core.coins import Coins
from .base import Calibrator


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
