"""Settings shared by all tests: Hypothesis draws the same examples on every run."""

from hypothesis import settings

settings.register_profile("deterministic", derandomize=True, database=None, deadline=None, max_examples=200)
settings.load_profile("deterministic")
