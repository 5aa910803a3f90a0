"""The paper's tables beside ours: `python -m benchmarks.paper` writes README.md and its figures into this folder."""
