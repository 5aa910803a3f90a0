"""`torch-boc report`, `compare` and `demo`: reports on a user's logits, and on those that come with the package."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..data.atomic import printable
from .options import ENDINGS, Classes, Json, Out, Probabilities, Replicates, Seed, Trials
from .output import choose_folder, list_files, print_json, put, screen, show_comparison, show_report, size, working

if TYPE_CHECKING:
    from ..data.sets import LogitSet
    from ..zoo import Entry
    from .inputs import FileReader


def report(
    test: Annotated[
        str, typer.Option("--id", metavar="PATH", help=f"In-distribution test logits: {ENDINGS}; or a folder.")
    ],
    ood: Annotated[
        list[str] | None,
        typer.Option("--ood", metavar="[NAME=]PATH", help="Out-of-distribution logits; may be repeated."),
    ] = None,
    calibration: Annotated[
        list[str] | None,
        typer.Option("--calibration", metavar="[NAME=]PATH", help="Logits to fit calibrators on; may be repeated."),
    ] = None,
    train: Annotated[
        Path | None, typer.Option("--train", metavar="PATH", help="Training logits with targets, for Mahalanobis.")
    ] = None,
    probabilities: Probabilities = False,
    classes: Classes = None,
    trials: Trials = 100,
    replicates: Replicates = 1000,
    seed: Seed = 42,
    max_rows: Annotated[
        int, typer.Option("--max-rows", metavar="N", min=1, help="Rows to read of each set; of more, random ones.")
    ] = 1_000_000,
    out: Out = None,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Print nothing; write the files.")] = False,
) -> None:
    """Calibration, OOD detection and the coherence gap of your logits.

    A file holds "logits" (N, C), perhaps "target" (N), and perhaps further columns of scores (N), higher = more
    in-distribution. CSV and Parquet files have columns logit_0, logit_1, ..., target; with --classes, the columns may
    have the names of the classes. Probabilities are refused without --probabilities. Pickles are always refused.

    A folder of Parquet files, a pattern in quotes such as "out/part-*.parquet", or a URI such as s3://bucket/folder may
    be larger than memory. Parquet may also hold the columns that BoCPredictor writes, without logits: the report names
    what it leaves out then.

    Examples:
        torch-boc report --id test.npz
        torch-boc report --id test.npz --ood svhn=svhn.npz --ood noise.npy
        torch-boc report --id test.pt --ood svhn.pt --calibration val=val.pt
        torch-boc report --id test.npz --probabilities
        torch-boc report --id test.csv --classes cat,dog,ship --json > report.json
    """
    from ..report.report import FILES
    from .inputs import FileReader

    folder = choose_folder(out, json=json, files=FILES)
    with working(f"reading {test}") as tell:
        files = FileReader(probabilities, classes, tell, max_rows, seed)
        known = files.read(test, columns=True)
        others = files.read_named("--ood", ood or [], like=known, columns=True)
        splits = files.read_named("--calibration", calibration or [], like=known, labelled=True)
        trained = None if train is None else files.read(train, like=known, labelled=True)
        from ..evaluation import evaluate

        how: dict[str, Any] = {"trials": trials, "replicates": replicates, "seed": seed, "progress": tell}
        how["title"] = printable(test)
        result = evaluate(known, others or None, calibration=splits or None, train=trained, **how)
        tell("drawing")
        paths = [] if folder is None else result.save(folder)
    if json or not quiet:
        from ..report.topics import headline

        _print(result, paths, [f"Bag of coins: {test}", headline(result.results)], json=json)


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

    Examples:
        torch-boc compare a/report.json b/report.json
        torch-boc compare small=a.npz large=b.npz --out /tmp/both
        torch-boc compare a.npz b.npz --ood svhn=a-svhn.npz,b-svhn.npz --json
    """
    from ..report.comparison import comparison_files
    from .inputs import FileReader

    named = _name_models(models)
    folder = choose_folder(out, json=json, files=comparison_files(named))
    with working("loading libraries") as tell:
        from ..evaluation import compare as compare_models

        files = FileReader(probabilities, classes, tell)
        given = {name: path if _is_report(path) else files.read(path) for name, path in named.items()}
        others = _read_ood(files, ood or [], given)
        how: dict[str, Any] = {"trials": trials, "replicates": replicates, "seed": seed, "progress": tell}
        comparison = compare_models(given, others, **how)
        tell("drawing")
        paths = [] if folder is None else comparison.save(folder)
    _print_comparison(comparison, paths, f"Bag of coins: {len(given)} models, side by side", json=json)


