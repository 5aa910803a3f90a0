"""Names that the examples in docstrings use without importing them."""

import os
from typing import Any

# Before torch is loaded: some virtual machines announce AMX and do not allow it, and there torch's products in half
# precision would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch

import torch_boc


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["torch"] = torch
    doctest_namespace.update({name: getattr(torch_boc.functional, name) for name in torch_boc.functional.__all__})
