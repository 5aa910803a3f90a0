"""The loaders of an evaluation loop by name, and which of them are out-of-distribution."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

SEVERAL_LOADERS = (
    "with several loaders Lightning wants `dataloader_idx` in the step, `def validation_step(self, batch, batch_idx, "
    "dataloader_idx=0)`, and renames what the step logs, 'val/loss' to 'val/loss/dataloader_idx_0'; "
    "`self.log(..., add_dataloader_idx=False)`, for loader 0 only, keeps the name"
)


def check_ood(ood: Mapping[int | str, str | int] | Sequence[str] | None) -> dict[int | str, str]:
    """The name that each out-of-distribution loader has in the keys, by the index or the name of the loader.

    >>> check_ood({1: "svhn"}), check_ood({"svhn": 1}), check_ood({"svhn_test": "svhn"}), check_ood(["svhn"])
    ({1: 'svhn'}, {1: 'svhn'}, {'svhn_test': 'svhn'}, {'svhn': 'svhn'})
    """
    if ood is None:
        return {}
    if isinstance(ood, str) or not isinstance(ood, Mapping | Sequence):
        raise ValueError(_expected(ood))
    given = [*ood.items()] if isinstance(ood, Mapping) else [(name, name) for name in ood]
    pairs = [(right, left) if _is_place(right) and isinstance(left, str) else (left, right) for left, right in given]
    if not all((_is_place(loader) or isinstance(loader, str)) and isinstance(name, str) for loader, name in pairs):
        raise ValueError(_expected(ood))
    if any(loader == 0 for loader, _ in pairs):
        raise ValueError(f"{_expected(ood)}; loader 0 is the in-distribution one")
    places: dict[Any, Any] = dict(pairs)
    if len(places) < len(pairs) or len(set(places.values())) < len(pairs):
        raise ValueError(f"expected each ood loader once, under a different name each, got {ood!r}")
    return places


def loader_names(trainer: Any, stage: str) -> list[str]:
    """The names of the loaders of a loop, in their order: the keys of a dict, otherwise as Lightning names them.

    Loaders that do not run one after the other (`CombinedLoader` in another mode than "sequential") make one batch
    together. They count as one loader.
    """
    combined = _loop(trainer, stage)._combined_loader
    if combined._mode != "sequential":
        return ["combined"]
    names = list(_paths(combined.iterables))
    if isinstance(combined.iterables, Mapping) and len(names) == len(combined.flattened):
        return names
    return [f"dataloader_idx_{place}" for place in range(len(combined.flattened))]


def has_loaders(trainer: Any, stage: str) -> bool:
    """Whether the loaders of a loop are known already."""
    return _loop(trainer, stage)._combined_loader is not None


def place_ood(ood: Mapping[int | str, str], names: Sequence[str]) -> dict[int, str]:
    """The names of the out-of-distribution loaders by index, without those that `check_places` refuses."""
    found = _found(ood, names)
    others = {name for place, name in enumerate(names) if place not in found}
    return {place: label for place, label in found.items() if place > 0 and label not in others}


def check_places(ood: Mapping[int | str, str], names: Sequence[str], stage: str) -> None:
    """Raise if an out-of-distribution loader is missing or first, or if two loaders would have the same name."""
    places = _found(ood, names)
    missing = [loader for loader in ood if _place(loader, names) is None]
    loaders = ", ".join(f"{place} {name!r}" for place, name in enumerate(names))
    if missing:
        near = get_close_matches(str(missing[0]), names, 1)
        hint = f"did you mean {near[0]!r}? Otherwise " if near else ""
        raise ValueError(
            f"expected ood loader {' and '.join(map(repr, missing))} in {stage}, got {len(names)} in all: {loaders}; "
            f"{hint}give several as a list or a dict, one after the other (CombinedLoader in mode 'sequential'); "
            f"{SEVERAL_LOADERS}"
        )
    if 0 in places:
        raise ValueError(
            f"expected the in-distribution loader first in {stage}, got {places[0]!r}, which is given as ood, "
            f"among {loaders}; put the in-distribution loader first"
        )
    named = [places.get(place, name) for place, name in enumerate(names)]
    if len(set(named[1:])) < len(named) - 1:
        raise ValueError(f"expected a different name for each loader in {stage}, got {', '.join(map(repr, named))}")


def _loop(trainer: Any, stage: str) -> Any:
    """The loop that runs: during `trainer.validate`, `trainer.val_dataloaders` may be those of an earlier fit."""
    if stage == "test":
        return trainer.test_loop
    return trainer.validate_loop if trainer.state.fn == "validate" else trainer.fit_loop.epoch_loop.val_loop


def _paths(loaders: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The names of the leaves: the keys that lead to each of them, as in "ood/svhn"."""
    if isinstance(loaders, Mapping | list | tuple):
        items = loaders.items() if isinstance(loaders, Mapping) else enumerate(loaders)
        for name, part in items:
            yield from _paths(part, (*path, str(name)))
    else:
        yield "/".join(path)


def _found(ood: Mapping[int | str, str], names: Sequence[str]) -> dict[int, str]:
    found = {_place(loader, names): label for loader, label in ood.items()}
    return {place: label for place, label in found.items() if place is not None}


def _place(loader: int | str, names: Sequence[str]) -> int | None:
    if isinstance(loader, int):
        return loader if loader < len(names) else None
    return names.index(loader) if loader in names else None


def _is_place(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _expected(ood: Any) -> str:
    return (
        "expected ood as {index of a loader: name}, as {1: 'svhn'}, or {name: index}, or {name of a loader: name}, or "
        f"a list of names of loaders, with loader 0 in-distribution, got {ood!r}"
    )
