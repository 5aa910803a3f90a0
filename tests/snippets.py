"""The README's first example: what `pip install torch-boc` alone must be able to do."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def first_snippet() -> str:
    """The first block of Python in the README; it needs torch and torchmetrics alone, and reads no file."""
    return re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
