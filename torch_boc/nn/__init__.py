"""Modules that put the probe after a classifier, or around one."""

from ..data.finding import find_logits
from .conformal import ConformalTest
from .drift import DriftMonitor
from .probe import BoCClassifier, BoCOutput, BoCProbe, ProbeOutput

__all__ = ["BoCClassifier", "BoCOutput", "BoCProbe", "ConformalTest", "DriftMonitor", "ProbeOutput", "find_logits"]
