"""What a loader yields: the arguments of a model, the targets, and the ids of the samples."""

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data.extract import describe, split_batch
from ..data.parquet import Column, joined, kind_of
from ..functional.checks import as_binary_target, check_target

FLOATS = (torch.float16, torch.float32, torch.float64)  # other floats are unknown to Arrow
# The key of logits whose columns are to be computed. No column has this name.
LOGITS = ""
# After this many seconds a group of batches is closed.
GROUP_SECONDS = 0.1
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Batch(NamedTuple):
    """The arguments of a model for `size` samples, and the columns that need no model.

    Attributes:
        args: the positional arguments.
        kwargs: the arguments by name.
        size: the number of samples.
        columns: the columns `index`, id and `target` of the table, as far as there are such; they are copies.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    size: int
    columns: dict[str, Column]

    def map(self, function: Callable[[Any], Any]) -> "Batch":
        """A copy with `function` applied to each of the model's arguments."""
        kwargs = dict(zip(self.kwargs, map(function, self.kwargs.values()), strict=True))
        return self._replace(args=tuple(map(function, self.args)), kwargs=kwargs)

    def piece(self, start: int, stop: int) -> "Batch":
        """The samples from `start` up to `stop`.

        Tensors, arrays, lists and tuples with one entry for each sample are cut. What has another length is kept whole.
        """
        cut = self.map(lambda x: x[start:stop] if _entries(x) == self.size else x)
        return cut._replace(size=stop - start, columns={name: x[start:stop] for name, x in self.columns.items()})


def _entries(x: Any) -> int | None:
    """How many entries a list, a plain tuple or an array has; None for anything else."""
    if isinstance(x, Tensor) or type(x).__module__ == "numpy":
        return len(x) if x.ndim else None
    return len(x) if isinstance(x, list | tuple) and not hasattr(x, "_fields") else None


def grouped(batches: Iterable[dict[str, Column]], most: int, block: int | None = None) -> Iterator[dict[str, Column]]:
    """Join small batches that follow each other and have the same columns.

    Args:
        batches: columns; only those with LOGITS are joined.
        most: the number of logits at which a group is closed.
        block: no group crosses the end of a block of this many samples.

    >>> [len(x["index"]) for x in grouped([{"index": torch.arange(4), LOGITS: torch.zeros(4, 10)}] * 3, 80)]
    [8, 4]
    """
    group, kinds, size, seen, late = list[dict[str, Column]](), dict[str, Any](), 0, 0, 0.0
    for batch in batches:
        earlier, kinds = kinds, {name: kind_of(x) for name, x in batch.items()}
        if group and kinds != earlier:
            yield _join(group)
        if not group:
            size, late = 0, time.monotonic() + GROUP_SECONDS
        group.append(batch)
        seen += count_rows(batch)
        size += batch[LOGITS].numel() if LOGITS in batch else most  # type: ignore[union-attr]
        if size >= most or (block and seen % block == 0) or time.monotonic() >= late:
            yield _join(group)
    if group:
        yield _join(group)


def _join(group: list[dict[str, Column]]) -> dict[str, Column]:
    """The rows of a group, which is empty afterwards."""
    columns = {name: joined([x[name] for x in group]) for name in group[0]}
    group.clear()
    return columns


def count_rows(columns: Mapping[str, Column]) -> int:
    """How many rows a table has."""
    return len(next(iter(columns.values())))


