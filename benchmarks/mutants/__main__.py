"""`python -m benchmarks.mutants`: put small faults into copies of the package, and print those that no test finds."""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from benchmarks.mutants import trace
from benchmarks.mutants.changes import Mutant, mutants

ROOT = Path(__file__).parents[2]
KNOWN = Path(__file__).with_name("equivalent.txt")


class Outcome(NamedTuple):
    """What became of a mutant: `killer` is the test that failed, "time" for one that took too long, "" for none."""

    mutant: Mutant
    killer: str


def sample(root: Path, count: int, seed: int, only: str) -> list[Mutant]:
    """`count` faults drawn evenly from all that the package can be given, without those known to change nothing.

    The draw is by the text of a fault, so that changes elsewhere in the package leave it as it is.
    """
    equivalent = {line.split("  #")[0].strip() for line in KNOWN.read_text(encoding="utf-8").splitlines()}
    files = sorted(file.relative_to(root) for file in (root / "torch_boc").rglob("*.py"))
    every = [mutant for file in files if only in file.as_posix() for mutant in mutants(root, file)]
    alike: Counter[str] = Counter()
    lots = {}
    for mutant in every:
        alike[identity(mutant)] += 1
        lots[mutant] = sha256(f"{seed} {identity(mutant)} {alike[identity(mutant)]}".encode()).digest()
    drawn = sorted(every, key=lots.__getitem__)[:count]
    return [mutant for mutant in drawn if identity(mutant) not in equivalent]


def identity(mutant: Mutant) -> str:
    """The mutant without its line, which moves whenever something is written above it."""
    return f"{mutant.path.as_posix()}: {mutant.before}  ->  {mutant.after}"


def pytest(root: Path, arguments: Sequence[str], seconds: float | None) -> str:
    """The name of the first test that fails in the copy at `root`; "" if all pass, "time" if `seconds` are over."""
    killer = root / ".killer"
    killer.unlink(missing_ok=True)
    path = os.pathsep.join([str(root), str(Path(__file__).parents[2])])  # the second for the recorder alone
    files = {"KILLER": str(killer), "SECONDS": str(root / trace.SECONDS)}
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | files
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "benchmarks.mutants.recorder"]
    try:
        done = subprocess.run(
            [*command, *arguments], cwd=root, env=environment, timeout=seconds, capture_output=True, check=False
        )
    except subprocess.TimeoutExpired:
        return "time"
    if killer.exists():
        return killer.read_text(encoding="utf-8")
    return "" if done.returncode in (0, 5) else f"exit {done.returncode}"


def judge(root: Path, mutant: Mutant, tests: trace.Trace, seconds: float) -> Outcome:
    """Write the fault into the copy at `root`, run the tests stage by stage, and take the fault out again.

    Only tests that execute the line find a fault by taking too long: for others there may not have been enough time.
    """
    file = root / mutant.path
    whole, end = file.read_bytes(), time.monotonic() + seconds
    stages = tests.stages(root, mutant)
    mutant.apply(root)
    try:
        for number, stage in enumerate(stages):
            killer = pytest(root, ["-x", *stage], max(1.0, end - time.monotonic()))
            if killer == "time" and number:
                break
            if killer:
                return Outcome(mutant, killer)
    finally:
        file.write_bytes(whole)
    return Outcome(mutant, "")


def copy_project(to: Path) -> Path:
    """The files of the project as they stand, without what git ignores but the native libraries, in a new folder."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    built = [file.relative_to(ROOT).as_posix() for file in (ROOT / "torch_boc" / "kernels").glob("**/lib/*")]
    for name in filter(None, [*listing.stdout.decode().split("\0"), *built]):
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def judge_all(chosen: Sequence[Mutant], folder: Path, workers: int, seconds: float) -> list[Outcome]:
    """All outcomes, in the order of `chosen`; each worker has a copy of the project."""
    copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for number in range(workers):
        copies.put(copy_project(folder / str(number)))
    traced = copy_project(folder / "traced")
    pytest(traced, trace.ARGUMENTS, None)
    tests = trace.Trace(traced)

    def work(mutant: Mutant) -> Outcome:
        root = copies.get()
        try:
            outcome = judge(root, mutant, tests, seconds)
        finally:
            copies.put(root)
        print(f"found by {outcome.killer}:  {mutant}" if outcome.killer else f"SURVIVED:  {mutant}", flush=True)
        return outcome

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, chosen))


def false_kills(outcomes: Sequence[Outcome], root: Path, seconds: float) -> set[str]:
    """The tests that fail without any fault too, and so tell nothing: each killer is run on the untouched copy."""
    killers = sorted({outcome.killer for outcome in outcomes} - {"", "time"})
    tests = [killer for killer in killers if not killer.startswith("exit ")]
    if not tests or not pytest(root, tests, seconds):
        return set()
    return {test for test in tests if pytest(root, [test], seconds)}


def main() -> int:
    """Run the measure; 1 if fewer than `--aim` of the faults were found, or a test fails without any."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="how many faults are drawn")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws others")
    parser.add_argument("--only", default="", help="only files whose path holds this text, such as functional/tails")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many run at a time")
    parser.add_argument("--seconds", type=float, default=240.0, help="for all tests of one fault")
    parser.add_argument("--aim", type=float, default=0.9, help="the share that should be found")
    options = parser.parse_args()
    chosen = sample(ROOT, options.count, options.seed, options.only)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        outcomes = judge_all(chosen, Path(name), options.workers, options.seconds)
        wrong = false_kills(outcomes, Path(name) / "0", options.seconds)
    if wrong:
        print(f"Tests that fail without a fault, so that what they found does not count: {', '.join(sorted(wrong))}")
    survivors = [outcome.mutant for outcome in outcomes if not outcome.killer]
    detected = sum(outcome.killer not in {"", *wrong} for outcome in outcomes)
    minutes = (time.monotonic() - start) / 60
    print(f"{detected} of {len(outcomes)} faults found in {minutes:.0f} minutes, seed {options.seed}.")
    for mutant in survivors:
        print(f"  {mutant}")
    return int(bool(wrong) or detected < options.aim * len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
