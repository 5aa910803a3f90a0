"""A fold for each group of rows: an aggregation of Ray whose accumulators are states."""

from collections.abc import Callable
from typing import Any

from .._optional import require, require_pyarrow
from .folding import STATE, State, check_dataset, packed, unpacked
from .problems import check_picklable, one_error, reporting


def fold_groups(
    dataset: Any,
    by: str,
    empty: Callable[[], State],
    add: Callable[[State, Any], State],
    merge: Callable[[State, State], State],
) -> dict[Any, State]:
    """The state of each group of rows, by the value that the rows have in column `by`.

    The functions are those of `fold`. Each block becomes a state for each of its groups, and Ray shuffles these states,
    and not the rows. The states of all groups come to the program, which must have room for them. A row whose group is
    null or NaN is an error.
    """
    check_dataset(dataset)
    for function, name in ((empty, "empty"), (add, "add"), (merge, "merge")):
        check_picklable(function, f"{name} as a function")
    pyarrow = require_pyarrow()

    def states_of(block: Any) -> Any:
        with reporting(f"folding the groups of a block of {block.num_rows} rows"):
            keys, parts = split_groups(block, by)
            states = [packed(add(empty(), part)) for part in parts]
            return pyarrow.table({by: keys, STATE: pyarrow.array(states, pyarrow.large_binary())})

    states = dataset.map_batches(states_of, batch_format="pyarrow", batch_size=None)
    with one_error():
        rows = states.groupby(by).aggregate(state_aggregate(empty, merge)).take_all()
    return {row[by]: unpacked(row[STATE]) for row in rows}


def split_groups(table: Any, by: str) -> tuple[Any, list[Any]]:
    """The values of column `by` of a `pyarrow.Table`, and for each of them the table of its rows."""
    compute = require_pyarrow().compute
    if by not in table.column_names:
        raise ValueError(f"expected a column {by!r} to group by, got {', '.join(table.column_names)}")
    if missing := compute.sum(compute.is_null(table[by], nan_is_null=True)).as_py():
        raise ValueError(
            f"expected a group for each row in column {by!r}, got {missing} of {table.num_rows} rows with null or NaN; "
            "leave such rows out of the data set with filter, or give them a value of their own"
        )
    keys = compute.unique(table[by])
    return keys, [table.filter(compute.equal(table[by], key)) for key in keys]


def state_aggregate(empty: Callable[[], State], merge: Callable[[State, State], State]) -> Any:
    """A `ray.data.aggregate.AggregateFnV2` that merges packed states."""
    data = require("ray", "data.aggregate", "data.block", purpose="work on a cluster needs").data

    class StateAggregate(data.aggregate.AggregateFnV2):  # type: ignore[name-defined]
        """Its accumulators are bytes, which every kind of block can hold."""

        def aggregate_block(self, block: Any) -> bytes:
            """The state of all states of a block."""
            total = empty()
            for state in data.block.BlockAccessor.for_block(block).to_arrow()[STATE].to_pylist():
                total = merge(total, unpacked(state))
            return packed(total)

        def combine(self, current_accumulator: bytes, new: bytes) -> bytes:
            """The state of the rows of both."""
            return packed(merge(unpacked(current_accumulator), unpacked(new)))

    return StateAggregate(STATE, lambda: packed(empty()), on=STATE, ignore_nulls=False)
