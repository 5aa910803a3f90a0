"""The README's first example: what `pip install torch-boc` without extras must be able to do."""

from pathlib import Path

from tests.examples.blocks import SET_UP, blocks

ROOT = Path(__file__).parents[1]


def first_snippet() -> str:
    """The first block of Python in the README with its set-up; it needs torch and torchmetrics only, and no file."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return SET_UP.search(text)[1] + next(block.text for block in blocks(text) if block.language == "python")
