"""Settings of every run, and names that the examples in docstrings use without importing them."""

import gc
import os
from typing import Any

# Before torch is loaded: some virtual machines announce AMX and do not allow it, and there torch's products in half
# precision would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
if "PYTEST_XDIST_WORKER" in os.environ:  # several of these processes share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

import torch_boc

pytest.register_assert_rewrite("tests")  # a failing helper shows its values, as a test does


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["torch"] = torch
    doctest_namespace.update({name: getattr(torch_boc.functional, name) for name in torch_boc.functional.__all__})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of a cluster first: they mostly wait, and at the end they would leave the other cores without work.

    The order is the same in every process of a run, because sorting keeps the order of the others.
    """
    items.sort(key=lambda item: item.get_closest_marker("ray") is None)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: no collection of garbage looks at its millions of objects again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end it is garbage as well, and libraries complain about objects that are never collected."""
    gc.unfreeze()
