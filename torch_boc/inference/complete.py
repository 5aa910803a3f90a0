"""Whether the folder that several processes wrote has every sample."""

import os
from collections.abc import Sequence
from pathlib import Path

from .._optional import require_pyarrow
from .manifest import part_name, part_ranges
from .runs import read_record


def check_complete(folder: str | os.PathLike[str]) -> int:
    """The number of samples in a folder that `BoCPredictor(..., shard=...)` wrote, or an error that names the gaps.

    The parts themselves say how many samples the data set has, so that a copy of the folder can be checked as well. All
    parts must be of one run, with the same columns and no row missing or doubled. Indices are counted, and not ids. The
    values are not read.
    """
    folder, arrow = Path(folder), require_pyarrow()
    parts = sorted(part_ranges(folder), key=lambda x: (x.start, x.stop))
    if not parts:
        raise ValueError(f"expected parts of a run in {folder}, got none; run the prediction that writes them")
    first, samples = None, 0
    for part in parts:
        path = folder / part_name(part)
        record = read_record(path, "delete it, and run the prediction again")
        found = record.settings, arrow.parquet.read_schema(path).remove_metadata()
        first = first or found
        if found != first:
            raise ValueError(
                f"expected parts of one run with the same columns in {folder}, got another in {path}; delete it"
            )
        if record.rows != len(part):
            raise ValueError(f"expected {len(part)} rows in {path}, got {record.rows}; delete it, and predict again")
        samples = int(str(record.settings["samples"]))
    _check_cover(folder, parts, samples)
    return samples


def _check_cover(folder: Path, parts: Sequence[range], samples: int) -> None:
    """Raise unless the parts have each sample once."""
    gaps, reached = [], 0
    for part in [*parts, range(samples, samples)]:
        if part.start < reached:
            doubled = f"{part.start} to {min(part.stop, reached) - 1}"
            raise ValueError(f"expected each sample once in {folder}, got {doubled} twice; start over")
        if part.start > reached:
            gaps.append(f"{reached} to {part.start - 1}")
        reached = part.stop
    if gaps:
        named = ", ".join(gaps[:5]) + (f" and {len(gaps) - 5} more ranges" if len(gaps) > 5 else "")
        raise ValueError(
            f"expected all {samples} samples in {folder}, got none of {named}; run the prediction again, with any "
            "number of processes: it does only what is missing"
        )
