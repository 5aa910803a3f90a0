"""torch_boc.

Calibration, selective prediction, OOD detection and drift monitoring from the logits of PyTorch classifiers, with
finite-sample guarantees.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import calibration as calibration
    from . import core as core
    from . import data as data
    from . import evaluation as evaluation
    from . import functional as functional
    from . import inference as inference
    from . import kernels as kernels
    from . import language as language
    from . import lightning as lightning
    from . import metrics as metrics
    from . import nn as nn
    from . import ray as ray
    from . import report as report
    from . import transformers as transformers
    from . import zoo as zoo
    from .functional import Coins, bag_of_coins
    from .inference import BoCPredictor
    from .metrics import BoCMetric, BoCSeparation, CoherenceGap, boc_metrics, watch
    from .nn import Acceptance, BoCClassifier, BoCProbe, ConformalTest, DriftMonitor, RiskMonitor

__version__ = "0.1.0"

__all__ = [
    "Acceptance",
    "BoCClassifier",
    "BoCMetric",
    "BoCPredictor",
    "BoCProbe",
    "BoCSeparation",
    "CoherenceGap",
    "Coins",
    "ConformalTest",
    "DriftMonitor",
    "RiskMonitor",
    "__version__",
    "bag_of_coins",
    "boc_metrics",
    "watch",
]

# These are imported when they are first used: torchmetrics takes longer to import than torch, and probing logits does
# not need it. Even torch is imported later, so that the command line can be interrupted while torch is being imported.
_HOMES = {
    "functional": ("Coins", "bag_of_coins"),
    "inference": ("BoCPredictor",),
    "metrics": ("BoCMetric", "BoCSeparation", "CoherenceGap", "boc_metrics", "watch"),
    "nn": ("Acceptance", "BoCClassifier", "BoCProbe", "ConformalTest", "DriftMonitor", "RiskMonitor"),
}
# The parts of the package are not in `__all__`: `from torch_boc import *` must not replace the `nn` of torch. The last
# three need a package that may be missing.
_MODULES = (
    *("calibration", "core", "data", "evaluation", "functional", "inference", "kernels", "language", "metrics", "nn"),
    *("report", "zoo", "lightning", "ray", "transformers"),
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(f".{home}", __name__), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