class BatchReader:
    """Turns what a loader yields into a `Batch` for one model.

    A batch is x, (x, target), or a mapping with the target under a name of `torch_boc.data.extract.TARGET_NAMES`. An
    argument that the model's forward requires is never the target. x is a tensor, a sequence of tensors
    (positional arguments) or a mapping (keyword arguments). As in transformers' Trainer, keys that the model's forward
    does not take are left out. With an `id`, the batch also has ids: (x, target, id), or a mapping with that key.
    `binary` targets are 0 and 1 of any dtype, of shape (N,) or (N, 1).

    >>> batch = BatchReader(torch.nn.Linear(3, 2)).read((torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])))
    >>> batch.size, batch.columns
    (4, {'target': tensor([0, 1, 1, 0])})
    """

    def __init__(self, model: nn.Module, id: str | None = None, *, binary: bool = False) -> None:
        self.id, self.binary = id, binary
        parameters = inspect.signature(model.forward).parameters.values()
        named = [x for x in parameters if x.kind in (x.POSITIONAL_OR_KEYWORD, x.KEYWORD_ONLY)]
        self._names = {x.name for x in named}
        self._required = {x.name for x in named if x.default is x.empty}
        self._any_name = any(x.kind is x.VAR_KEYWORD for x in parameters)

    def read(self, batch: Any) -> Batch:
        """The arguments for one call of the model, and the ids and targets."""
        batch, ids = (batch, None) if self.id is None else take_id(batch, self.id, self._required)
        inputs, target = split_batch(batch, inputs=self._required)
        args, kwargs = (), {}
        if isinstance(inputs, Mapping):
            accepted = {
                k: x for k, x in inputs.items() if k in self._names or (self._any_name and isinstance(x, Tensor))
            }
            kwargs = accepted or dict(inputs)
        else:
            args = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
        size = next((len(x) for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim), None)
        if size is None:
            raise TypeError(
                f"expected a batch with tensors of shape (N, ...), got {describe(inputs)}; "
                "give the DataLoader a collate_fn that makes tensors, or a Hugging Face dataset with_format('torch')"
            )
        # Copies, because the loader may use the same memory for the next batch.
        columns: dict[str, Column] = {} if self.id is None else {self.id: as_ids(ids, size)}
        if target is not None:
            try:
                target = torch.as_tensor(target).clone()
            except (TypeError, ValueError, RuntimeError) as error:
                raise TypeError(f"expected targets as integer class indices, got {describe(target)}") from error
            target = as_binary_target(target, torch.Size([size])) if self.binary else target
            columns["target"] = check_target(target, torch.Size([size]))
        return Batch(args, kwargs, size, columns)


def check_id(id: Any, taken: Collection[str]) -> None:
    """Raise unless `id` is None or the name of a column that is not taken."""
    if id is not None and (not isinstance(id, str) or not id or id in taken):
        raise ValueError(f"expected id as the name of a new column, not one of {', '.join(taken)}, got {id!r}")


def take_id(batch: Any, name: str, required: Collection[str] = ()) -> tuple[Any, Any]:
    """The batch without its ids, and the ids: the key `name` of a mapping, or the third of (x, target, id).

    Args:
        batch: what a loader yields.
        name: the name of the column.
        required: the names of the arguments that the model needs.

    >>> take_id({"x": 1, "path": ["a"]}, "path")
    ({'x': 1}, ['a'])
    >>> take_id((1, 2, ["a"]), "path")
    ((1, 2), ['a'])
    """
    several = isinstance(batch, list | tuple)
    holder = batch[0] if several and batch else batch
    inside, third = isinstance(holder, Mapping) and name in holder, several and len(batch) == 3
    if inside == third:
        raise ValueError(
            f"expected a batch (x, target, id), where target may be None, or a mapping with the key {name!r} for the "
            f"ids, and not both, got {describe(batch)}{f' of {len(batch)}' if several else ''}"
        )
    if third:
        return tuple(batch[:2]), batch[2]
    if name in required:
        raise ValueError(f"expected an id that the model does not need as an argument, got {name!r}; rename the key")
    rest = {key: x for key, x in holder.items() if key != name}
    return ((rest, *batch[1:]) if several else rest), holder[name]


def as_ids(values: Any, size: int) -> Column:
    """A copy of the ids of `size` samples, as a list of strings or as a tensor."""
    given = values.tolist() if getattr(getattr(values, "dtype", None), "kind", "") in ("U", "O") else values
    if isinstance(given, list | tuple) and all(isinstance(x, str) for x in given):
        ids: Column = [*given]
    else:
        with suppress(TypeError, ValueError, RuntimeError):  # such as a number of more than 64 bits
            values = torch.as_tensor(values).clone()
        if not isinstance(values, Tensor) or values.ndim != 1 or values.dtype not in (*FLOATS, *INTEGERS):
            dtype = f", dtype {values.dtype}" if isinstance(values, Tensor) else ""
            got = f"{describe(given)}{dtype}"
            raise TypeError(f"expected ids as a list of N strings or a tensor of N integers or floats, got {got}")
        ids = values
    if len(ids) != size:
        raise ValueError(f"expected an id for each of the {size} samples of the batch, got {len(ids)}")
    return ids
