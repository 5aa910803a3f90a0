"""Modules that put the probe after a classifier, or around one."""

from ..data.finding import find_logits
from .conformal import ConformalTest
from .drift import DriftMonitor
from .outputs import BoCOutput, ProbeOutput, ScreenedOutput
from .probe import BoCClassifier, BoCProbe

__all__ = [
    "BoCClassifier",
    "BoCOutput",
    "BoCProbe",
    "ConformalTest",
    "DriftMonitor",
    "ProbeOutput",
    "ScreenedOutput",
    "find_logits",
]
