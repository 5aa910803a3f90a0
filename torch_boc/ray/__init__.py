"""Ray Data: inference on a fleet, and summaries and calibration over data sets of any size.

Ray is imported when a function here is called.
"""

from .folding import fold, is_ray_dataset

__all__ = ["fold", "is_ray_dataset"]
