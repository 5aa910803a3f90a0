"""Files of columns, as tensors by name: Parquet and CSV, through Arrow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._optional import require_pyarrow
from .columns import is_number, join_columns, join_family, kind_word, number_column, numbers_in_text, other_column
from .csv_rows import find_bad_line, read_header
from .families import find_families
from .finding import TARGET_NAMES
from .formats import ContentError, Text
from .selection import folded

# The bytes of CSV that Arrow reads at once, in all and for each column. A whole row must fit into a block.
CSV_BLOCK_BYTES, COLUMN_BYTES = 2**20, 64


def read_parquet(path: Path, classes: Sequence[str] | None = None) -> dict[str, Any]:
    """The columns of a `.parquet` file by name, with the columns of logits joined to one array.

    A column that holds no numbers is a list of names of classes, or a `Text` that says what it holds.
    """
    with path.open("rb") as stream, require_pyarrow().parquet.ParquetFile(stream) as file:
        plan = ParquetPlan(file.schema_arrow, classes)
        return plan.content(file.read(columns=plan.wanted))


def read_csv(path: Path, classes: Sequence[str] | None = None) -> dict[str, Any]:
    """The same for a `.csv` file. Its first line has the names of the columns, and all numbers are float64."""
    plan = CsvPlan(path, classes)
    return plan.content(_csv_table(plan))


class ParquetPlan:
    """How the columns of a Parquet file become arrays: of all rows, or of some.

    Attributes:
        families: the columns of each family of classes.
        wanted: the columns that must be read.
    """

    def __init__(self, schema: Any, classes: Sequence[str] | None) -> None:
        self._kinds = {field.name: field.type for field in schema}
        self.families = find_families(schema.names, classes)
        self.wanted = [name for names in self.families.values() for name in names]
        self._joined = set(self.wanted)
        others = (name for name in self._kinds if name not in self._joined)
        self.wanted += [x for x in others if folded(x) in TARGET_NAMES or is_number(self._kinds[x])]

    @property
    def lists(self) -> str | None:
        """The name of the column of lists, if the logits are one."""
        return next((x[0] for x in self.families.values() if len(x) == 1 and folded(x[0]) == "logits"), None)

    def content(self, table: Any) -> dict[str, Any]:
        """The arrays of the rows in an Arrow table that has the wanted columns."""
        columns = dict(zip(table.column_names, table.columns, strict=True))
        result: dict[str, Any] = {family: join_family(columns, names) for family, names in self.families.items()}
        for name in (name for name in self._kinds if name not in self._joined):
            result[name] = other_column(columns[name], name) if name in columns else Text(kind_word(self._kinds[name]))
        return result


class CsvPlan:
    """The same for a CSV file.

    Attributes:
        path: the file.
        names: the names of all columns.
        numbers: those of the columns of logits.
        targets: those of the columns of targets.
        texts: the other columns that have been found to hold text. A column is text if any of its cells is.
    """

    def __init__(self, path: Path, classes: Sequence[str] | None) -> None:
        self.path, self._classes = path, classes
        self.names = read_header(path)
        self._families = find_families(self.names, classes)
        if self._families.get("logits") == ["logits"]:
            raise ContentError(
                "expected columns logit_0, logit_1, ..., got a column 'logits': a CSV cell holds one number"
            )
        self.numbers = {name for family in self._families.values() for name in family}
        self._others = [name for name in self.names if name not in self.numbers]
        self.targets = [name for name in self._others if folded(name) in TARGET_NAMES]
        self.texts: set[str] = set()

    def content(self, table: Any) -> dict[str, Any]:
        """The arrays of the rows in an Arrow table of all columns."""
        columns = dict(zip(table.column_names, table.columns, strict=True))
        result: dict[str, Any] = {family: join_columns(columns, parts) for family, parts in self._families.items()}
        for name in self._others:
            values = self.as_numbers(name, columns[name])
            if values is None and name in self.targets and self._classes is None:
                raise ContentError(find_bad_line(self.path, {name}, [""]) or f"expected numbers in column {name!r}")
            text = columns[name].to_pylist() if name in self.targets else Text("text")
            result[name.strip()] = text if values is None else number_column(values, name)
        return result

    def as_numbers(self, name: str, column: Any) -> Any:
        """The cells as numbers; None if this or an earlier part of the column is text."""
        values = None if name in self.texts else numbers_in_text(column)
        if values is None:
            self.texts.add(name)
        return values


def _csv_table(plan: CsvPlan) -> Any:
    """All cells of a CSV file: numbers in the columns of logits, text in the others."""
    arrow, block = require_pyarrow(), first_block(plan)
    while True:
        try:
            with plan.path.open("rb") as file:
                return arrow.csv.read_csv(file, *csv_options(plan, block))
        except arrow.ArrowInvalid as error:
            block = larger_block(plan, block, error)


def first_block(plan: CsvPlan) -> int:
    """The bytes of CSV that are read at once at first."""
    return max(CSV_BLOCK_BYTES, COLUMN_BYTES * len(plan.names))


def csv_options(plan: CsvPlan, block: int, only: Sequence[str] | None = None) -> tuple[Any, Any, Any]:
    """How Arrow reads a CSV file: in blocks of so many bytes, and perhaps some columns only."""
    arrow = require_pyarrow()
    types = {name: arrow.float64() if name in plan.numbers else arrow.string() for name in plan.names}
    convert = arrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True, include_columns=only)
    return arrow.csv.ReadOptions(block_size=block), arrow.csv.ParseOptions(newlines_in_values=True), convert


def larger_block(plan: CsvPlan, block: int, error: Exception) -> int:
    """The bytes to try next if a row did not fit into a block; for any other error, what is wrong with the file."""
    if "straddling" in str(error) and block < plan.path.stat().st_size:
        return block * 8
    missing = require_pyarrow().csv.ConvertOptions().null_values
    raise ContentError(find_bad_line(plan.path, plan.numbers, missing) or str(error)) from error
