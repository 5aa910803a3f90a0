"""Modules that put the probe after a classifier, or around one."""

from .acceptance import Acceptance
from .classifier import BoCClassifier, BoCOutput, BoCProbe, ProbeOutput
from .conformal import ConformalTest
from .drift import DriftMonitor
from .risk import RiskMonitor

__all__ = [
    "Acceptance",
    "BoCClassifier",
    "BoCOutput",
    "BoCProbe",
    "ConformalTest",
    "DriftMonitor",
    "ProbeOutput",
    "RiskMonitor",
]
