"""The staircase: each part of the package imports only parts that stand before it in the list of layers."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "torch_boc"
# From the ground up. Parts in one text do not import each other.
LAYERS = [
    *("_optional", "core", "kernels", "functional", "data", "plots", "nn", "metrics", "inference", "calibration"),
    *("report", "language", "lightning ray transformers", "evaluation", "zoo", "cli"),
]
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts.split()}
# The top level imports on demand, and so do the entry points of the command line: what they call is slow to import.
LAZY = ("torch_boc/__init__.py", "torch_boc/cli/")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def part_of(path):
    return path.removesuffix(".py").split("/")[1]


def imports_of(path, tree):
    """Every import in a module: its node, and the names from the package down to what is imported."""
    folder = path.split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            source = [*base, *filter(None, (node.module or "").split("."))]
            yield from ((node, [*source, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node, alias.name.split(".")) for alias in node.names)


def faults(path, text):
    """What is wrong with the imports of one module, as sentences."""
    part, tree = part_of(path), ast.parse(text)
    nested = {id(node) for outer in ast.walk(tree) if isinstance(outer, FUNCTIONS) for node in ast.walk(outer)}
    for node, names in imports_of(path, tree):
        if names[0] != PACKAGE or names[1:] == ["__version__"]:
            continue
        where, target = f"{path}:{node.lineno}: {'.'.join(names)}", names[1]
        if id(node) in nested and not path.startswith(LAZY):
            yield f"{where}: inside a function"
        if names[-1].startswith("_") and names[-1] not in RANK:
            yield f"{where}: a private name"
        if part != "__init__" and target != part and RANK.get(target, 99) >= RANK.get(part, -1):
            yield f"{where}: {part} stands before {target}, or in the same layer"


def modules():
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def test_every_part_has_its_layer_and_imports_point_up_the_list_only():
    assert {part_of(path) for path in modules()} - {"__init__"} == set(RANK)
    assert [fault for path, text in modules().items() for fault in faults(path, text)] == []
