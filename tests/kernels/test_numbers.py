"""Runs the checks of tallies, columns and histograms in Triton's interpreter, in a process of their own."""

import pytest

from tests.kernels.test_kernels import needs_triton, run_checks


@needs_triton
def test_in_the_interpreter():
    pytest.importorskip("triton", minversion="3.3")  # the interpreter of 3.2 fails with NumPy 2.4
    run_checks("number_checks", TRITON_INTERPRET="1")
