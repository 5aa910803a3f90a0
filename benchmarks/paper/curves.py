"""Training curves: `python -m benchmarks.paper.curves RUN/metrics.csv NAME` writes results/training/NAME.csv.

Of the metrics that Lightning's CSVLogger wrote, the rows at the end of an epoch and their validation columns are kept.
A run that was interrupted has several files: give all of them, oldest first; of an epoch the last row counts.
"""

import argparse
import csv
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.harness import RESULTS
from torch_boc.data.atomic import replacing

TRAINING = RESULTS / "training"
PREFIX = "val/"
GAP = "val/boc/gap"
DIGITS = 6
Curve = list[dict[str, float]]


def epochs(rows: Iterable[Mapping[str, str]]) -> Curve:
    """One row an epoch, in order, with the columns of validation."""
    found = {}
    for row in rows:
        if row.get(GAP):
            values = {
                key: round(float(value), DIGITS) for key, value in row.items() if key.startswith(PREFIX) and value
            }
            found[int(row["epoch"])] = {"epoch": int(row["epoch"]), **values}
    return [found[epoch] for epoch in sorted(found)]


def convert(sources: Sequence[Path], path: Path) -> None:
    """Write the epochs of a run to `path`."""
    lines: list[dict[str, str]] = []
    for source in sources:
        with source.open(newline="", encoding="utf-8") as file:
            lines += csv.DictReader(file)
    curve = epochs(lines)
    if not curve:
        raise ValueError(
            f"expected rows with {GAP}, got none in {', '.join(map(str, sources))}; was BoCCallback there?"
        )
    columns = dict.fromkeys(column for row in curve for column in row)
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(curve)


def read_curves(folder: Path = TRAINING, *, names: Container[str] | None = None) -> dict[str, Curve]:
    """The committed curves by name, or those among `names`; none if there is no folder."""
    found = {}
    for path in sorted(folder.glob("*.csv")):
        if names is not None and path.stem not in names:
            continue
        with path.open(newline="", encoding="utf-8") as file:
            found[path.stem] = epochs(csv.DictReader(file))
    return found


def ood_of(curve: Curve) -> str | None:
    """The name of the OOD set whose gap was logged beside, if there was one."""
    parts = (key.split("/") for key in curve[-1])
    return next((part[2] for part in parts if len(part) == 4 and part[3] == "gap"), None)


def main() -> None:
    """Convert one run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("metrics", type=Path, nargs="+", help="metrics.csv of the run, several if it was resumed")
    parser.add_argument("name", help="of the entry in the zoo, such as vit-cifar10")
    parser.add_argument("--out", type=Path, default=TRAINING)
    args = parser.parse_args()
    convert(args.metrics, args.out / f"{args.name}.csv")
    print(f"wrote {args.out / args.name}.csv")


if __name__ == "__main__":
    main()
