"""What needs a GPU. Run it with `pytest -m gpu`; without a CUDA device every test is skipped."""

import pytest
import torch


@pytest.fixture
def device() -> torch.device:
    """The first CUDA device."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return torch.device("cuda", 0)


@pytest.fixture
def accelerator() -> torch.device:
    """The first GPU of any kind that torch knows: CUDA, XPU or MPS."""
    kinds = [kind for kind in ("cuda", "xpu", "mps") if torch.get_device_module(kind).is_available()]
    if not kinds:
        pytest.skip("needs a GPU")
    return torch.device(kinds[0], 0)


@pytest.fixture
def other_device(device) -> torch.device:
    """The last CUDA device, which is not the first."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    return torch.device("cuda", torch.cuda.device_count() - 1)
