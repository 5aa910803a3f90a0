"""torch_boc: does a classifier's confidence agree with the geometry of its logits?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import calibration, evaluation, experiments, functional, inference, kernels, metrics, nn, zoo
    from .functional import Coins, bag_of_coins
    from .inference import BoCPredictor
    from .metrics import BoCMetric, BoCSeparation, CoherenceGap
    from .metrics import watching as watch
    from .nn import BoCClassifier, BoCProbe

__version__ = "0.1.0"

__all__ = [
    "BoCClassifier",
    "BoCMetric",
    "BoCPredictor",
    "BoCProbe",
    "BoCSeparation",
    "CoherenceGap",
    "Coins",
    "__version__",
    "bag_of_coins",
    "calibration",
    "evaluation",
    "experiments",
    "functional",
    "inference",
    "kernels",
    "metrics",
    "nn",
    "watch",
    "zoo",
]

# Imported when first asked for: torchmetrics takes longer to import than torch, and probing logits does not need it.
# Nor is torch imported before the command line is there to say that it was interrupted.
_HOMES = {
    "BoCClassifier": "nn",
    "BoCMetric": "metrics",
    "BoCPredictor": "inference",
    "BoCProbe": "nn",
    "BoCSeparation": "metrics",
    "CoherenceGap": "metrics",
    "Coins": "functional",
    "bag_of_coins": "functional",
    "watch": "metrics",
}
_MODULES = ("calibration", "evaluation", "experiments", "functional", "inference", "kernels", "metrics", "nn", "zoo")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _HOMES:
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
