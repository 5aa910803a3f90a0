"""Tutorials are plain scripts with cells, `# %%` and `# %% [markdown]`, as Jupytext and editors know them."""

import ast
import contextlib
import io
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

MARK = re.compile(r"^# %%(.*)\n", re.MULTILINE)


@dataclass
class Cell:
    """A cell: text in Markdown, or code with what it printed and what its last line gave."""

    code: bool
    source: str
    printed: str = ""
    shown: Any = None


def read_cells(path: Path) -> list[Cell]:
    """The cells of a script. What stands before the first mark belongs to no cell."""
    _, *pieces = MARK.split(path.read_text(encoding="utf-8"))
    cells = []
    for kind, source in zip(pieces[::2], pieces[1::2], strict=True):
        if kind.strip() == "[markdown]":
            cells.append(Cell(False, re.sub(r"^# ?", "", source.strip(), flags=re.MULTILINE)))
        else:
            cells.append(Cell(True, source.strip()))
    return cells


@cache
def run_cells(path: Path) -> list[Cell]:
    """The cells of a script after they were run, in one namespace, as a notebook does it; once in each process."""
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    cells = read_cells(path)
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    torch.set_num_threads(1)  # the tensors are small: a second thread costs more than it brings
    for cell in cells:
        if cell.code:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                cell.shown = run_cell(cell.source, names, str(path))
            cell.printed = out.getvalue()
    torch.set_num_threads(threads)
    torch.random.set_rng_state(state)
    return cells


def run_cell(source: str, names: dict[str, Any], file: str) -> Any:
    """Run the code, and return the value of its last line if that is an expression."""
    tree = ast.parse(source, file)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, file, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), file, "eval"), names)


def picture(figure: Figure) -> bytes:
    """A figure as PNG."""
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=120, bbox_inches="tight", facecolor="white")
        return file.getvalue()
