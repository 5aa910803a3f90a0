"""Ten checks of a machine, better with a GPU, and a file to attach to a report: `python -m torch_boc.selfcheck`."""

from .kit import CHECKS, FILE, run
from .outcomes import Outcome
from .results import Results

__all__ = ["CHECKS", "FILE", "Outcome", "Results", "run"]
