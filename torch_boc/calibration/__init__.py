"""Calibrators: `fit` takes held-out logits and targets, and `calibrate` takes the logits of other samples."""

from .base import Calibrated, Calibrator
from .leaks import LeakTest, LeakWarning, Overlap, OverlapWarning, leak_test, overlap_test
from .plain import DominanceConfidence, IsotonicCalibration, Uncalibrated
from .structured import StructuredScaling
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
    "StructuredScaling",
    "TemperatureScaling",
    "Uncalibrated",
    "VectorScaling",
    "leak_test",
    "overlap_test",
]

# All methods in the order of the tables. A new method needs a class, and its name here.
CALIBRATORS: tuple[type[Calibrator], ...] = (
    Uncalibrated,
    TemperatureScaling,
    IsotonicCalibration,
    VectorScaling,
    StructuredScaling,
    DominanceConfidence,
)
