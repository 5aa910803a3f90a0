"""Settings shared by all tests: Hypothesis draws the same examples on every run, and torch uses one thread."""

import torch
from hypothesis import settings

settings.register_profile("deterministic", derandomize=True, database=None, deadline=None, max_examples=100)
settings.load_profile("deterministic")

# The tensors are small: a second thread costs more than it brings, and much more on a busy machine.
torch.set_num_threads(1)
