"""Modules: the probe after a classifier, and around one."""

from ..data.finding import find_logits
from .probe import BoCClassifier, BoCOutput, BoCProbe, ProbeOutput

__all__ = ["BoCClassifier", "BoCOutput", "BoCProbe", "ProbeOutput", "find_logits"]
