"""What the checks of the kernels share: where they run, their rows, and the path in torch to compare with."""

import math
import os

import pytest
import torch
from torch import Tensor

from tests.functional.cases import random_logits
from torch_boc.core.rows import Rows
from torch_boc.kernels import row_sums
from torch_boc.kernels.cpu import library
from torch_boc.kernels.rows import named

needs_native = pytest.mark.skipif(not library.available(), reason=library.why_not())
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# On the CPU it is Triton's interpreter that runs or, without it, the kernels in C++.
DEVICE = os.environ.get("TORCH_BOC_CHECKS_ON", "cpu" if INTERPRETED else "cuda")
CLASSES = (2, 3, 10, 1023, 1024, 1025, 50257)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# Of a sum that is taken in another order, relative to it.
LIMIT = {torch.float32: 2e-6, torch.float64: 1e-14}


def make_logits(rows: int, classes: int, dtype: torch.dtype = torch.float32, scale: float = 3.0) -> Tensor:
    """Normal logits where the kernels run."""
    return random_logits(rows, classes, scale=scale, dtype=dtype, seed=classes).to(DEVICE)


def sums(logits: Tensor, *, extras: bool = False) -> Rows:
    """The operator's results under the names of the path in torch."""
    return named(row_sums(logits, extras))


def odd_rows(classes: int, dtype: torch.dtype) -> Tensor:
    """Rows with a NaN, with one and two +inf, all -inf, some -inf, ties at the top, all equal, and an ordinary one."""
    return make_odd(make_logits(8, classes, dtype))


def make_odd(logits: Tensor) -> Tensor:
    """The same logits, whose first seven rows become odd in place."""
    logits[0, 1] = math.nan
    logits[1, logits.shape[1] // 2] = math.inf
    logits[2, [0, -1]] = math.inf
    logits[3] = -math.inf
    logits[4, ::2] = -math.inf
    logits[5, [0, -1]] = 60.0
    logits[6] = 1.5
    return logits


UNDEFINED = [True, True, True, True, False, False, False, False]
