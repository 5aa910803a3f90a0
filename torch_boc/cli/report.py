"""`torch-boc report`, `compare` and `demo`: reports on a user's logits, and on those that come with the package."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, le, lt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..data.atomic import printable
from . import options as o
from .output import choose_folder, list_files, print_json, put, say, show_comparison, show_report, terminal, working

if TYPE_CHECKING:
    from .inputs import Files

GATE = 1


def report(
    path: o.Path,
    ood: o.Ood = None,
    calibration: o.Splits = None,
    train: o.Train = None,
    probabilities: o.Probabilities = False,
    classes: o.Classes = None,
    trials: o.Trials = 100,
    replicates: o.Replicates = 1000,
    seed: o.Seed = 42,
    max_rows: o.MaxRows = 1_000_000,
    out: o.Folder = None,
    fail_if: o.FailIf = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Calibration, OOD detection and the coherence gap of your test logits.

    A file holds "logits" (N, C), perhaps "target" (N), further columns of scores (N), higher = more in-distribution,
    and columns of text, such as file names. CSV and Parquet files have columns logit_0, logit_1, ..., target; with
    --classes, the columns may have the names of the classes. Rows with NaN, or with a target of -100, are left out and
    counted. Probabilities are refused without --probabilities. Pickles are always refused.

    A folder of Parquet files, a pattern in quotes such as "out/part-*.parquet", or a URI such as s3://bucket/folder may
    be larger than memory. Parquet may also hold the columns that BoCPredictor writes, without logits: the report names
    what it leaves out then.

    Examples:
        torch-boc report test.npz
        torch-boc report test.npz --ood svhn=svhn.npz --ood noise.npy
        torch-boc report test.pt --ood svhn.pt --calibration val=val.pt
        torch-boc report test.npz --probabilities
        torch-boc report test.csv --classes cat,dog,ship --json > report.json
        torch-boc report test.npz --fail-if 'ece>0.03' --fail-if 'accuracy<0.9' -q
    """
    from ..report.report import FILES

    folder = choose_folder(out, json=json, files=FILES)
    rules = [_rule(text) for text in fail_if or ()]
    with working("loading libraries") as tell:
        from ..evaluation import evaluate
        from .inputs import Files

        files = Files(probabilities, classes, tell, max_rows, seed)
        known = files.read(path)
        others = files.read_named("--ood", ood, targets=False)
        splits = files.read_named("--calibration", calibration)
        trained = None if train is None else files.read(train)
        how: dict[str, Any] = {"trials": trials, "replicates": replicates, "seed": seed, "progress": tell}
        result = evaluate(known, others, calibration=splits, train=trained, title=printable(path), **how)
        tell("drawing")
        paths = [] if folder is None else result.save(folder)
    _show(result, paths, [result.story.finding, result.story.headline], json=json, quiet=quiet)
    summary, held = result.summary(), []
    for text, name, holds in rules:
        if name not in summary:
            raise ValueError(f"--fail-if: expected a number among {', '.join(summary)}, got {name!r}")
        held += [f"{text} holds: {name} is {summary[name]:.4g}"] if holds(summary[name]) else []
    if held:
        say("; ".join(held))
        raise typer.Exit(GATE)


def _rule(text: str) -> tuple[str, str, Callable[[float], bool]]:
    """The rule itself, its name, and whether a number fulfils it."""
    match = re.fullmatch(r"\s*([^<>=]+?)\s*([<>]=?)\s*([-+.\deE]+)\s*", text)
    if match is None:
        raise ValueError(f"--fail-if: expected a rule such as 'ece>0.03', got {text!r}")
    limit, holds = float(match[3]), {"<": lt, "<=": le, ">": gt, ">=": ge}[match[2]]
    return text, match[1], lambda value: holds(value, limit)


