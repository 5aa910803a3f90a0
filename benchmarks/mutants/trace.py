"""Which tests execute which line of the package, from one run of all of them."""

import json
from pathlib import Path

from coverage import CoverageData

from benchmarks.mutants.changes import Mutant

DATA, SECONDS = ".coverage", ".seconds"
# The run of all tests, with these arguments of pytest, leaves both files.
ARGUMENTS = [
    "--cov=torch_boc",
    "--cov-context=test",
    "--cov-report=",
    "--numprocesses",
    "logical",
    "--dist",
    "loadfile",
]
MOST = 100.0  # this many seconds of tests that execute a line are run for a fault in it


class Trace:
    """The tests by the lines that they execute, and the seconds that each took."""

    def __init__(self, root: Path) -> None:
        self.data = CoverageData(str(root / DATA))
        self.data.read()
        self.files = {Path(file).relative_to(root.resolve()).as_posix(): file for file in self.data.measured_files()}
        self.traced = {context.rpartition("|")[0] for context in self.data.measured_contexts()}
        self.seconds: dict[str, float] = json.loads((root / SECONDS).read_text(encoding="utf-8"))

    def stages(self, root: Path, mutant: Mutant) -> list[list[str]]:
        """Arguments for pytest, one list after the other, for a fault.

        First the tests that execute its lines, the fastest first. For lines that are executed at import, and for the
        kernels, which Triton's interpreter compiles again, these are the tests that execute any line of the file. Then
        the tests of its part of the package that run it in another process, and those of all public signatures.
        """
        contexts = self.data.contexts_by_lineno(self.files.get(mutant.path.as_posix(), ""))
        last = (root / mutant.path).read_bytes()[: mutant.end].count(b"\n") + 1
        covering = {test for line in range(mutant.line, last + 1) for test in contexts.get(line, ())} - {""}
        covering = covering or {test for tests in contexts.values() for test in tests} - {""}
        first: list[str] = []
        left = MOST
        for test in sorted(
            (test.rpartition("|")[0] for test in covering), key=lambda test: (self.seconds.get(test, 0), test)
        ):
            left -= self.seconds.get(test, 0.0)
            first += [test] if left > 0 and test not in first else []
        part = Path("tests", mutant.path.parts[1]).as_posix()
        elsewhere = [test for test in self.seconds if test.startswith(f"{part}/") and test not in self.traced]
        return [stage for stage in (first, ["tests/test_api.py", *elsewhere]) if stage]
