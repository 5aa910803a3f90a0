"""Calibrators: `fit` takes held-out logits and targets, and `calibrate` takes the logits of other samples."""

from .base import Calibrated, Calibrator, DominanceConfidence, Uncalibrated
from .isotonic import IsotonicCalibration
from .matrix import MatrixScaling
from .split_checks import LeakTest, LeakWarning, Overlap, OverlapWarning, leak_test, overlap_test
from .temperature import TemperatureScaling
from .vector import VectorScaling

__all__ = [
    "Calibrated",
    "Calibrator",
    "DominanceConfidence",
    "IsotonicCalibration",
    "LeakTest",
    "LeakWarning",
    "MatrixScaling",
    "Overlap",
    "OverlapWarning",
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
    MatrixScaling,
    VectorScaling,
    DominanceConfidence,
)
