"""Fused kernels for the formulas of `torch_boc.core`. Users of `torch_boc.functional` get the same results from each.

`use` chooses among them. This package imports nothing but torch: Triton is imported at the first launch, and the native
library is loaded at the first call.
"""

from .choice import use
from .coins import coins
from .columns import QUANTITIES, columns
from .rows import row_sums, row_sums_backward
from .standing import standing
from .tails import log_p_value, log_tail
from .tally import count_scores, gap_tally, tally, tally_evidence
from .triton.launch import available

__all__ = [
    "QUANTITIES",
    "available",
    "coins",
    "columns",
    "count_scores",
    "gap_tally",
    "log_p_value",
    "log_tail",
    "row_sums",
    "row_sums_backward",
    "standing",
    "tally",
    "tally_evidence",
    "use",
]
