"""Settings shared by all tests: Hypothesis draws the same examples on every run, and torch uses one thread."""

import socket

import pytest
import torch
from hypothesis import settings

settings.register_profile("deterministic", derandomize=True, database=None, deadline=None, max_examples=100)
settings.load_profile("deterministic")

# The tensors are small: a second thread costs more than it brings, and much more on a busy machine.
torch.set_num_threads(1)


@pytest.fixture
def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
