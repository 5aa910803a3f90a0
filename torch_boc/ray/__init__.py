"""Ray Data: inference on a fleet, and summaries and calibration over datasets of any size.

Ray is imported when a function here is called.
"""

from .aggregate import calibrate, summarize
from .inference import check_complete, predict

__all__ = ["calibrate", "check_complete", "predict", "summarize"]
