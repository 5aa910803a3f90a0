"""Files of columns that are read some rows at a time: Parquet and CSV, through Arrow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from .._optional import require_pyarrow
from .array_streams import Source
from .columns import check_lengths, is_list, list_lengths
from .formats import Text
from .row_arrays import hollow
from .sheets import CsvPlan, ParquetPlan, csv_options, first_block, larger_block

# The bytes of Parquet that are read ahead, in all columns together and at least in each.
AHEAD_BYTES, COLUMN_AHEAD_BYTES = 2**23, 2**14
# The cells that become arrays at once. Each column costs some time, however few rows it has.
READ_CELLS = 2**21


class ParquetSource(Source):
    """The columns of a `.parquet` file."""

    def __init__(self, path: Path, classes: Sequence[str] | None = None) -> None:
        super().__init__()
        self._path, self._classes = path, classes

    def open(self) -> None:
        """See `Source`."""
        arrow, stream = require_pyarrow(), self.files.enter_context(self._path.open("rb"))
        with self._path.open("rb") as start, arrow.parquet.ParquetFile(start) as file:
            self._plan = ParquetPlan(file.schema_arrow, self._classes)
            metadata = file.metadata
        ahead = max(COLUMN_AHEAD_BYTES, AHEAD_BYTES // len(self._plan.wanted))
        # Otherwise Arrow would read all of a row group at once, which may be all of the file.
        file = arrow.parquet.ParquetFile(stream, buffer_size=ahead, pre_buffer=False, metadata=metadata)
        self._file, self._rows = self.files.enter_context(file), metadata.num_rows
        self._length: list[int | None] = []
        nothing = self._file.schema_arrow.empty_table().select(self._plan.wanted)
        # The length of lists is known from a row only. All else is in the schema.
        self._first = self._content(next(self._tables(1), nothing) if self._plan.lists else nothing)

    def headers(self) -> Any:
        """The schema says what all columns are, and for lists the first row."""
        return {name: with_length(values, self._rows) for name, values in self._first.items()}

    def num_rows(self, key: Any) -> int | None:
        """See `Source`."""
        return int(self._rows)

    def blocks(self, keys: Sequence[Any], total: int | None, rows: int) -> Iterator[Mapping[Any, Any]]:
        """See `Source`."""
        width = sum(x.shape[1] if x.ndim == 2 else 1 for x in self._first.values() if isinstance(x, Tensor))
        for table in self._tables(many_rows(rows, width)):
            yield from sliced(self._content(table), table.num_rows, rows)

    def _tables(self, rows: int) -> Iterator[Any]:
        return regrouped(self._file.iter_batches(batch_size=rows, columns=self._plan.wanted), rows)

    def _content(self, table: Any) -> dict[str, Any]:
        """The arrays of some rows. Lists of different lengths are an error that tells all lengths in the file."""
        name = self._plan.lists
        if name is not None and table.num_rows and is_list(table[name].type):
            found = list_lengths(table[name])
            self._length = self._length or found
            if found != self._length or None in found:
                self._refuse_lengths(name)
        return self._plan.content(table)

    def _refuse_lengths(self, name: str) -> None:
        lengths: dict[int | None, None] = {}
        for part in self._file.iter_batches(columns=[name]):
            lengths |= dict.fromkeys(list_lengths(part[name]))
        check_lengths(list(lengths))


class CsvSource(Source):
    """The columns of a `.csv` file."""

    def __init__(self, path: Path, classes: Sequence[str] | None = None) -> None:
        super().__init__()
        self._path, self._classes, self._rows = path, classes, 0

    def open(self) -> None:
        """See `Source`."""
        self._plan = CsvPlan(self._path, self._classes)
        types = {name: "float64" if name in self._plan.numbers else "string" for name in self._plan.names}
        arrow = require_pyarrow()
        self._empty = arrow.table({name: arrow.array([], kind) for name, kind in types.items()})
        if self._classes is not None:
            self._find_names()

    def _find_names(self) -> None:
        """Find out whether the targets are names. Names may be numbers, so that it takes all targets to know."""
        for name in self._plan.targets:
            for batch in self._batches([name]):
                if self._plan.as_numbers(name, batch[name]) is None:
                    break

    def headers(self) -> Any:
        """All columns that have not been found to be text count as numbers."""
        return {name: with_length(values, self._rows) for name, values in self._plan.content(self._empty).items()}

    def num_rows(self, key: Any) -> int | None:
        """See `Source`."""
        return None

    def blocks(self, keys: Sequence[Any], total: int | None, rows: int) -> Iterator[Mapping[Any, Any]]:
        """See `Source`."""
        for table in regrouped(self._batches(), many_rows(rows, len(self._plan.names))):
            self._rows += table.num_rows
            yield from sliced(self._plan.content(table), table.num_rows, rows)

    def _batches(self, only: Sequence[str] | None = None) -> Iterator[Any]:
        """The rows, from the beginning with larger blocks where a row did not fit, without those that were given."""
        arrow, block, given = require_pyarrow(), first_block(self._plan), 0
        while True:
            skipped = 0
            try:
                with self._plan.path.open("rb") as file:
                    for batch in arrow.csv.open_csv(file, *csv_options(self._plan, block, only)):
                        rest = batch.slice(min(given - skipped, batch.num_rows))
                        skipped += batch.num_rows - rest.num_rows
                        given, skipped = given + rest.num_rows, skipped + rest.num_rows
                        yield rest
                return
            except arrow.ArrowInvalid as error:
                block = larger_block(self._plan, block, error)


def with_length(values: Any, rows: int) -> Any:
    """A tensor of that length without values; anything else unchanged."""
    return hollow((rows, *values.shape[1:]), values.dtype) if isinstance(values, Tensor) else values


def many_rows(rows: int, width: int) -> int:
    """A multiple of `rows` with about `READ_CELLS` cells."""
    return rows * max(1, READ_CELLS // (rows * width))


def sliced(content: Mapping[str, Any], total: int, rows: int) -> Iterator[dict[str, Any]]:
    """The content of `total` rows, `rows` at a time."""
    for start in range(0, total, rows):
        part = slice(start, start + rows)
        yield {name: x if isinstance(x, Text) else x[part] for name, x in content.items()}


def regrouped(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """Tables of `rows` rows, the last one of fewer, from batches of any size."""
    arrow, waiting, count = require_pyarrow(), [], 0
    for batch in batches:
        waiting.append(arrow.Table.from_batches([batch]))
        count += batch.num_rows
        if count >= rows:
            table = arrow.concat_tables(waiting)
            ready = count // rows * rows
            yield from (table.slice(start, rows) for start in range(0, ready, rows))
            waiting, count = [table.slice(ready)], count - ready
    if count:
        yield arrow.concat_tables(waiting)
