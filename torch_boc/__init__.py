"""torch_boc: does a classifier's confidence agree with the geometry of its logits?"""

from . import functional
from .functional import Coins, bag_of_coins

__version__ = "0.1.0"

__all__ = ["Coins", "__version__", "bag_of_coins", "functional"]
