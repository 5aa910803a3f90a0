"""Ray Data: inference on a fleet, and summaries and calibration over data sets of any size.

Ray is imported when a function here is called.
"""

from .folding import fold, is_ray_dataset
from .predicting import BoCRayPredictor, predict
from .runs import check_complete
from .summaries import calibrate, summarize

__all__ = ["BoCRayPredictor", "calibrate", "check_complete", "fold", "is_ray_dataset", "predict", "summarize"]
