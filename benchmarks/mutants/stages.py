"""Which tests are asked about a fault in which file: the nearest first, so that most faults are found in seconds."""

import ast
import re
from pathlib import Path

NEAREST, MOST = 3, 10  # files of tests in the first stage, and in the last
# Slow tests, which are seldom the only ones that find a fault.
FAR = ("tests/benchmarks", "tests/examples", "tests/gpu", "tests/ray")
# These run all public functions, and mention few names.
WIDE = [Path("tests/functional", f"test_{name}.py") for name in ("laws", "references", "graphs")]


def stages(root: Path, path: Path) -> list[list[str]]:
    """Lists of arguments for pytest, one list after the other, for the file at `path` of the package.

    First the file's own doctests and the files of tests that mention most of its names; then the folder of tests of its
    part of the package; then the other files of tests that mention most of its names.
    """
    names = defined_names((root / path).read_text(encoding="utf-8"))
    module = path.with_suffix("").as_posix().replace("/", ".")
    mentions = {}
    for file in sorted((root / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        mentions[file.relative_to(root)] = len(names & set(re.findall(r"\w+", text))) + 2 * (module in text)
    own = [file for file in mentions if len(path.parts) > 2 and file.is_relative_to(Path("tests", path.parts[1]))]
    candidates = own or [file for file in mentions if not file.as_posix().startswith(FAR)]
    nearest = sorted(candidates, key=lambda file: -mentions[file])[:NEAREST]
    rest = [file for file in own if file not in nearest]
    other = [file for file in mentions if mentions[file] and file not in (*own, *nearest)]
    other = sorted((file for file in other if not file.as_posix().startswith(FAR)), key=lambda file: -mentions[file])
    found = [[path, *nearest], rest, [*dict.fromkeys([*other[:MOST], *WIDE])]]
    return [[file.as_posix() for file in stage] for stage in found if stage]


def defined_names(text: str) -> set[str]:
    r"""The names of the functions and classes of a module.

    >>> sorted(defined_names("class A:\n    def area(self): pass\nSIZE = 1"))
    ['A', 'area']
    """
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return {node.name for node in nodes if not node.name.startswith("__")}
