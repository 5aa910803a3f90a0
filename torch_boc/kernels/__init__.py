"""Fused fast paths behind `torch_boc.functional`; nothing above knows which path ran.

`use` chooses among them. Importing this package needs torch alone: Triton is imported with the first launch, and a
compiler is looked for when it is asked for.
"""

from .choice import use
from .coins import coins
from .rows import row_sums, row_sums_backward
from .spread import spread
from .tails import log_p_value, log_tail
from .triton.launch import available

__all__ = ["available", "coins", "log_p_value", "log_tail", "row_sums", "row_sums_backward", "spread", "use"]
