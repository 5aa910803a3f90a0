"""A fold: many blocks of a Ray data set become one state, which is computed where the blocks are."""

import pickle
import sys
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from .._optional import require, require_pyarrow
from .problems import check_picklable, one_error, reporting

State = TypeVar("State")
STATE = "state"  # the only column of the blocks that hold states


def is_ray_dataset(value: Any) -> bool:
    """Whether `value` is a `ray.data.Dataset`. Ray is not imported: without it, nothing can be one.

    >>> is_ray_dataset([1, 2])
    False
    """
    module = sys.modules.get("ray.data")
    kind = getattr(module, "Dataset", None)
    return kind is not None and isinstance(value, kind)


def check_dataset(dataset: Any) -> Any:
    """Return `dataset` if it is a `ray.data.Dataset`, or raise."""
    require("ray", "data", purpose="work on a cluster needs")
    if not is_ray_dataset(dataset):
        raise TypeError(
            f"expected dataset as a ray.data.Dataset, got {type(dataset).__name__}; "
            "make one with ray.data.read_parquet(...) or another function of ray.data"
        )
    return dataset


def fold(
    dataset: Any,
    empty: Callable[[], State],
    add: Callable[[State, Any], State],
    merge: Callable[[State, State], State],
) -> State:
    """Fold the blocks of a Ray data set into one state.

    Each block becomes a state in the worker that has the block, which is `add(empty(), block)`. Only the states travel
    to the program, which merges them one after the other, so that it never holds more than a few. The data set is
    streamed: it need not fit in memory, and is not written anywhere. How the rows are cut into blocks, and in which
    order the blocks come, must not matter to `add` and `merge`; sums of floats then agree up to their rounding.

    Args:
        dataset: a `ray.data.Dataset`.
        empty: makes the state of no rows.
        add: returns the state with the rows of a block added. It gets the state, which it may change, and the block as
            a `pyarrow.Table` of at least one row. Its arrays are read-only. Tensor columns have an extension type of
            Ray; `torch_boc.ray.arrays.column_tensor` reads them.
        merge: returns the state of the rows of both states. It may change the first.

    Returns:
        The state of all rows, which is `empty()` if there are none. States must be picklable.

    An error of `add` is raised once, with the place where it happened: as what it was if it is one of the common kinds
    of Python, and otherwise as a RuntimeError that begins with the name of its kind.
    """
    check_dataset(dataset)
    for function, name in ((empty, "empty"), (add, "add")):
        check_picklable(function, f"{name} as a function")
    pyarrow = require_pyarrow()

    def state_of(block: Any) -> Any:
        with reporting(f"folding a block of {block.num_rows} rows"):
            return pyarrow.table({STATE: [] if not block.num_rows else [packed(add(empty(), block))]}, _schema())

    total = empty()
    states = dataset.map_batches(state_of, batch_format="pyarrow", batch_size=None)
    with one_error():
        for block in states.iter_batches(batch_format="pyarrow", batch_size=None):
            for state in block[STATE]:
                total = merge(total, unpacked(state.as_buffer()))
    return total


def _schema() -> Any:
    pyarrow = require_pyarrow()
    return pyarrow.schema([(STATE, pyarrow.large_binary())])


def packed(state: Any) -> bytes:
    """The state as bytes. Counts are mostly zeros, which take little room when they are compressed."""
    return zlib.compress(pickle.dumps(state, pickle.HIGHEST_PROTOCOL), 1)


def unpacked(data: Any) -> Any:
    """The state that `packed` has made bytes of."""
    return pickle.loads(zlib.decompress(data))
