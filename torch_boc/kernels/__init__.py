"""Fused kernels for the formulas of `torch_boc.core`. Users of `torch_boc.functional` get the same results from each.

`use` chooses among them. This package imports nothing but torch: Triton is imported at the first launch, and the native
library is loaded at the first call.
"""

from .dispatch import use

__all__ = ["use"]
