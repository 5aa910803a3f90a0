"""The expected calibration error: how far confidence and accuracy differ in each bin."""

from torch import Tensor

from ..core.precision import widen
from .bins import count, equal_bin


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> Tensor:
    """The expected calibration error: the mean over samples of |accuracy - mean confidence| of their bin.

    Args:
        confidence: (N,), in [0, 1].
        correct: (N,), which predictions are right, or how likely each is to be right.
        bins: the number of bins of confidence, which have equal width.

    Returns:
        A scalar in float64 (float32 on MPS).

    >>> calibration_error(torch.tensor([0.75, 0.75, 0.25, 0.25]), torch.tensor([True, False, False, False]), bins=2)
    tensor(0.2500, dtype=torch.float64)
    """
    excess = count(equal_bin(confidence, bins), widen(correct) - widen(confidence), bins)
    return error_of_bins(excess, len(confidence))


def error_of_bins(excess: Tensor, samples: Tensor | int) -> Tensor:
    """The calibration error from the excess of each bin, with the bins on the last axis: sum of |excess| / samples.

    Args:
        excess: for each bin, the number of right predictions minus the sum of the confidences.
        samples: the number of samples in all bins together.
    """
    return excess.abs().sum(-1) / samples
