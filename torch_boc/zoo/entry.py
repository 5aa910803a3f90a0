"""Entries of the zoo: `NAME.npz` has the arrays, `NAME.json` the card.

A card lists its sets as {"role": "id" | "ood" | "calibration", "name": ..., "columns": [...], ...}; the arrays of a set
are called ROLE/NAME/logits (float16), ROLE/NAME/target, if there are targets, and ROLE/NAME/COLUMN. A new entry is two
new files.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import torch
from torch import Tensor

from .._optional import require
from ..data.logit_set import LogitSet


@dataclass(frozen=True)
class Entry:
    """The logits of one model.

    Attributes:
        name: its name in `names()`.
        card: the metadata of the logits: model, data, names of the classes, how and when they were made, sources and
            licences, the sets with their accuracy, and a few numbers computed from the stored logits.
        id: the complete test set of the data that the model was trained for.
        ood: other data, by name.
        calibration: splits to fit calibrators on, by name. They may be training samples of the model;
            `test_and_splits()` always has a split that the model was not trained on.

    Logits are stored in float16 and given in float32.
    """

    name: str
    card: Mapping[str, Any]
    id: LogitSet
    ood: Mapping[str, LogitSet]
    calibration: Mapping[str, LogitSet]

    def test_and_splits(self) -> tuple[LogitSet, dict[str, LogitSet]]:
        """The test set, and the splits to calibrate on. The model was not trained on the first split.

        If the entry has no such split, the first half of the test set is the split, and the other half the test set.
        """
        seen = {name: data for name, data in self.calibration.items() if is_training(name)}
        unseen = {name: data for name, data in self.calibration.items() if name not in seen}
        if unseen:
            return self.id, unseen | seen
        held_out, test = self.held_out()
        return test, {held_out.name: held_out, **seen}

    def held_out(self) -> tuple[LogitSet, LogitSet]:
        """The first half of the test set, to calibrate on, and the other half, to test on."""
        half = len(self.id) // 2
        return _rows(self.id, slice(half), "held-out half"), _rows(self.id, slice(half, None), self.id.name)


def is_training(split: str) -> bool:
    """Whether the name of a split says that the model was trained on its samples."""
    return split.startswith("training")


def names() -> tuple[str, ...]:
    """The names of all entries, in alphabetical order."""
    return _names(files(__package__))


def load(name: str) -> Entry:
    """The entry called `name`; needs NumPy.

    >>> entry = load("resnet20-cifar10")
    >>> tuple(entry.id.logits.shape), list(entry.ood), list(entry.calibration), sorted(entry.id.columns)
    ((10000, 10), ['svhn'], ['training samples'], ['mahalanobis', 'odin'])
    """
    return read_entry(files(__package__), name)


def read_entry(folder: Traversable, name: str) -> Entry:
    """The entry called `name` in `folder`."""
    entries = _names(folder)
    if name not in entries:
        raise ValueError(f"expected an entry among {', '.join(entries)}, got {name!r}")
    card = json.loads(folder.joinpath(f"{name}.json").read_text(encoding="utf-8"))
    numpy = require("numpy", purpose="the zoo needs")
    with folder.joinpath(f"{name}.npz").open("rb") as file, numpy.load(file, allow_pickle=False) as arrays:
        sets: dict[str, dict[str, LogitSet]] = {"id": {}, "ood": {}, "calibration": {}}
        for part in card["sets"]:
            sets[part["role"]][part["name"]] = _read_set(arrays, part, card.get("classes"))
    (test,) = sets["id"].values()
    return Entry(name, card, test, sets["ood"], sets["calibration"])


def _names(folder: Traversable) -> tuple[str, ...]:
    return tuple(sorted(x.name.removesuffix(".json") for x in folder.iterdir() if x.name.endswith(".json")))


def _read_set(arrays: Any, part: Mapping[str, Any], classes: list[str] | None) -> LogitSet:
    def read(array: str) -> Tensor:
        return torch.from_numpy(arrays[f"{part['role']}/{part['name']}/{array}"])

    target = read("target").long() if f"{part['role']}/{part['name']}/target" in arrays else None
    columns = {column: read(column).float() for column in part["columns"]}
    return LogitSet(read("logits").float(), target, columns, part["name"], classes=classes)


def _rows(data: LogitSet, rows: slice, name: str) -> LogitSet:
    target = None if data.target is None else data.target[rows]
    columns = {column: values[rows] for column, values in data.columns.items()}
    return LogitSet(data.logits[rows], target, columns, name, classes=data.classes)
