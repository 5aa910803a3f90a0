"""The sets of an evaluation of tables: files, or Ray data sets, whose sums come from the cluster."""

import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..._optional import require_pyarrow
from ...data.formats import ContentError
from ...ray.folding import fold, is_ray_dataset
from ...storage.files import printable
from .blocks import Reader, has_columns
from .progress import Telling
from .sources import Tables
from .state import Plan, SetState

# A block of a data set has at most so many rows with numbers of their own.
BLOCK_ROWS = 2**31
NO_ROWS = "expected at least one row, got a data set without rows"


class RaySet:
    """A Ray data set with logits, or with the columns of a predictor."""

    rows: int | None = None

    def __init__(self, dataset: Any, name: str) -> None:
        self.name, self._dataset = name, dataset

    def from_columns(self) -> bool:
        """Whether the data set has columns instead of logits."""
        schema = self._dataset.schema()
        if schema is None:
            raise ValueError(f"{self.name}: {NO_ROWS}")
        return has_columns(schema)

    def collect(self, plan: Plan, reader: Reader, tell: Telling) -> SetState:
        """The sums and counts of all rows, which are computed where the blocks are."""
        tell.say(f"{self.name}: blocks of a Ray data set")
        state = fold(self._dataset, partial(SetState, plan), partial(add_table, reader), merge_states)
        if not state.samples:
            raise ValueError(f"{self.name}: {NO_ROWS}")
        return state


def add_table(reader: Reader, state: SetState, table: Any) -> SetState:
    """The state with the rows of a block of a Ray data set. What the rows hold decides where chance puts them."""
    table = without_extensions(table)
    first = fingerprint(table.slice(0, 16)) * BLOCK_ROWS
    try:
        for block in reader.blocks(table, first):
            state.add(block)
            reader = reader.after(block.evidence)
    except ContentError as error:
        raise ValueError(str(error)) from None
    return state


def fingerprint(table: Any) -> int:
    """A number of 32 bits that depends on all values of a table."""
    arrow = require_pyarrow()
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return zlib.crc32(sink.getvalue())


def merge_states(one: SetState, other: SetState) -> SetState:
    """The state of the rows of both."""
    return one.merge(other)


def without_extensions(table: Any) -> Any:
    """A table in which tensors, which have a type of Ray's own, are lists."""
    arrow = require_pyarrow()
    for place, field in enumerate(table.schema):
        if isinstance(field.type, arrow.BaseExtensionType):
            plain = arrow.chunked_array([chunk.storage for chunk in table.column(place).chunks])
            table = table.set_column(place, field.name, plain)
    return table


def as_tables(source: Any, name: str) -> Tables | RaySet:
    """A set of any size."""
    return RaySet(source, name) if is_ray_dataset(source) else Tables(source, name)


def several_tables(source: Any, name: str) -> list[Tables | RaySet]:
    """The sets by name: a single set is called `name`, and the keys of a mapping are the names of its sets."""
    if source is None:
        return []
    if not isinstance(source, Mapping):
        return [as_tables(source, name)]
    for key in source:
        if not isinstance(key, str) or not key:
            raise ValueError(f"{name}: expected names of sets as strings, got {key!r}")
    return [as_tables(value, printable(key)) for key, value in source.items()]
