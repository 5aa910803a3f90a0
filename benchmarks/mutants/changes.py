"""Small faults that a source file could have: each is one replaced piece of its text.

Left out are pieces whose change no test should see: annotations, docstrings and other texts, decorators, the arguments
of `raise`, of warnings and of signals, the words of a progress bar and those about a missing package, numbers at the
top level of a module (sizes of blocks, tables of names), the numbers in files that draw, slacks for rounding below a
millionth, and keywords that change nothing on this machine (`encoding`), only speed, or what cannot differ (`strict`).
"""

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
# Calls that stay as they are: texts, and signals, of which another number would end processes that are not ours.
UNTOUCHED = ("warnings.warn", "os.kill", "progress", "tell", "require")
KEYWORDS = ("encoding", "non_blocking", "sem", "strict")
SLACK = 1e-6
DRAWING = ("plots", "figures", "axes", "curves", "layout", "page", "svg")


class Mutant(NamedTuple):
    """One fault: the bytes from `start` to `end` of the file at `path` become `after`."""

    path: Path
    line: int
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path.as_posix()}:{self.line}: {self.before}  ->  {self.after}"

    def apply(self, root: Path) -> None:
        """Write the fault into the copy of the project at `root`."""
        file = root / self.path
        text = file.read_bytes()
        file.write_bytes(text[: self.start] + self.after.encode() + text[self.end :])


def mutants(root: Path, path: Path) -> list[Mutant]:
    """Every fault that the file at `root / path` can be given, in the order of the text."""
    text = (root / path).read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    changes = []
    for node, changed in _changes(ast.parse(text), numbers=path.stem not in DRAWING):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        after = ast.unparse(changed)
        if isinstance(node, ast.expr):
            after = f"({after})"
        before = " ".join(text[start:end].decode().split())
        changes.append(Mutant(path, node.lineno, start, end, before, after))
    return changes


def _changes(tree: ast.Module, *, numbers: bool) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Pairs of a node and what stands in its place in one mutant."""
    for node, inside in _visible(tree, inside=False):
        if isinstance(node, ast.Constant) and not (numbers and inside) and not isinstance(node.value, bool):
            continue
        if isinstance(node, ast.BinOp) and not inside:  # a union of types at the top level
            continue
        for changed in _faults(node):
            yield node, changed
        if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
            yield node.test, ast.UnaryOp(ast.Not(), node.test)


def _visible(node: ast.AST, *, inside: bool) -> Iterator[tuple[ast.AST, bool]]:
    """The nodes below `node` that may be changed, each with whether it lies in the body of a function or a class."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _hidden(child):
                deeper = inside or isinstance(node, ast.FunctionDef | ast.ClassDef)
                yield child, deeper
                if not isinstance(child, ast.Raise):
                    yield from _visible(child, inside=deeper)


def _hidden(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Call) and ast.unparse(node.func) in UNTOUCHED:
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.keyword) and node.arg in KEYWORDS:
        return True
    return isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom)


def _faults(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[first, *_]) if type(first) in COMPARISONS:
            yield _with(node, ops=[COMPARISONS[type(first)](), *node.ops[1:]])
        case ast.BinOp(op=op) if type(op) in ARITHMETIC and not _is_text(node):
            yield _with(node, op=ARITHMETIC[type(op)]())
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)) if value == 0 or value >= SLACK:
            yield ast.Constant(2 * value if value else 1.0)
        case ast.Call(keywords=[*_, ast.keyword(arg=str(name))]) if name not in KEYWORDS:
            yield _with(node, keywords=node.keywords[:-1])
        case ast.AugAssign() | ast.Raise() | ast.Expr(value=ast.Call()):
            yield ast.Pass()


def _is_text(node: ast.BinOp) -> bool:
    """Whether texts are put together: `+` of a text, or `%` of one."""
    parts = [node.left, node.right]
    return any(isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str) for part in parts)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
