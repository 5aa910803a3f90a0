"""A table that a later run completes: the manifest of its run, part files, the lock of a single file.

`{path}.run` holds the manifest of a run, which says what must be the same in all sessions, and temporary files. Parts
are named by their samples, `part-FIRST-END.parquet`; they are written there and renamed, and appear whole.
Several processes write the parts of one folder, and no process waits for another: each part belongs to one of them. If
a job was started twice, both write the same rows, and the second rename replaces a part by its equal. The parts of a
single file are in `{path}.run` as well, and are joined at the end.
"""

import hashlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .._optional import require_pyarrow
from ..data.atomic import check_folder, lock, write
from ..data.parquet import Column, ParquetFile, stored_classes

KEY = "torch_boc"  # of the settings in the metadata of Parquet files
NAME = re.compile(r"part-(\d{12,})-(\d{12,})\.parquet")
DELETE = "Delete it, and predict again"
# A part of a single file is closed after this many rows or seconds. After an interruption, the open part is lost.
PART_ROWS, PART_SECONDS = 2**15, 60.0
HASHING_THREADS = 4  # of which each copies a tensor to the host
Settings = Mapping[str, object]
Table = tuple[dict[str, Column], int | None]  # columns, and the number of classes if it is known


def checksum(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """A checksum of the names, shapes, dtypes and bytes of tensors.

    >>> checksum(torch.nn.Linear(2, 1).state_dict().items()) == checksum(torch.nn.Linear(2, 1).state_dict().items())
    False
    """
    parts = list[tuple[str, Any]](tensors)
    for name, x in parts:  # the list grows in the loop
        if is_traceable_wrapper_subclass(x):
            parts += [(f"{name}.{inner}", getattr(x, inner)) for inner in x.__tensor_flatten__()[0]]
    with ThreadPoolExecutor(HASHING_THREADS) as pool:
        return hashlib.sha256(b"".join(pool.map(_digest, parts))).hexdigest()[:16]


def _digest(part: tuple[str, Any]) -> bytes:
    name, x = part
    digest = hashlib.sha256(repr((name, tuple(x.shape), x.dtype)).encode())
    if not is_traceable_wrapper_subclass(x):
        x = x.detach().dequantize() if x.is_quantized else x.detach().to_dense()
        content = x.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        digest.update(content.view(torch.uint8).numpy())
    return digest.digest()


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold `{path}.lock` within the block. The system releases it when the process ends, whatever ends it."""
    held = Path(f"{path}.lock")
    held.parent.mkdir(parents=True, exist_ok=True)
    with held.open("a") as file:
        if lock(file, held) is False:
            got = f"another run, which holds {held}; wait for it"
            raise BlockingIOError(f"expected that nobody else writes {path}, got {got}")
        try:
            yield
        finally:
            held.unlink(missing_ok=True)


def metadata_of(settings: Settings) -> dict[str, str]:
    """The settings of a run, for the metadata of a Parquet file."""
    return {KEY: json.dumps(settings)}


def read_settings(path: Path, rows: int | None, remedy: str, *, checksums: bool = True) -> tuple[Settings, Any]:
    """The settings and the schema of a Parquet file of a run; an error if a page or the number of rows is wrong."""
    arrow = require_pyarrow()
    try:
        with path.open("rb") as stream, arrow.parquet.ParquetFile(stream, page_checksum_verification=True) as file:
            counted = sum(map(len, file.iter_batches())) if checksums else file.metadata.num_rows
            settings = dict(json.loads((file.metadata.metadata or {})[KEY.encode()]))
            schema = file.schema_arrow.remove_metadata()
    except (OSError, arrow.ArrowException) as error:
        raise ValueError(f"expected a whole Parquet file, got {path} ({error}). {remedy}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected a file that says which run wrote it, got {path}. {remedy}") from error
    if rows not in (None, counted):
        raise ValueError(f"expected {rows} rows in {path}, got {counted}. {remedy}")
    return settings, schema


def check_settings(now: Settings, earlier: Settings, where: object, remedy: str) -> None:
    """Raise if the settings are not those of an earlier session, and say what differs."""
    names = [name for name in {**earlier, **now} if now.get(name) != earlier.get(name)]
    if names:
        before, here = (", ".join(f"{name}={run.get(name)!r}" for name in names) for run in (earlier, now))
        raise ValueError(f"expected the run that wrote {where}, with {before}, got one with {here}. {remedy}")


def part_name(block: range) -> str:
    """The name of the part with these samples; names sort as the samples do.

    >>> part_name(range(128, 192))
    'part-000000000128-000000000192.parquet'
    """
    return f"part-{block.start:012d}-{block.stop:012d}.parquet"


def part_ranges(folder: Path) -> list[range]:
    """The samples of each part, by its name, in order.

    Other Parquet files in the folder or in folders inside of it would be read as rows of the table, so they are an
    error. Readers skip names that begin with a dot or an underscore.
    """
    ranges = []
    for path in folder.rglob("*.parquet"):
        inside = path.relative_to(folder)
        if not any(part.startswith((".", "_")) for part in inside.parts):
            match = NAME.fullmatch(str(inside))
            if match is None:
                raise ValueError(f"expected parts of a run only in {folder}, got {inside}; choose another folder")
            ranges.append(range(int(match[1]), int(match[2])))
    return sorted(ranges, key=lambda x: (x.start, x.stop))


class RunFolder:
    """The parts of a run and its manifest. A manifest with other settings is an error.

    Args:
        path: the folder of a table that several processes write, or the path of a single file.
        settings: what must be the same for rows of two sessions to belong together.
        block: how many samples each part has if the run is new, for a folder; None for a single file.

    Attributes:
        block: the same, as the manifest has it: it was chosen when the run began.
        done: the samples of each part that was there when this session began.
        rows: how many rows the parts of a single file have.
    """

    def __init__(self, path: Path, settings: Settings, block: int | None = None) -> None:
        self.path, self.scratch = path, scratch_folder(path)
        self.parts = self.scratch if block is None else check_folder(path)
        self.settings, self.rows = settings, 0
        self.remedy = f"To start over, delete {'' if block is None else f'{path} and '}{self.scratch}"
        manifest = check_folder(self.scratch, ["manifest.json"]) / "manifest.json"
        self.done = part_ranges(self.parts)  # before the manifest: the manifest of these parts is there by now
        if not manifest.exists():  # the processes of one launch write the same
            if self.done:
                raise ValueError(f"expected {manifest} next to the parts in {self.parts}, got none. {self.remedy}")
            write(manifest, json.dumps({"settings": settings, "block": block}, indent=1).encode())
        try:
            record = json.loads(manifest.read_text())
            earlier, self.block = dict(record["settings"]), record["block"]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"expected the manifest of a run, got {manifest}, damaged. {self.remedy}") from error
        check_settings(settings, earlier, path, self.remedy)
        for part in self.done if block is None else ():
            if part.start != self.rows:
                raise ValueError(f"expected a part from row {self.rows} on in {self.parts}, got {part}. {self.remedy}")
            self.rows = part.stop

    @property
    def part_rows(self) -> int:
        """How many rows a part has at most."""
        return self.block or PART_ROWS

    def has(self, block: range) -> bool:
        """Whether the part of this block is there. If it is damaged, that is an error."""
        return block in self.done and bool(read_settings(self.parts / part_name(block), len(block), DELETE))

    def write(self, tables: Iterator[Table], blocks: Iterable[range] | None = None) -> None:
        """Write tables as parts. A part gets its name when the last of its rows is there; after an error it is deleted.

        Args:
            tables: columns and the number of classes; no table crosses the end of a block.
            blocks: the samples of the parts of a folder. The parts of a single file follow each other.
        """
        self.parts.mkdir(parents=True, exist_ok=True)
        following = iter(lambda: range(self.rows, self.rows + self.part_rows), None)
        for block in following if blocks is None else blocks:
            with ParquetFile(self.scratch / part_name(block), metadata_of(self.settings)) as part:
                late = time.monotonic() + (PART_SECONDS if blocks is None else math.inf)
                for columns, num_classes in tables:
                    part.write(columns, num_classes)
                    if part.rows >= len(block) or time.monotonic() >= late:
                        break
                part.path = self.parts / part_name(range(block.start, block.start + part.rows))
            if blocks is None and not part.rows:
                return
            self.rows += part.rows

    def join(self) -> None:
        """Join the parts to a single file, and delete them."""
        with ParquetFile(self.path, metadata_of(self.settings)) as whole:
            for part in part_ranges(self.parts):
                path = self.parts / part_name(part)
                read_settings(path, len(part), self.remedy)
                with path.open("rb") as stream:  # Arrow would refuse a path that is not UTF-8
                    table = require_pyarrow().parquet.read_table(stream)
                columns = dict(zip(table.column_names, table.columns, strict=True))
                whole.write(columns, stored_classes(table.schema.metadata))
        remove_parts(self.path)


def scratch_folder(path: Path) -> Path:
    """Where the manifest of a run and its unfinished files are."""
    whole = path.absolute()  # "." has no name of its own
    return whole.with_name(f"{whole.name}.run")


def remove_parts(path: Path) -> None:
    """Delete the parts and the manifest of a run whose single file is complete, if there are any."""
    if (scratch_folder(path) / "manifest.json").exists():
        shutil.rmtree(scratch_folder(path))


def check_complete(folder: str | os.PathLike[str], *, checksums: bool = True) -> int:
    """The number of samples in a folder that `BoCPredictor(..., shard=...)` wrote, or an error that names the gaps.

    The parts themselves say how many samples the dataset has: a copy of the folder can be checked as well. All parts
    must be of one run, with the same columns and no row missing or doubled. Indices are counted, and not ids.

    Args:
        folder: the folder.
        checksums: whether to read all rows and compare the checksums of their pages.
    """
    folder, gaps, reached = check_folder(folder, ()), list[str](), 0
    parts = part_ranges(folder)
    if not parts:
        raise ValueError(f"expected parts of a run in {folder}, got none; run the prediction that writes them")
    first = read_settings(folder / part_name(parts[0]), None, DELETE, checksums=False)
    samples = int(str(first[0]["samples"]))
    for part in (*parts, range(samples, samples)):
        path = folder / part_name(part)
        if part and read_settings(path, len(part), DELETE, checksums=checksums) != first:
            raise ValueError(f"expected parts of one run with the same columns in {folder}, got another in {path}")
        if part.start < reached:
            raise ValueError(f"expected each sample once in {folder}, got {part.start} and others twice; start over")
        gaps += [f"{reached} to {part.start - 1}"] if part.start > reached else []
        reached = part.stop
    if gaps:
        named = ", ".join(gaps[:5]) + (f" and {len(gaps) - 5} more ranges" if len(gaps) > 5 else "")
        remedy = "run the prediction again, with any number of processes: it does only what is missing"
        raise ValueError(f"expected all {samples} samples in {folder}, got none of {named}; {remedy}")
    return samples