def demo(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The whole report on one model, such as resnet20-cifar10.")
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Reports on real logits of several models, side by side. With NAME, the whole report on one model.

    The calibrators are fitted on samples that the network has not seen (the first half of the test set, if there are no
    others), and, where there are any, on samples that it was trained on, as in the paper, which shows their effect.

    Examples:
        torch-boc demo
        torch-boc demo resnet20-cifar10 --out /tmp/report
        torch-boc demo --json | jq '.[].verdict'
    """
    from .. import zoo
    from ..report.comparison import Comparison, comparison_files
    from ..report.report import FILES

    files = comparison_files(zoo.names()) if name is None else list(FILES)
    folder = choose_folder(out, json=json, files=files)
    with working("loading libraries") as tell, warnings.catch_warnings():
        from ..calibration import LeakWarning
        from ..evaluation import evaluate

        warnings.simplefilter("ignore", LeakWarning)  # one split has training samples on purpose
        entries: list[Entry] = [zoo.load(entry) for entry in (zoo.names() if name is None else [name])]
        reports = {}
        for place, entry in enumerate(entries, start=1):
            where = f"{entry.name} ({place} of {len(entries)}): "
            test, splits = entry.test_and_splits()
            title = f"{entry.card['model']}: {entry.card['data']}"
            how: dict[str, Any] = {"title": title, "progress": lambda message, where=where: tell(where + message)}
            reports[entry.name] = evaluate(test, entry.ood, calibration=splits, **how)
        result: Any = Comparison(reports) if name is None else reports[name]
        tell("drawing")
        paths = [] if folder is None else result.save(folder)
    if name is None:
        _print_comparison(result, paths, f"Bag of coins: real logits of {len(reports)} models, side by side", json=json)
    else:
        card = entry.card
        title = f"Bag of coins: {card['name']} ({card['data']}, {card['made_on']})"
        _print(result, paths, [title, str(card["model"])], json=json)


def _name_models(values: Sequence[str]) -> dict[str, Path]:
    """The path of each model by its name. A report.json has the name of its folder."""
    from .inputs import split_name

    found: dict[str, Path] = {}
    for value in values:
        name, source = split_name(value)
        path = Path(source)
        if name == "report" and _is_report(path) and path.absolute().parent.name:
            name = printable(path.absolute().parent.name)
        if name in found:
            raise ValueError(f"{path}: expected another name for it, got {name!r} twice; use NAME={path}")
        found[name] = path
    if len(found) < 2:
        raise ValueError(f"expected at least two models to compare, got {len(found)}")
    return found


def _is_report(path: Path) -> bool:
    return path.suffix.lower() == ".json"


def _read_ood(
    files: "FileReader", values: Sequence[str], models: "dict[str, Path | LogitSet]"
) -> "dict[str, dict[str, LogitSet]]":
    """For each OOD set, its logits by the name of the model. Models that are reports have none."""
    owners = {name: data for name, data in models.items() if not isinstance(data, Path)}
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
        found[printable(name)] = {
            owner: files.read(path, name, like=data, given=f"the model {owner}")
            for (owner, data), path in zip(owners.items(), paths, strict=True)
        }
    return found


def _print(result: Any, paths: list[Path], title: list[str], *, json: bool) -> None:
    """Print the report: as JSON and nothing else, or as tables and a list of the files."""
    if json:
        print_json(result.to_json())
        return
    console = screen()
    for line, style in zip(title, ("bold", "dim"), strict=True):
        put(console, line, style)
    show_report(result, console)
    list_files(paths, console)


def _print_comparison(comparison: Any, paths: list[Path], title: str, *, json: bool) -> None:
    """The same for several reports side by side. The list of files has the page and the folder of each report."""
    if json:
        print_json(comparison.to_json())
        return
    console = screen()
    put(console, title, "bold")
    show_comparison(comparison, console)
    list_files(paths[:1], console)
    for folder in dict.fromkeys(path.parent for path in paths[1:]):
        inside = [path for path in paths if path.parent == folder]
        total = size(sum(path.stat().st_size for path in inside))
        put(console, f"{total:>9}  {folder / 'report.html'} and {len(inside) - 1} more", soft_wrap=True)
