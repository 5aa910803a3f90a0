"""A folder of Parquet files that several processes write, each block of samples a file of its own.

No process waits for another, and none holds a lock. Which blocks there are is written down once, in the manifest: it is
created by linking a finished file to its name, so that one process creates it and all others read the same. Which
blocks are done is told by the names of the parts, which appear whole. If two processes predict the same block, because
a job was started twice, both write the same rows, and the second rename replaces the first part by its equal.
"""

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from torch import Tensor

from ..data.atomic import check_folder
from ..data.parquet import Column, ParquetFile
from .manifest import Manifest, create_manifest, part_name, part_ranges, read_manifest
from .passing import Passing
from .runs import Run, compare_samples, read_record
from .shards import cut


class ShardFolder:
    """The folder of a run. `{path}.run`, beside it, has the manifest and the temporary files of parts.

    Args:
        path: the folder, which has nothing but finished parts, so that any reader of Parquet takes it as one table.
        run: what must be the same for rows of two sessions to belong together.
        samples: how many samples the data set has.
        block: the size of a block if the run is new; otherwise that of the manifest is kept.

    Attributes:
        blocks: the indices of the samples of each block.
    """

    def __init__(self, path: str | os.PathLike[str], run: Run, samples: int, block: int) -> None:
        self.path = check_folder(path)
        whole = self.path.absolute()  # "." has no name of its own
        self.scratch = whole.with_name(f"{whole.name}.run")
        check_folder(self.scratch, ["manifest.json"])
        self._run = run
        parts = list(part_ranges(self.path))  # before the manifest: the manifest of these parts is there by now
        if parts and not self._record.exists():
            raise ValueError(f"expected {self._record} beside the parts in {self.path}, got none. {self.remedy}")
        create_manifest(self._record, Manifest(run.settings, samples, block, secrets.token_hex(8)))
        self._manifest = read_manifest(self._record, self.remedy)
        run.check(self._manifest.run, f"that writes {self.path}", self.remedy)
        self.blocks = cut(samples, self._manifest.block)
        self._check_names(parts)

    @property
    def remedy(self) -> str:
        """What to do to start over."""
        return f"To start over, delete {self.path} and {self.scratch}"

    def done(self) -> list[range]:
        """The blocks that have their part, in order."""
        found = {block.start for block in part_ranges(self.path)}
        return [block for block in self.blocks if block.start in found]

    def part(self, block: range) -> Path:
        """The file of a block."""
        return self.path / part_name(block)

    def check_done(self, blocks: Sequence[range], marks: Iterable[Tensor] | None) -> None:
        """Raise if parts are damaged or of another run, or, with marks, if they were made from other samples.

        Args:
            blocks: the blocks of these parts.
            marks: those of all samples of these blocks, in batches that do not go over the end of a block.
        """
        for block in blocks:
            self._check_part(block)
        if marks is None:
            return
        left, passing = iter(blocks), Passing()
        block = next(left, range(0))
        for some in marks:
            passing.add(some)
            if passing.rows == len(block):
                path = self.part(block)
                compare_samples(str(path), read_record(path, self.remedy).passed, passing.so_far(), self.remedy)
                block, passing = next(left, range(0)), Passing()

    def check_manifest(self) -> None:
        """Raise if the run was deleted or begun anew by others; to be called before a part gets its name."""
        if not self._record.exists() or read_manifest(self._record, self.remedy) != self._manifest:
            raise ValueError(f"expected {self._record} as it was, got another or none; nothing more was written")

    def _check_part(self, block: range) -> None:
        path = self.part(block)
        remedy = f"delete it to predict its samples again. {self.remedy}"
        record = read_record(path, remedy)
        self._run.check(record.settings, f"that wrote {path}", self.remedy)
        if record.rows != len(block):
            raise ValueError(f"expected {len(block)} rows in {path}, got {record.rows}; {remedy}")

    def _check_names(self, parts: Iterable[range]) -> None:
        strange = set(parts) - set(self.blocks)
        if strange:
            names = ", ".join(self.part(block).name for block in sorted(strange, key=lambda x: x.start)[:3])
            raise ValueError(
                f"expected blocks of {self._manifest.block} samples in {self.path}, got {names}. {self.remedy}"
            )

    @property
    def _record(self) -> Path:
        return self.scratch / "manifest.json"


class PartWriter:
    """Writes the rows of some blocks, one after the other. A part gets its name when the last of its rows is there.

    After an error, the finished parts stay, and the open one is deleted.
    """

    def __init__(self, folder: ShardFolder, run: Run, blocks: Iterable[range]) -> None:
        self._folder, self._run, self._blocks = folder, run, iter(blocks)
        self._block, self._passing = range(0), Passing()
        self._part: ParquetFile | None = None

    def write(self, columns: Mapping[str, Column], marks: Tensor | None = None) -> None:
        """Append the rows of one batch, which lies in one block."""
        if self._part is None:
            self._block, self._passing = next(self._blocks), Passing()
            self._part = ParquetFile(self._folder.part(self._block), scratch=self._folder.scratch)
        self._part.write(columns)
        if marks is not None:
            self._passing.add(marks)
        if self._part.rows == len(self._block):
            self._folder.check_manifest()
            self._part.annotate(self._run.metadata(self._passing.so_far()._replace(rows=self._part.rows)))
            self._part.close()
            self._part = None

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.discard()
        if kind is None and (part is not None or next(self._blocks, None) is not None):
            raise ValueError(f"expected the rows of all blocks for {self._folder.path}, got fewer; predict again")
