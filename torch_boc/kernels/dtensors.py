"""Whether a tensor is a DTensor, of which this process holds a part; kernels take plain tensors only."""

import sys

import torch
from torch import Tensor
from torch.nn import Parameter

_PLAIN = (Tensor, Parameter)


def is_distributed(x: Tensor) -> bool:
    """Whether `x` is a DTensor. The module of DTensors is not imported for this question: without it there are none."""
    if torch.compiler.is_compiling() or type(x) in _PLAIN:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)
