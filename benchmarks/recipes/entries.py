"""Write entries of the zoo: arrays and card, and the cache that long computations go through."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.pieces import in_pieces
from torch_boc.data.atomic import replacing
from torch_boc.data.logit_set import LogitSet
from torch_boc.functional import auroc, boc_summary
from torch_boc.functional.registry import unsaturated_scores

CLASSES_OF_A_BYTE = 256
Sets = Mapping[str, Sequence[LogitSet]]


def save_entry(folder: Path, name: str, sets: Sets, card: Mapping[str, Any]) -> None:
    """Write an entry to `folder`.

    Args:
        folder: where `name`.npz and `name`.json go.
        name: of the entry.
        sets: by role: one "id", and any number of "ood" and "calibration".
        card: what `numbers` cannot know: model, checkpoint, data, made_by, licence and so on.
    """
    if len(sets["id"]) != 1 or any("/" in data.name for group in sets.values() for data in group):
        raise ValueError("expected one set under 'id', and names without '/'")
    kept = {role: [_as_stored(data) for data in group] for role, group in sets.items()}
    arrays = {
        f"{role}/{data.name}/{key}": array
        for role, group in kept.items()
        for data in group
        for key, array in _arrays(data).items()
    }
    complete = {"name": name, **card, **numbers(kept), "made_on": date.today().isoformat(), "versions": _versions()}
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{name}.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    with replacing(folder / f"{name}.json") as temporary:
        temporary.write_text(json.dumps(complete, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def numbers(sets: Sets) -> dict[str, Any]:
    """What a card says of the logits, computed from them."""
    (test,) = sets["id"]
    summary = boc_summary(test.logits, test.target)
    described = [
        {"role": role, "name": data.name, "samples": len(data), "columns": list(data.columns)} | _accuracy(data)
        for role, group in sets.items()
        for data in group
    ]
    return {
        "accuracy": _rounded(summary["accuracy"]),
        "ece": _rounded(summary["ece"]),
        "nll": _rounded(summary["nll"]),
        "auroc": {data.name: _separation(test, data) for data in sets.get("ood", ())},
        "sets": described,
    }


def _accuracy(data: LogitSet) -> dict[str, float]:
    return {} if data.target is None else {"accuracy": _rounded(boc_summary(data.logits, data.target)["accuracy"])}


def _separation(test: LogitSet, other: LogitSet) -> dict[str, float]:
    ours, theirs = (unsaturated_scores(x.logits, ["msp", "energy", "structural_score"]) for x in (test, other))
    shared = [name for name in test.columns if name in other.columns]
    pairs = {name: (ours[name], theirs[name]) for name in ours}
    pairs |= {name: (test.columns[name], other.columns[name]) for name in shared}
    return {name: _rounded(auroc(*pair)) for name, pair in pairs.items()}


def _rounded(value: Tensor) -> float:
    return round(value.item(), 6)


def _as_stored(data: LogitSet) -> LogitSet:
    """The set as it will be read again: logits rounded to float16, columns to float32."""
    columns = {name: column.float() for name, column in data.columns.items()}
    return LogitSet(data.logits.half().float(), data.target, columns, data.name)


def _arrays(data: LogitSet) -> dict[str, np.ndarray]:
    arrays = {"logits": data.logits.half().numpy(), **{name: x.numpy() for name, x in data.columns.items()}}
    if data.target is not None:
        small = torch.uint8 if data.num_classes <= CLASSES_OF_A_BYTE else torch.int32
        arrays["target"] = data.target.to(small).numpy()
    return arrays


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("torch", "numpy", "pytorch-ood", "torch-boc")}


class Cache:
    """Results by samples, computed piece by piece and kept in `folder`."""

    def __init__(self, folder: Path, *, piece: int = 1000) -> None:
        self.folder, self.piece = folder, piece

    def __call__(self, key: str, images: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """`function(images)`, of which only the missing pieces are computed."""

        def compute(start: int, stop: int) -> Tensor:
            rows = function(images[start:stop])
            print(f"{key}: {stop:6} of {len(images)}", flush=True)
            return rows

        return in_pieces(self.folder / key, len(images), compute, piece=self.piece)
