"""torch_boc: decisions, alarms and calibration from the logits of classifiers, and the Bag-of-Coins probe."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        calibration,
        core,
        data,
        evaluation,
        functional,
        inference,
        kernels,
        language,
        metrics,
        nn,
        report,
        zoo,
    )
    from . import lightning as lightning
    from . import ray as ray
    from . import transformers as transformers
    from .functional import Coins, bag_of_coins
    from .inference import BoCPredictor
    from .metrics import BoCMetric, BoCSeparation, CoherenceGap, watch
    from .nn import BoCClassifier, BoCProbe, ConformalTest, DriftMonitor

__version__ = "0.1.0"

__all__ = [
    "BoCClassifier",
    "BoCMetric",
    "BoCPredictor",
    "BoCProbe",
    "BoCSeparation",
    "CoherenceGap",
    "Coins",
    "ConformalTest",
    "DriftMonitor",
    "__version__",
    "bag_of_coins",
    "calibration",
    "core",
    "data",
    "evaluation",
    "functional",
    "inference",
    "kernels",
    "language",
    "metrics",
    "nn",
    "report",
    "watch",
    "zoo",
]

# These are imported when they are first used: torchmetrics takes longer to import than torch, and probing logits does
# not need it. Even torch is imported later, so that the command line can be interrupted while torch is being imported.
_HOMES = {
    "BoCClassifier": "nn",
    "BoCMetric": "metrics",
    "BoCPredictor": "inference",
    "BoCProbe": "nn",
    "BoCSeparation": "metrics",
    "CoherenceGap": "metrics",
    "Coins": "functional",
    "ConformalTest": "nn",
    "DriftMonitor": "nn",
    "bag_of_coins": "functional",
    "watch": "metrics",
}
# All other names of `__all__` are parts of the package.
_MODULES = {*__all__} - {*_HOMES, "__version__"}
# These need a package that may be missing. They are not in `__all__`, so that `from torch_boc import *` always works.
_ADAPTERS = ("lightning", "ray", "transformers")


def __getattr__(name: str) -> Any:
    if name in _MODULES or name in _ADAPTERS:
        return import_module(f".{name}", __name__)
    if name in _HOMES:
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ADAPTERS])
