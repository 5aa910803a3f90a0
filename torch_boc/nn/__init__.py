"""Modules: the probe after a classifier, around one, and watching one."""

from ..finding import find_logits
from .hooks import Watch, watch
from .probe import BoCClassifier, BoCOutput, BoCProbe, ProbeOutput

__all__ = ["BoCClassifier", "BoCOutput", "BoCProbe", "ProbeOutput", "Watch", "find_logits", "watch"]
