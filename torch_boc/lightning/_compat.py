"""Base classes that both libraries accept: Lightning is published under two names, each with its own classes."""

import sys
from importlib import import_module
from typing import Any

NAMES = ("lightning.pytorch", "pytorch_lightning")


def installed() -> list[Any]:
    """The libraries that can be imported, with those already in use first, or an error that says how to get one."""
    found: list[Any] = []
    problem: ImportError | None = None
    logger = None
    for name in sorted(NAMES, key=lambda name: name not in sys.modules):
        try:
            found.append(import_module(name))
        except ImportError as error:
            problem = error
        else:
            rank_zero: Any = import_module("lightning_utilities.core.rank_zero")
            logger = rank_zero.log = logger or rank_zero.log  # the second library has replaced the logger of the first
    if not found:
        raise ImportError("torch_boc.lightning needs Lightning: pip install 'torch-boc[lightning]'") from problem
    return found


def _joined(name: str) -> Any:
    """A class that inherits from the classes of all installed libraries, because a Trainer accepts only its own."""
    return type(name, tuple(getattr(library.callbacks, name) for library in installed()), {})


Callback: Any = _joined("Callback")
BasePredictionWriter: Any = _joined("BasePredictionWriter")
say_info: Any = import_module("lightning_utilities.core.rank_zero").rank_zero_info
