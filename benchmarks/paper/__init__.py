"""The paper's tables next to ours: `python -m benchmarks.paper` writes README.md and its figures into this folder."""
