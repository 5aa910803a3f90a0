"""torch_boc: does a classifier's confidence agree with the geometry of its logits?"""

from . import functional, metrics, nn
from .functional import Coins, bag_of_coins
from .inference import BoCPredictor
from .metrics import BoCMetric, BoCSeparation, CoherenceGap
from .nn import BoCClassifier, BoCProbe, watch

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
    "functional",
    "metrics",
    "nn",
    "watch",
]
