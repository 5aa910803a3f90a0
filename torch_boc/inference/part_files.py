"""A table that a later run completes: the manifest of its run, part files, the lock of a single file.

`{path}.run` holds the manifest of a run, which says what must be the same in all sessions, and temporary files. Parts
are named by their samples, `part-FIRST-END.parquet`; they are written there and renamed, so that they appear whole.
Several processes write the parts of one folder, and no process waits for another: each part belongs to one of them. If
a job was started twice, both write the same rows, and the second rename replaces a part by its equal. The parts of a
single file are in `{path}.run` as well, and are joined at the end.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .._optional import require_pyarrow
from ..data.atomic import check_file, check_folder, replacing
from ..data.parquet import Column, ParquetFile
from ..nn.screening import SampleColumns

fcntl: Any = None  # on Windows, where nothing keeps a second run from the same path
if os.name == "posix":
    import fcntl

KEY = "torch_boc"  # of the settings in the metadata of Parquet files
NAME = re.compile(r"part-(\d{12,})-(\d{12,})\.parquet")
# A part of a single file is closed after this many rows or seconds. If the process is killed, the open part is lost.
PART_ROWS, PART_SECONDS = 2**15, 60.0
CHECKED_WORDS = 2**22  # how many 32-bit words are summed at once
Settings = Mapping[str, object]


def checksum(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """A checksum of the names, shapes, dtypes and bytes of tensors, made on their devices in one pass.

    Each tensor becomes the sum of x_j w_j modulo 2^64 over its 32-bit words x_j, with fixed odd weights w_j of 64 bits.

    >>> checksum(torch.nn.Linear(2, 1).state_dict().items()) == checksum(torch.nn.Linear(2, 1).state_dict().items())
    False
    """
    found: list[object] = []
    for name, x in tensors:
        try:
            found += [name] if is_lazy(x) else [name, tuple(x.shape), str(x.dtype), *_sums(x.detach())]
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(
                f"expected parameters whose bytes can be read, got {name} ({type(x).__name__}): {error}; give a "
                "run_id=, which stands for the model"
            ) from error
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def _sums(x: Any) -> list[int]:
    if is_traceable_wrapper_subclass(x):
        return [part for name in x.__tensor_flatten__()[0] for part in _sums(getattr(x, name))]
    x = x.dequantize() if x.is_quantized else x.to_dense()
    content = x.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    content = torch.nn.functional.pad(content, (0, -len(content) % 4))
    if content.storage_offset() % 4:
        content = content.clone()
    total = torch.zeros((), dtype=torch.int64, device=x.device)
    for start, words in enumerate(content.view(torch.int32).split(CHECKED_WORDS)):
        # Odd numbers that look random: the finalizer of splitmix64, with shifts that keep the sign.
        w = torch.arange(1, len(words) + 1, device=x.device).add_(start * CHECKED_WORDS).mul_(-7046029254386353131)
        w = (w ^ (w >> 30)) * -4658895280553007687
        w = (w ^ (w >> 27)) * -7723592293110705685
        total += (words * ((w ^ (w >> 31)) | 1)).sum()
    return [int(total)]


def probe_settings(probe: SampleColumns, columns: Iterable[str], dtype: torch.dtype | None) -> dict[str, object]:
    """What the values of a table depend on, beside the model and the samples."""
    settings: dict[str, object] = {"columns": list(columns), "trials": probe.trials, "dtype": str(dtype)}
    if probe.test is not None:
        settings |= {"test": checksum(probe.test.state_dict().items()), "alpha": probe.alpha}
    return settings


@contextmanager
def one_writer(path: Path) -> Iterator[None]:
    """Hold `{path}.lock` within the block. The system releases it when the process ends, whatever ends it."""
    lock = check_file(f"{path}.lock")
    if fcntl is None:
        yield
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The earlier holder may have deleted the file between the two lines above.
            is_held = lock.exists() and os.path.samestat(lock.stat(), os.fstat(file.fileno()))
        except BlockingIOError:
            is_held = False
        except OSError:  # a file system without locks
            is_held = True
        if not is_held:
            raise BlockingIOError(
                f"expected that nobody else writes {path}, got another run, which holds {lock}; wait for it, or choose "
                "another path"
            )
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def metadata_of(settings: Settings) -> dict[str, str]:
    """The settings of a run, for the metadata of a Parquet file."""
    return {KEY: json.dumps(settings, sort_keys=True)}


def read_settings(path: Path, remedy: str) -> tuple[Settings, int]:
    """The settings of the run that wrote a Parquet file, and its number of rows."""
    arrow = require_pyarrow()
    try:
        metadata = arrow.parquet.read_metadata(path)
        return dict(json.loads((metadata.metadata or {})[KEY.encode()])), metadata.num_rows
    except (OSError, arrow.ArrowException) as error:
        raise ValueError(f"expected a whole Parquet file, got {path} ({error}). {remedy}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected a file that says which run wrote it, got {path}. {remedy}") from error


def check_settings(now: Settings, earlier: Settings, where: object, remedy: str) -> None:
    """Raise if the settings are not those of an earlier session, and say what differs."""
    names = [name for name in {**earlier, **now} if now.get(name) != earlier.get(name)]
    if names:
        before, here = (", ".join(f"{name}={run.get(name)!r}" for name in names) for run in (earlier, now))
        raise ValueError(f"expected the run that wrote {where}, with {before}, got one with {here}. {remedy}")


def is_finished(path: Path, settings: Settings) -> bool:
    """Whether this run has written the file already. A file of another run is an error."""
    if not path.exists():
        return False
    remedy = "To replace the file, leave resume=True out, or delete it"
    check_settings(settings, read_settings(path, remedy)[0], path, remedy)
    return True


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
    found = []
    for path in folder.rglob("*.parquet"):
        inside = path.relative_to(folder)
        if not any(part.startswith((".", "_")) for part in inside.parts):
            match = NAME.fullmatch(str(inside))
            if match is None:
                raise ValueError(f"expected parts of a run only in {folder}, got {inside}; choose another folder")
            found.append(range(int(match[1]), int(match[2])))
    return sorted(found, key=lambda x: (x.start, x.stop))


class RunFolder:
    """The parts of a run and its manifest. A manifest with other settings is an error.

    Args:
        path: the folder of a table that several processes write, or the path of a single file.
        settings: what must be the same for rows of two sessions to belong together.
        block: how many samples each part has if the run is new, for a folder; None for a single file.

    Attributes:
        block: the same, as the manifest has it: it was chosen when the run began.
    """

    def __init__(self, path: Path, settings: Settings, block: int | None = None) -> None:
        whole = path.absolute()  # "." has no name of its own
        self.path, self.scratch = path, whole.with_name(f"{whole.name}.run")
        self.parts = self.scratch if block is None else check_folder(path)
        self.settings, self.block = settings, block
        manifest = check_folder(self.scratch, ["manifest.json"]) / "manifest.json"
        found = part_ranges(self.parts)  # before the manifest: the manifest of these parts is there by now
        if found and not manifest.exists():
            raise ValueError(f"expected {manifest} beside the parts in {self.parts}, got none. {self.remedy}")
        if not manifest.exists():  # the processes of one launch write the same
            with replacing(manifest) as temporary:
                temporary.write_text(json.dumps({"settings": settings, "block": block}, indent=1))
        try:
            record = json.loads(manifest.read_text())
            earlier, self.block = dict(record["settings"]), record["block"]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"expected the manifest of a run, got {manifest}, damaged. {self.remedy}") from error
        check_settings(settings, earlier, path, self.remedy)

    @property
    def remedy(self) -> str:
        """What to do to start over."""
        return f"To start over, delete {'' if self.block is None else f'{self.path} and '}{self.scratch}"

    def count_rows(self) -> int:
        """How many rows the parts of a single file have, which must follow each other from row 0 on."""
        rows = 0
        for part in part_ranges(self.parts):
            if part.start != rows:
                raise ValueError(f"expected a part from row {rows} on in {self.parts}, got {part}. {self.remedy}")
            rows = part.stop
        return rows

    def join(self) -> None:
        """Join the parts to a single file, and delete them."""
        arrow = require_pyarrow()
        with ParquetFile(self.path, metadata_of(self.settings)) as whole:
            for part in part_ranges(self.parts):
                path = self.parts / part_name(part)
                try:
                    table = arrow.parquet.read_table(path, page_checksum_verification=True)
                except (OSError, arrow.ArrowException) as error:
                    raise ValueError(f"expected a whole part, got {path} ({error}). {self.remedy}") from error
                if len(table) != len(part):
                    raise ValueError(f"expected {len(part)} rows in {path}, got {len(table)}. {self.remedy}")
                whole.write_table(table)
        shutil.rmtree(self.scratch)


class PartWriter:
    """Writes rows as parts.

    The parts of a folder are given blocks, and a part gets its name when the last of its rows is there; after an error,
    the open part is deleted. The parts of a single file follow each other. After an error or Ctrl-C, the open part is
    closed with the rows that it has.

    Args:
        folder: the run.
        blocks: the samples of the parts of a folder; None for a single file.

    Attributes:
        rows: how many rows a single file has, those of earlier sessions included.
    """

    def __init__(self, folder: RunFolder, blocks: Iterable[range] | None = None) -> None:
        self.rows = folder.count_rows() if blocks is None else 0
        self._folder, self._blocks = folder, None if blocks is None else iter(blocks)
        self._part: ParquetFile | None = None
        self._start, self._most, self._opened, self._is_whole = 0, 0, 0.0, True

    def write(self, columns: Mapping[str, Column]) -> None:
        """Append the rows of one batch, which does not go over the end of a block."""
        if self._part is None:
            block = range(self.rows, self.rows + PART_ROWS) if self._blocks is None else next(self._blocks)
            self._start, self._most, self._opened = block.start, len(block), time.monotonic()
            path, scratch = self._folder.parts / part_name(block), self._folder.scratch
            self._part = ParquetFile(path, metadata_of(self._folder.settings), scratch=scratch)
        self._is_whole = False  # Ctrl-C may come between two lines
        self._part.write(columns)
        self.rows = self._start + self._part.rows
        self._is_whole = True
        late = self._blocks is None and time.monotonic() - self._opened >= PART_SECONDS
        if self._part.rows >= self._most or late:
            self._close()

    def _close(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.path = self._folder.parts / part_name(range(self._start, self.rows))
            part.close()

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._blocks is None and self._is_whole:
            self._close()
        elif self._part is not None:
            self._part.discard()
        if kind is None and self._blocks is not None and (self._part or next(self._blocks, None) is not None):
            raise ValueError(f"expected the rows of all blocks for {self._folder.path}, got fewer; predict again")


def check_complete(folder: str | os.PathLike[str]) -> int:
    """The number of samples in a folder that `BoCPredictor(..., shard=...)` wrote, or an error that names the gaps.

    The parts themselves say how many samples the data set has, so that a copy of the folder can be checked as well. All
    parts must be of one run, with the same columns and no row missing or doubled. Indices are counted, and not ids. The
    values are not read.
    """
    folder, arrow = Path(folder), require_pyarrow()
    parts = part_ranges(folder)
    if not parts:
        raise ValueError(f"expected parts of a run in {folder}, got none; run the prediction that writes them")
    remedy, reached, samples = "Delete it, and predict again", 0, 0
    first: tuple[Settings, Any] | None = None
    gaps: list[str] = []
    for part in parts:
        path = folder / part_name(part)
        settings, rows = read_settings(path, remedy)
        found = settings, arrow.parquet.read_schema(path).remove_metadata()
        first, samples = first or found, int(str(settings["samples"]))
        if found != first:
            raise ValueError(f"expected parts of one run with the same columns in {folder}, got another in {path}")
        if rows != len(part):
            raise ValueError(f"expected {len(part)} rows in {path}, got {rows}. {remedy}")
        if part.start < reached:
            raise ValueError(f"expected each sample once in {folder}, got {part.start} and others twice; start over")
        gaps += [f"{reached} to {part.start - 1}"] if part.start > reached else []
        reached = part.stop
    gaps += [f"{reached} to {samples - 1}"] if reached < samples else []
    if gaps:
        named = ", ".join(gaps[:5]) + (f" and {len(gaps) - 5} more ranges" if len(gaps) > 5 else "")
        raise ValueError(
            f"expected all {samples} samples in {folder}, got none of {named}; run the prediction again, with any "
            "number of processes: it does only what is missing"
        )
    return samples
