"""Which tests are asked about a fault in which file: the nearest first, so that most faults are found in seconds."""

from pathlib import Path

# Folders of tests that go through a part of the package, beside the folder that mirrors it.
BEYOND = {
    "functional": ["metrics", "nn", "kernels"],
    "kernels": ["functional"],
    "metrics": ["lightning", "hf"],
    "nn": ["inference"],
    "inference": ["lightning"],
    "calibration": ["evaluation"],
    "evaluation": ["cli", "benchmarks"],
    "zoo": ["cli", "benchmarks"],
    "experiments": ["cli"],
    "": ["metrics", "nn", "inference", "lightning", "hf"],
}
MIRRORS = {"transformers": "hf"}


def stages(root: Path, path: Path) -> list[list[str]]:
    """Lists of arguments for pytest, one list after the other, for the file at `path` of the package."""
    part = path.parts[1] if len(path.parts) > 2 else ""
    folder = Path("tests") / MIRRORS.get(part, part)
    near = sorted(str(file.relative_to(root)) for file in (root / folder).glob(f"test_{path.stem}*.py"))
    whole = [str(folder)] if part else sorted(str(file.relative_to(root)) for file in (root / folder).glob("test_*.py"))
    beyond = [f"tests/{name}" for name in BEYOND.get(part, []) if (root / "tests" / name).exists()]
    return [stage for stage in ([str(path), *near], whole, beyond) if stage]
