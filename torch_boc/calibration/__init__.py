"""Calibrators: `fit` takes held-out logits and targets, and `calibrate` takes the logits of other samples."""

from .base import Calibrated, Calibrator
from .leaks import LeakTest, LeakWarning, Overlap, OverlapWarning, leak_test, overlap_test
from .plain import DominanceConfidence, IsotonicCalibration, Uncalibrated
from .temperature import TemperatureScaling
from .vector import VectorScaling

__all__ = [
    "Calibrated",
    "Calibrator",
    "DominanceConfidence",
    "IsotonicCalibration",
    "LeakTest",
    "LeakWarning",
    "Overlap",
    "OverlapWarning",
    "TemperatureScaling",
    "Uncalibrated",
    "VectorScaling",
    "calibrators",
    "leak_test",
    "overlap_test",
]

# In the order of the paper's tables. A new method needs a class, and its name in this list.
CALIBRATORS: tuple[type[Calibrator], ...] = (
    Uncalibrated,
    TemperatureScaling,
    IsotonicCalibration,
    VectorScaling,
    DominanceConfidence,
)


def calibrators() -> list[Calibrator]:
    """A new object of each method that the paper compares, in the order of its tables.

    >>> [calibrator.name for calibrator in calibrators()]
    ['MSP', 'temperature', 'isotonic', 'vector scaling', 'BoC']
    """
    return [calibrator() for calibrator in CALIBRATORS]
