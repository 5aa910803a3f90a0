"""Lightning: a callback that logs the probe, and a writer of predictions with their coherence.

Both are for the Trainer of `lightning.pytorch`, or of `pytorch_lightning` where only this has been imported before.
"""

from .callback import BoCCallback
from .writer import BoCPredictionWriter

__all__ = ["BoCCallback", "BoCPredictionWriter"]
