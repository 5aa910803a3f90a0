"""Ids of samples: a column of the batch that goes through to the table, and does not reach the model."""

import hashlib
import numbers
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from ..data.finding import describe
from ..data.parquet import Column

KINDS = "expected ids as a list of N strings, a list of N ints or a tensor of N numbers"
FLOATS = (torch.float16, torch.float32, torch.float64)  # other floats are unknown to Arrow


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
    if isinstance(batch, Mapping) and name in batch:
        if name in required:
            raise ValueError(
                f"expected an id that the model does not need as an argument, got {name!r}; rename the key"
            )
        return {key: x for key, x in batch.items() if key != name}, batch[name]
    if isinstance(batch, list | tuple) and len(batch) == 3:
        if isinstance(batch[0], Mapping) and name in batch[0]:
            raise ValueError(
                f"expected the ids in one place, got the key {name!r} in the mapping and a third entry of the batch; "
                "leave one of them out"
            )
        return tuple(batch[:2]), batch[2]
    if isinstance(batch, list | tuple) and len(batch) in (1, 2) and isinstance(batch[0], Mapping) and name in batch[0]:
        inputs, ids = take_id(batch[0], name, required)
        return (inputs, *batch[1:]), ids
    count = f" of {len(batch)}" if isinstance(batch, list | tuple) else ""
    raise ValueError(
        f"expected a batch (x, target, id), where target may be None, or a mapping with the key {name!r} for the ids, "
        f"got {describe(batch)}{count}"
    )


def as_ids(values: Any, size: int) -> Column:
    """Ids of `size` samples as a list of strings, or as a tensor."""
    if type(values).__module__ == "numpy" and hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, list | tuple):
        values = _from_list(list(values))
    if not isinstance(values, Tensor | list):
        raise TypeError(f"{KINDS}, got {describe(values)}")
    if isinstance(values, Tensor) and (values.is_complex() or values.layout != torch.strided or values.ndim != 1):
        raise ValueError(f"{KINDS}, got a tensor of shape {tuple(values.shape)}, dtype {values.dtype}")
    if isinstance(values, Tensor) and values.is_floating_point() and values.dtype not in FLOATS:
        raise ValueError(f"{KINDS}, got dtype {values.dtype}, which tables do not have; give numbers of another dtype")
    if len(values) != size:
        raise ValueError(f"expected an id for each of the {size} samples of the batch, got {len(values)}")
    return values


def hash_ids(ids: Column) -> Tensor:
    """A number of 64 bits for each id, on the CPU."""
    if isinstance(ids, Tensor):
        return hash_ids([repr(x) for x in ids.tolist()])
    digests = [hashlib.blake2b(x.encode(), digest_size=8).digest() for x in ids]
    return torch.tensor([int.from_bytes(x, "little", signed=True) for x in digests], dtype=torch.int64)


def _from_list(values: list[Any]) -> Column:
    values = [x.item() if isinstance(x, Tensor) and x.ndim == 0 else x for x in values]
    if all(isinstance(x, str) for x in values):
        return _texts(values)
    if not all(isinstance(x, numbers.Integral) for x in values):  # those of NumPy as well
        raise TypeError(f"{KINDS}, got {describe(values)}")
    if not all(-(2**63) <= x < 2**63 for x in values):
        raise ValueError(f"expected ids of 64 bits, got {max(values, key=abs)}; write them as strings")
    return torch.tensor([int(x) for x in values], dtype=torch.int64)


def _texts(values: list[str]) -> list[str]:
    for x in values:
        try:
            x.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"expected ids that can be written as UTF-8, got {x!r}; escape the character") from error
    return values
