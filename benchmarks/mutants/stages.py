"""Which tests are asked about a fault in which file: the nearest first, so that most faults are found in seconds."""

from pathlib import Path

# Folders of tests that go through a part of the package, beside the folder that mirrors it.
BEYOND = {
    "core": ["functional", "kernels"],
    "kernels": ["core", "functional"],
    "functional": ["metrics", "nn", "core", "kernels"],
    "data": ["evaluation", "nn", "inference", "cli"],
    "nn": ["inference"],
    "metrics": ["lightning", "transformers"],
    "inference": ["lightning"],
    "calibration": ["evaluation"],
    "report": ["cli", "benchmarks"],
    "evaluation": ["report", "cli", "benchmarks"],
    "zoo": ["cli", "benchmarks"],
    "experiments": ["cli"],
    "": ["metrics", "nn", "inference", "lightning", "transformers", "report"],
}


def stages(root: Path, path: Path) -> list[list[str]]:
    """Lists of arguments for pytest, one list after the other, for the file at `path` of the package."""
    part = path.parts[1] if len(path.parts) > 2 else ""
    folder = Path("tests") / part
    near = sorted(str(file.relative_to(root)) for file in (root / folder).glob(f"test_{path.stem}*.py"))
    whole = [str(folder)] if part else sorted(str(file.relative_to(root)) for file in (root / folder).glob("test_*.py"))
    beyond = [f"tests/{name}" for name in BEYOND.get(part, []) if (root / "tests" / name).exists()]
    return [stage for stage in ([str(path), *near], whole, beyond) if stage]
