"""Ray Data: inference on a fleet, and summaries and calibration over data sets of any size.

Ray is imported when a function here is called.
"""

from .cluster import check_complete, predict
from .summaries import calibrate, summarize

__all__ = ["calibrate", "check_complete", "predict", "summarize"]
