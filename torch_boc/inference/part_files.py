"""A table that survives an interruption: finished parts in a folder beside it, joined at the end."""

import json
import os
import shutil
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from torch import Tensor

from .._optional import require_pyarrow
from ..data.atomic import check_file, replacing
from ..data.parquet import Column, ParquetFile
from .passing import Passed, Passing
from .runs import Run, compare_samples, lock_of, read_record

# A part is closed after this many rows or seconds. If the process is killed, only the open part is lost.
PART_ROWS, PART_SECONDS = 2**15, 60.0


class Part(NamedTuple):
    """A finished part."""

    path: Path
    start: int
    stop: int
    passed: Passed


class PartFiles:
    """Like `RunFile`, but after an error the finished rows stay in `{path}.parts`, and the next run continues there.

    It holds the lock `{path}.lock` while it is open.

    Args:
        path: the final file, which appears when all is written.
        run: what must be the same for rows of two sessions to belong together.

    Attributes:
        rows: the number of rows so far, those of earlier sessions included.
    """

    def __init__(self, path: str | os.PathLike[str], run: Run) -> None:
        self.path = Path(path)
        self.folder = self.path.with_name(f"{self.path.name}.parts")
        check_file(self.folder / "run.json")
        self.rows = 0
        self._run, self._passing = run, Passing()
        self._lock = lock_of(self.path)
        self._earlier: deque[Part] = deque()
        self._part: ParquetFile | None = None
        self._opened = 0.0

    def pass_over(self, marks: Tensor) -> None:
        """Compare samples with those that the finished parts were made from; raise if they differ."""
        while len(marks):
            part = self._earlier[0]
            taken = part.stop - self._passing.rows
            self._passing.add(marks[:taken])
            marks = marks[taken:]
            if self._passing.rows == part.stop:
                compare_samples(
                    f"rows {part.start} to {part.stop} in {part.path}",
                    part.passed,
                    self._passing.so_far(),
                    self._remedy,
                )
                self._earlier.popleft()

    def write(self, columns: Mapping[str, Column], marks: Tensor | None = None) -> None:
        """Append one batch."""
        if self._part is None:
            self._part, self._opened = ParquetFile(self.folder / f"{self.rows:015d}.parquet"), time.monotonic()
        before = self._part.rows
        self._part.write(columns)
        self.rows += self._part.rows - before
        if marks is not None:
            self._passing.add(marks)
        if self._part.rows >= PART_ROWS or time.monotonic() - self._opened >= PART_SECONDS:
            self._close_part()

    def __enter__(self) -> "PartFiles":
        self._lock.__enter__()
        try:
            self._open()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._close_part()
            if kind is None:
                self._join()
        finally:
            self._lock.__exit__(kind, error, trace)

    def _open(self) -> None:
        record, found = self.folder / "run.json", self._finished()
        if record.exists():
            self._run.check(read_run(record, self.folder), f"that left {self.folder}", self._remedy)
        elif found:
            raise ValueError(f"expected {record} beside the parts, got none. {self._remedy}")
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(record) as temporary:
                temporary.write_text(json.dumps(self._run.settings, indent=1))
        self._earlier = deque(self._read_parts())
        self.rows = self._earlier[-1].stop if self._earlier else 0

    @property
    def _remedy(self) -> str:
        return f"To start over, delete {self.folder}"

    def _finished(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.parquet"))

    def _read_parts(self) -> list[Part]:
        """The finished parts, which must follow each other from row 0 on."""
        parts: list[Part] = []
        for path in self._finished():
            start = parts[-1].stop if parts else 0
            if path.stem != f"{start:015d}":
                raise ValueError(f"expected a part from row {start} on, got {path}. {self._remedy}")
            remedy = f"delete it and the parts after it to keep the rows before, or {self.folder} to start over"
            record = read_record(path, remedy)
            self._run.check(record.settings, f"that wrote {path}", self._remedy)
            if record.rows != record.passed.rows - start:
                raise ValueError(
                    f"expected rows {start} to {record.passed.rows} in {path}, got {record.rows} rows; {remedy}"
                )
            parts.append(Part(path, start, record.passed.rows, record.passed))
        return parts

    def _close_part(self) -> None:
        """Give the part its name if its rows and its record agree. After an interruption they may not."""
        part, self._part = self._part, None
        if part is None:
            return
        try:
            self._lock.check()
        except BaseException:
            part.discard()
            raise
        stop = int(part.path.stem) + part.rows
        if stop == self.rows and (not self._run.tracked or self._passing.rows == stop):
            part.annotate(self._record())
            part.close()
        else:
            part.discard()

    def _record(self) -> dict[str, str]:
        return self._run.metadata(self._passing.so_far()._replace(rows=self.rows))

    def _join(self) -> None:
        """Join the parts to one file, if none is missing."""
        parts = self._read_parts()
        rows = parts[-1].stop if parts else 0
        if rows != self.rows:
            raise ValueError(f"expected parts of {self.rows} rows in {self.folder}, got {rows}. {self._remedy}")
        with ParquetFile(self.path) as whole:
            for part in parts:
                whole.write_table(self._read(part))
            self._lock.check()
            whole.annotate(self._record())
        shutil.rmtree(self.folder)

    def _read(self, part: Part) -> Any:
        arrow = require_pyarrow()
        try:
            return arrow.parquet.read_table(part.path, page_checksum_verification=True)
        except (OSError, arrow.ArrowException) as error:
            raise ValueError(f"expected a whole part, got {part.path} ({error}). {self._remedy}") from error


def read_run(record: Path, folder: Path) -> Mapping[str, object]:
    """The settings of the run that left `folder`."""
    with suppress(ValueError):
        settings = json.loads(record.read_text())
        if isinstance(settings, dict):
            return settings
    raise ValueError(f"expected the settings of a run, got {record}, which is damaged; to start over, delete {folder}")
