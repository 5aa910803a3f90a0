"""The README's first example, made to run: what `pip install torch-boc` alone must be able to do."""

import ast
import builtins
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLASSES = 10


def first_snippet() -> str:
    """The first block of Python in the README."""
    return re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]


def undefined(code: str) -> list[str]:
    """The names that `code` reads and nobody has defined."""
    names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    imported = [alias.asname or alias.name.partition(".")[0] for node in ast.walk(ast.parse(code))
                if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]  # fmt: skip
    known = {*dir(builtins), *imported, *(node.id for node in names if isinstance(node.ctx, ast.Store))}
    return sorted({node.id for node in names} - known)


def runnable(code: str) -> str:
    """`code` after random logits for each name that it does not define; it needs torch alone, and reads no file."""
    made = [f"{name} = torch.randn(500, {CLASSES})" for name in undefined(code)]
    return "\n".join(["import torch", "torch.manual_seed(0)", *made, code])
