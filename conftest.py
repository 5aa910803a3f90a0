"""Names that the examples in docstrings use without importing them."""

from typing import Any

import pytest
import torch

import torch_boc


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["torch"] = torch
    doctest_namespace.update({name: getattr(torch_boc.functional, name) for name in torch_boc.functional.__all__})
