"""The record of a run, and Parquet files that hold the record of the run that wrote them."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from torch import Tensor

from .._optional import require_pyarrow
from ..data.parquet import Column, ParquetFile
from .lock import Lock
from .passing import Passed, Passing

KEY = "torch_boc"
LONGEST_PLAIN = 200  # bytes of a name that has room for the endings of locks
SAME = (
    "a loader must give the same samples in the same order (shuffle=False, no random augmentation). If you give a "
    "run_id=, samples and model are not compared"
)

ATTRIBUTES = (
    "The attributes are the numbers, texts and tensors that modules hold, and the hooks of the forward; if the forward "
    "itself changes them, load the model again or give a run_id= of your own"
)

SPREAD_SAMPLES = "samples from all over the data set"  # a setting of runs of several processes
HINTS = {
    SPREAD_SAMPLES: "The data set must have the same order in every process (sort lists of files), without random "
    "augmentation. If you give a run_id=, samples and model are not compared",
    "attributes of the model": ATTRIBUTES,
}


class Record(NamedTuple):
    """What a file says of the run that wrote it."""

    settings: Mapping[str, object]
    passed: Passed
    rows: int


@dataclass(frozen=True)
class Run:
    """What must be the same for rows of two sessions to belong together.

    Attributes:
        settings: those of the predictor, and what is known of the model and the loader in advance.
        tracked: whether the samples are compared too, while they are read.
    """

    settings: Mapping[str, object]
    tracked: bool

    def metadata(self, passed: Passed) -> dict[str, str]:
        """The record for the metadata of a Parquet file."""
        return {KEY: json.dumps({"run": self.settings, "samples": passed._asdict()}, sort_keys=True)}

    def check(self, earlier: Mapping[str, object], whose: str, remedy: str) -> None:
        """Raise if the settings are not those of an earlier session."""
        keys = [key for key in {**self.settings, **earlier} if self.settings.get(key) != earlier.get(key)]
        if keys:
            before, now = ({key: run.get(key) for key in keys} for run in (earlier, self.settings))
            hint = "".join(f" {HINTS[key]}." for key in keys if key in HINTS)
            raise ValueError(f"expected the run {whose}, with {before}, got one with {now}.{hint} {remedy}")


def compare_samples(what: str, then: Passed, now: Passed, remedy: str) -> None:
    """Raise if the samples are not those of the earlier session."""
    names = [name for name in Passed._fields if getattr(then, name) != getattr(now, name)]
    if names:
        told = f"{now.rows} samples" if "rows" in names else " and ".join(f"different {name}" for name in names)
        raise ValueError(f"expected the {then.rows} samples of {what}, got {told}; {SAME}. {remedy}")


def read_record(path: Path, remedy: str) -> Record:
    """The record in a Parquet file that a run wrote."""
    arrow = require_pyarrow()
    try:
        metadata = arrow.parquet.read_metadata(path)
        record = json.loads((metadata.metadata or {})[KEY.encode()])
        found = Record(dict(record["run"]), Passed(**record["samples"]), metadata.num_rows)
    except (OSError, arrow.ArrowException) as error:
        raise ValueError(f"expected a whole Parquet file, got {path} ({error}); {remedy}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected a file that says which run wrote it, got {path}; {remedy}") from error
    return found


def lock_of(path: Path) -> Lock:
    """The lock of a table, which is held while the table is written."""
    encoded = os.fsencode(path.name)
    name = path.name if len(encoded) <= LONGEST_PLAIN else hashlib.sha256(encoded).hexdigest()
    return Lock(path.with_name(f"{name}.lock"), f"writes {path}")


class RunFile:
    """A `ParquetFile` that records the run and the samples that it was made from.

    It holds the lock `{path}.lock` while it is open, so that two processes do not replace each other's file in silence.

    Attributes:
        rows: the number of rows so far.
    """

    def __init__(self, path: str | os.PathLike[str], run: Run) -> None:
        self._file, self._run, self._passing = ParquetFile(path), run, Passing()
        self._lock = lock_of(self._file.path)

    @property
    def rows(self) -> int:
        return self._file.rows

    def write(self, columns: Mapping[str, Column], marks: Tensor | None = None) -> None:
        """Append one batch."""
        self._file.write(columns)
        if marks is not None:
            self._passing.add(marks)

    def __enter__(self) -> "RunFile":
        self._lock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                self._file.discard()
                return
            with self._file:
                self._file.annotate(self._run.metadata(self._passing.so_far()._replace(rows=self.rows)))
                self._lock.check()
        finally:
            self._lock.__exit__(kind, error, trace)
