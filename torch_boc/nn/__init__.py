"""Modules: the probe after a classifier, around one, and watching one."""

from .hooks import Watch, watch
from .outputs import find_logits
from .probe import BoCClassifier, BoCOutput, BoCProbe, ProbeOutput

__all__ = ["BoCClassifier", "BoCOutput", "BoCProbe", "ProbeOutput", "Watch", "find_logits", "watch"]
