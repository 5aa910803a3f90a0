"""The Lightning of this process, which is published under two names, each with its own classes."""

import sys
from importlib import import_module
from typing import Any

NAMES = ("lightning.pytorch", "pytorch_lightning")


def lightning() -> Any:
    """The library that this process has imported, otherwise one that is installed."""
    for name in sorted(NAMES, key=lambda name: name not in sys.modules):
        try:
            return import_module(name)
        except ImportError as error:
            problem = error
    raise ImportError("torch_boc.lightning needs Lightning: pip install 'torch-boc[lightning]'") from problem


Callback: Any = lightning().Callback
BasePredictionWriter: Any = lightning().callbacks.BasePredictionWriter
log_info: Any = import_module("lightning_utilities.core.rank_zero").rank_zero_info
