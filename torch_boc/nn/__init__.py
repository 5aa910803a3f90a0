"""Modules that put the probe after a classifier, or around one."""

from ..data.finding import find_logits
from .probe import BoCClassifier, BoCOutput, BoCProbe, ProbeOutput

__all__ = ["BoCClassifier", "BoCOutput", "BoCProbe", "ProbeOutput", "find_logits"]
