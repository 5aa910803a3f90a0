"""Whether a tensor is a DTensor, of which this process holds only a part. Kernels take only plain tensors."""

import sys

import torch
from torch import Tensor
from torch.nn import Parameter

_PLAIN = (Tensor, Parameter)


def is_distributed(x: Tensor) -> bool:
    """Whether `x` is a DTensor. This does not import their module: as long as nobody did, there are no DTensors."""
    if torch.compiler.is_compiling() or type(x) in _PLAIN:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)
