"""Fused fast paths behind `torch_boc.functional`; nothing above knows which path ran.

`use` chooses among them. Importing this package needs torch alone: Triton is imported with the first launch, and a
compiler is looked for when it is asked for.
"""

from .choice import use
from .coin_ops import coins
from .launch import available
from .ops import row_sums, row_sums_backward
from .spread_ops import spread
from .tail_ops import log_p_value, log_tail

__all__ = ["available", "coins", "log_p_value", "log_tail", "row_sums", "row_sums_backward", "spread", "use"]
