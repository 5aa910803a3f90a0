"""The staircase: each part of the package imports only parts that stand before it in the list of layers."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "torch_boc"
# From the ground up. Parts on one line do not import each other.
LAYERS = [
    ["_optional"],
    ["core"],
    ["kernels"],
    ["functional"],
    ["data"],
    ["plots"],
    ["nn"],
    ["metrics"],
    ["inference"],
    ["calibration"],
    ["report"],
    ["language"],
    ["lightning", "ray", "transformers"],
    ["evaluation"],
    ["zoo"],
    ["cli"],
]
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
# The top level imports on demand, and so do the entry points of the command line: what they call is slow to import.
LAZY = ("torch_boc/__init__.py", "torch_boc/cli/")


class Import(NamedTuple):
    """One name that a module imports from the package; `source` and `name` are as in `from source import name`."""

    path: str
    line: int
    source: str
    name: str
    nested: bool

    def __str__(self):
        return f"{self.path}:{self.line}: from {self.source} import {self.name}"


def imports_of(path, text):
    """Every import of our own package in a module, those inside of functions included."""
    folder = [*Path(path).with_suffix("").parts][:-1]

    def visit(node, nested):
        if isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            if source.split(".")[0] == PACKAGE:
                yield from (Import(path, node.lineno, source, alias.name, nested) for alias in node.names)
        elif isinstance(node, ast.Import):
            own = [alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE]
            yield from (Import(path, node.lineno, name, "", nested) for name in own)
        inside = nested or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return list(visit(ast.parse(text), False))


def part_of(path):
    parts = Path(path).with_suffix("").parts
    return parts[1] if len(parts) > 1 else "__init__"


def target_of(found):
    """The part of the package that an import reaches: `from . import kernels` reaches kernels."""
    parts = [*found.source.split("."), found.name]
    return parts[1]


def faults(path, text):
    """What is wrong with the imports of one module, as sentences."""
    part, lazy = part_of(path), path.startswith(LAZY)
    for found in imports_of(path, text):
        target = target_of(found)
        if target == "__version__":
            continue
        if found.nested and not lazy:
            yield f"{found}: inside of a function"
        if found.name.startswith("_") and found.name != "__version__" and found.name not in RANK:
            yield f"{found}: a private name"
        if part != "__init__" and target != part and RANK.get(target, 99) >= RANK.get(part, -1):
            yield f"{found}: {part} stands before {target}, or beside it"


def modules():
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def test_imports_point_up_the_list_only():
    assert [fault for path, text in modules().items() for fault in faults(path, text)] == []


def test_every_part_has_its_layer():
    parts = {part_of(path) for path in modules()} - {"__init__"}
    assert parts == set(RANK)


def test_no_module_imports_itself_by_way_of_others():
    texts = modules()
    names = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in texts}
    graph = {}
    for name, path in names.items():
        items = [item for item in imports_of(path, texts[path]) if not item.nested]
        found = [(item.source, f"{item.source}.{item.name}") for item in items]
        graph[name] = {long if long in names else short for short, long in found} - {name}
    order = TopologicalSorter({name: graph[name] & set(graph) for name in graph if name != PACKAGE})
    order.prepare()  # raises CycleError, which shows the cycle