def compare(
    models: o.Models,
    ood: o.OodFiles = None,
    probabilities: o.Probabilities = False,
    classes: o.Classes = None,
    trials: o.Trials = 100,
    replicates: o.Replicates = 1000,
    seed: o.Seed = 42,
    out: o.Folder = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
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
    from .inputs import Files

    named = _name_models(models)
    folder = choose_folder(out, json=json, files=comparison_files(named))
    with working("loading libraries") as tell:
        from ..evaluation import compare as compare_models

        files = Files(probabilities, classes, tell)
        given = {name: Path(path) if _is_report(path) else files.read(path) for name, path in named.items()}
        logits = {name: path for name, path in named.items() if not _is_report(path)}
        how: dict[str, Any] = {"trials": trials, "replicates": replicates, "seed": seed, "progress": tell}
        comparison = compare_models(given, _read_ood(files, ood or [], logits), **how)
        tell("drawing")
        paths = [] if folder is None else comparison.save(folder)
    title = f"Bag of coins: {len(given)} models, side by side"
    _show(comparison, paths, [title], json=json, quiet=quiet)


def demo(name: o.Entry = None, out: o.Folder = None, json: o.Json = False, quiet: o.Quiet = False) -> None:
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
        reports = {}
        for entry in map(zoo.load, zoo.names() if name is None else [name]):
            test, splits = entry.test_and_splits()
            title = f"{entry.name}: {entry.card['model']}, {entry.card['data']}"
            how: dict[str, Any] = {"title": title, "progress": lambda said, at=entry.name: tell(f"{at}: {said}")}
            reports[entry.name] = evaluate(test, entry.ood, calibration=splits, **how)
        result: Any = Comparison(reports) if name is None else reports[name]
        tell("drawing")
        paths = [] if folder is None else result.save(folder)
    titles = [f"Bag of coins: real logits of {len(reports)} models, side by side"]
    if name is not None:
        card = entry.card
        titles = [result.story.finding, f"{card['model']}; {card['data']}, {card['made_on']}"]
    _show(result, paths, titles, json=json, quiet=quiet)


def _name_models(values: Sequence[str]) -> dict[str, str]:
    """The path of each model by its name. A report.json has the name of its folder."""
    from .inputs import split_name

    found: dict[str, str] = {}
    for name, path in map(split_name, values):
        if name == "report" and _is_report(path):
            name = printable(Path(path).absolute().parent.name) or name
        if name in found:
            raise ValueError(f"{path}: expected another name for it, got {name!r} twice; use NAME={path}")
        found[name] = path
    if len(found) < 2:
        raise ValueError(f"expected at least two models to compare, got {len(found)}")
    return found


def _is_report(path: str) -> bool:
    return path.lower().endswith(".json")


def _read_ood(files: "Files", values: Sequence[str], logits: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """For each OOD set, its logits by the name of the model. Models that are reports have none."""
    found: dict[str, dict[str, Any]] = {}
    for value in values:
        name, _, rest = value.partition("=")
        paths = [path for path in rest.split(",") if path]
        if not paths or len(paths) != len(logits):
            raise ValueError(
                f"--ood: expected NAME=PATH,PATH with a file for each of the {len(logits)} models that are given as "
                f"logits, in their order, got {value!r}"
            )
        if printable(name) in found:
            raise ValueError(f"--ood: expected a different name for each set, got {name!r} twice")
        read = (files.read(f"{printable(name)}={path}", targets=False) for path in paths)
        found[printable(name)] = dict(zip(logits, read, strict=True))
    return found


def _show(result: Any, paths: list[Path], titles: list[str], *, json: bool, quiet: bool) -> None:
    """Print a report, or several side by side: as JSON and nothing else, or as tables and a list of the files."""
    if json:
        print_json(result.to_json())
    elif not quiet:
        console = terminal()
        for line, style in zip(titles, ("bold", "dim"), strict=False):
            put(console, line, style)
        several = hasattr(result, "reports")
        (show_comparison if several else show_report)(result, console)
        list_files(paths[:1] if several else paths, console)
