"""Modules that put the probe after a classifier, or around one."""

from ..data.finding import find_logits
from .acceptance import Acceptance
from .classifier import BoCClassifier, BoCOutput, BoCProbe, ProbeOutput, ScreenedOutput
from .conformal import ConformalTest
from .drift import DriftMonitor

__all__ = [
    "Acceptance",
    "BoCClassifier",
    "BoCOutput",
    "BoCProbe",
    "ConformalTest",
    "DriftMonitor",
    "ProbeOutput",
    "ScreenedOutput",
    "find_logits",
]
