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
    "leak_test",
    "overlap_test",
]

# All methods that the paper compares, in the order of its tables. A new method needs a class, and its name here.
CALIBRATORS: tuple[type[Calibrator], ...] = (
    Uncalibrated,
    TemperatureScaling,
    IsotonicCalibration,
    VectorScaling,
    DominanceConfidence,
)
