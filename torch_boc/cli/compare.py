"""`torch-boc compare`: several models side by side, from their reports or from their logits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.atomic import printable
from ..data.sets import LogitSet
from .console import working
from .inputs import FileReader, split_name
from .options import Classes, Json, Out, Probabilities, Replicates, Seed, Trials
from .output import choose_folder, print_comparison, save_report

REPORT = "report"


def compare(
    models: Annotated[
        list[str], typer.Argument(metavar="[NAME=]PATH...", help="A report.json or a file of logits, for each model.")
    ],
    ood: Annotated[
        list[str] | None,
        typer.Option(
            "--ood",
            metavar="NAME=PATH,PATH...",
            help="An out-of-distribution set: a file of logits for each model, in their order; may be repeated.",
        ),
    ] = None,
    probabilities: Probabilities = False,
    classes: Classes = None,
    trials: Trials = 100,
    replicates: Replicates = 1000,
    seed: Seed = 42,
    out: Out = None,
    json: Json = False,
) -> None:
    """Several models side by side: reports that were written before, or logits with targets.

    Two reports are shown beside each other, with all OOD sets. From logits, each model is evaluated; if all files have
    the same targets in the same order, the differences from the first model have paired intervals, which are narrower.
    """
    from ..report.comparison import comparison_files

    named = name_models(models)
    folder = choose_folder(out, json=json, files=comparison_files(named))
    with working("loading libraries") as tell:
        from ..evaluation import compare as compare_models

        files = FileReader(probabilities, classes, tell)
        given: dict[str, Any] = {name: path if is_report(path) else files.read(path) for name, path in named.items()}
        others = read_ood(files, ood or [], given)
        how: dict[str, Any] = {"trials": trials, "replicates": replicates, "seed": seed, "progress": tell}
        comparison = compare_models(given, others, **how)
        paths = save_report(comparison, folder, tell)
    print_comparison(comparison, paths, title=f"Bag of coins: {len(given)} models, side by side", json=json)


def is_report(path: Path) -> bool:
    return path.suffix.lower() == ".json"


def name_models(values: Sequence[str]) -> dict[str, Path]:
    """The path of each model by its name. A report.json has the name of its folder.

    >>> {name: path.as_posix() for name, path in name_models(["a=x.npz", "runs/b/report.json"]).items()}
    {'a': 'x.npz', 'b': 'runs/b/report.json'}
    """
    found: dict[str, Path] = {}
    for value in values:
        name, path = split_name(value)
        if name == REPORT and is_report(path) and path.absolute().parent.name:
            name = printable(path.absolute().parent.name)
        if name in found:
            raise ValueError(f"{path}: expected another name for it, got {name!r} twice; use NAME={path}")
        found[name] = path
    if len(found) < 2:
        raise ValueError(f"expected at least two models to compare, got {len(found)}")
    return found


def read_ood(files: FileReader, values: Sequence[str], models: dict[str, Any]) -> dict[str, dict[str, LogitSet]]:
    """For each OOD set, its logits by the name of the model. Models that are reports have none."""
    owners = [name for name, source in models.items() if isinstance(source, LogitSet)]
    found: dict[str, dict[str, LogitSet]] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        paths = [Path(path) for path in rest.split(",") if path]
        if not equals or not name:
            raise ValueError(f"--ood: expected NAME=PATH,PATH, got {value!r}")
        if len(paths) != len(owners):
            raise ValueError(
                f"--ood {name}: expected a file for each of the {len(owners)} models that are given as logits, got "
                f"{len(paths)}; write --ood {name}={','.join(f'{owner}.npz' for owner in owners) or 'a.npz,b.npz'}"
            )
        if printable(name) in found:
            raise ValueError(f"--ood: expected a different name for each set, got {name!r} twice")
        pairs = zip(owners, paths, strict=True)
        found[printable(name)] = {
            owner: files.read(path, name, like=models[owner], given=f"the model {owner}") for owner, path in pairs
        }
    return found
