"""What tests of the kernels need around them."""

import pytest


@pytest.fixture
def offline_compiler(monkeypatch, tmp_path):
    """A Triton that compiles for GPUs that are not here, and keeps nothing."""
    pytest.importorskip("triton", minversion="3.3")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
