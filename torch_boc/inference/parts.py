"""A table that survives an interruption: finished parts in a folder beside it, joined at the end."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from torch import Tensor, nn, uint8

from ..tables import ParquetFile, require_pyarrow
from ..writing import replacing

# A part is closed after so many rows or seconds: all that is lost when the process is killed outright.
PART_ROWS, PART_SECONDS = 2**15, 60.0
KEY = "torch_boc"


def digest(tensors: Iterable[Tensor]) -> str:
    """A short text that differs when shapes, dtypes or values do."""
    state = hashlib.sha256()
    for x in tensors:
        state.update(f"{tuple(x.shape)} {x.dtype} ".encode())
        state.update(x.detach().cpu().contiguous().reshape(-1).view(uint8).numpy().tobytes())
    return state.hexdigest()[:16]


def digest_model(model: nn.Module) -> str:
    """A digest of the first few values of every weight, which training changes."""
    return digest(x.reshape(-1)[:8] for x in model.state_dict().values() if isinstance(x, Tensor))


def is_finished(path: str | os.PathLike[str], run: Mapping[str, object]) -> bool:
    """Whether the file at `path` is the result of this very run."""
    if not Path(path).exists():
        return False
    metadata = require_pyarrow().parquet.read_schema(path).metadata or {}
    return bool(metadata.get(KEY.encode()) == as_metadata(run)[KEY].encode())


def as_metadata(run: Mapping[str, object]) -> dict[str, str]:
    """The description of a run as metadata of its file."""
    return {KEY: json.dumps(run, sort_keys=True)}


class PartFiles:
    """Like `ParquetFile`, but an error leaves the finished rows in `{path}.parts`, and the next one goes on after them.

    Args:
        path: the final file, which appears when all is written.
        run: what must be the same for rows of two sessions to belong together.

    Attributes:
        rows: the number of rows so far, those of earlier sessions included.
    """

    def __init__(self, path: str | os.PathLike[str], run: Mapping[str, object]) -> None:
        self.path = Path(path)
        self.folder = self.path.with_name(f"{self.path.name}.parts")
        self.rows = 0
        self._run = dict(run)
        self._part: ParquetFile | None = None
        self._opened = 0.0

    def write(self, columns: Mapping[str, Tensor]) -> None:
        """Append one batch."""
        if self._part is None:
            self._part, self._opened = ParquetFile(self.folder / f"{self.rows:015d}.parquet"), time.monotonic()
        before = self._part.rows
        self._part.write(columns)
        self.rows += self._part.rows - before
        if self._part.rows >= PART_ROWS or time.monotonic() - self._opened >= PART_SECONDS:
            self._close_part()

    def __enter__(self) -> "PartFiles":
        record = self.folder / "run.json"
        if record.exists():
            self._check(json.loads(record.read_text()))
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(record) as temporary:
                temporary.write_text(json.dumps(self._run, indent=1))
        for part in self._finished():
            if int(part.stem) != self.rows:
                raise ValueError(f"expected a part from row {self.rows} on, got {part}; delete {self.folder}")
            self.rows += require_pyarrow().parquet.read_metadata(part).num_rows
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_part()
        if kind is None:
            self._join()

    def _check(self, earlier: Mapping[str, object]) -> None:
        keys = [key for key in {**self._run, **earlier} if self._run.get(key) != earlier.get(key)]
        if keys:
            before, now = ({key: run.get(key) for key in keys} for run in (earlier, self._run))
            raise ValueError(
                f"expected the run that left {self.folder}, with {before}, got one with {now}; a loader must give the "
                f"same samples in the same order (shuffle=False). To start over, delete that folder"
            )

    def _finished(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.parquet"))

    def _close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None

    def _join(self) -> None:
        with ParquetFile(self.path, as_metadata(self._run)) as whole:
            for part in self._finished():
                whole.write_table(require_pyarrow().parquet.read_table(part))
        shutil.rmtree(self.folder)
