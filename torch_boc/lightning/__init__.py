"""Lightning: a callback that logs the probe, and a writer of predictions with their coherence.

Both serve the Trainers of `lightning.pytorch` and of `pytorch_lightning`.
"""

from .callback import BoCCallback
from .writer import BoCPredictionWriter

__all__ = ["BoCCallback", "BoCPredictionWriter"]
