"""`torch-boc report`, `compare` and `demo`: reports on a user's logits, and on those of the bundled models."""

import re
import warnings
from collections.abc import Callable, Iterable
from json import loads
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

import typer

from ..data.atomic import check_folder
from ..data.errors import printable
from . import options as o
from .output import Terminal, list_files, print_error, print_json, show_pairs, show_table, spinner

GATE = 1


def report(
    path: o.Path,
    ood: o.Ood = None,
    calibration: o.Splits = None,
    train: o.Train = None,
    probabilities: o.Probabilities = False,
    classes: o.Classes = None,
    max_rows: o.MaxRows = 1_000_000,
    out: o.Folder = None,
    fail_if: o.FailIf = None,
    json: o.Json = False,
) -> None:
    """Report calibration, selective prediction, OOD detection and drift of your test logits.

    A file holds "logits" (N, C), optionally "target" (N), further columns of scores (N), higher = more in-distribution,
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
        torch-boc report test.npz --fail-if 'ece>0.03' --fail-if 'accuracy<0.9'
    """
    from ..report.report import FILES

    folder = _choose_folder(out, json=json, files=FILES)
    rules = [_rule(text) for text in fail_if or ()]
    with spinner("loading libraries") as tell, warnings.catch_warnings():
        from ..calibration import LeakWarning, OverlapWarning
        from ..evaluation import evaluate
        from .inputs import Files

        for kind in () if json else (LeakWarning, OverlapWarning):
            warnings.simplefilter("ignore", kind)  # the report says so
        files = Files(probabilities, classes, tell, max_rows)
        test = files.read(path)
        others = files.read_named("--ood", ood, targets=False)
        splits = files.read_named("--calibration", calibration)
        trained = None if train is None else files.read(train)
        title = printable(path)
        result = evaluate(test, others, calibration=splits, train=trained, title=title, progress=tell)
    _present(result, folder, json=json)
    summary, held = result.summary(), []
    for text, name, holds in rules:
        if name not in summary:
            raise ValueError(f"--fail-if: expected a number among {', '.join(summary)}, got {name!r}")
        held += [f"{text} holds: {name} is {summary[name]:.4g}"] if holds(summary[name]) else []
    if held:
        print_error("; ".join(held))
        raise typer.Exit(GATE)


def _choose_folder(out: str | None, *, json: bool, files: Iterable[str]) -> Path | None:
    """The folder for the report, or None. A folder that cannot be written to is an error before the work begins."""
    return None if json and out is None else check_folder(out or o.FOLDER, files)


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
    out: o.Folder = None,
    json: o.Json = False,
) -> None:
    """Compare models side by side, from their reports or from logits with targets.

    From logits, each model is evaluated. If all files have the same targets in the same order, the differences from the
    first model have paired intervals, which are narrower than those of separate reports.

    Examples:
        torch-boc compare a/report.json b/report.json
        torch-boc compare small=a.npz large=b.npz --out /tmp/both
        torch-boc compare a.npz b.npz --ood svhn=a-svhn.npz,b-svhn.npz --json
    """
    from ..report.comparison import comparison_files
    from .inputs import Files, by_name, split_name

    named = by_name(models)
    folder = _choose_folder(out, json=json, files=comparison_files(named))
    with spinner("loading libraries") as tell:
        from ..evaluation import compare as compare_models

        files, given, others = Files(probabilities, classes, tell), {}, {}
        logits = [name for name, value in named.items() if not value.lower().endswith(".json")]
        for name, value in named.items():
            given[name] = files.read(value) if name in logits else Path(split_name(value)[1])
        for name, value in by_name(ood, "--ood ").items():
            paths = split_name(value)[1].split(",")
            if len(paths) != len(logits):
                each = f"a file for each of the {len(logits)} models that are given as logits, in their order"
                raise ValueError(f"--ood: expected NAME=PATH,PATH with {each}, got {value!r}")
            read = [files.read(f"{name}={path}", targets=False) for path in paths]
            others[name] = dict(zip(logits, read, strict=True))
        comparison = compare_models(given, others, progress=tell)
    _present(comparison, folder, json=json)


def demo(name: o.Entry = None, out: o.Folder = None, json: o.Json = False) -> None:
    """Report on the four bundled models side by side. With NAME, the full report on one of them.

    Calibrators are fitted on samples that the model was not trained on (the first half of the test set if there are no
    others) and, to show the effect, on training samples as in the paper.

    Examples:
        torch-boc demo
        torch-boc demo resnet20-cifar10 --out /tmp/report
        torch-boc demo --json | jq '.[].verdict'
    """
    from .. import zoo
    from ..report.comparison import Comparison, comparison_files
    from ..report.report import FILES

    files = comparison_files(zoo.names()) if name is None else list(FILES)
    folder = _choose_folder(out, json=json, files=files)
    with spinner("loading libraries") as tell, warnings.catch_warnings():
        from ..calibration import LeakWarning
        from ..evaluation import evaluate

        warnings.simplefilter("ignore", LeakWarning)  # one split has training samples on purpose
        reports = {}
        for entry in map(zoo.load, zoo.names() if name is None else [name]):
            test, splits = entry.test_and_splits()
            title = f"{entry.name}: {entry.card['model']}, {entry.card['data']}"
            reports[entry.name] = evaluate(test, entry.ood, calibration=splits, title=title, progress=tell)
    _present(Comparison(reports) if name is None else reports[name], folder, json=json)
    if not json:
        console = Terminal()
        console.print("\nFor your own model:", style="bold")
        console.print("    torch-boc report test.npz --calibration val.npz --ood other.npz", style="cyan")


def _present(result: Any, folder: Path | None, *, json: bool) -> None:
    """Write a report, or several side by side, and print JSON only, or its main numbers and a list of files."""
    from ..report.comparison import Comparison

    with spinner("drawing"):
        paths = [] if folder is None else result.save(folder)
    if json:
        print_json(loads(result.to_json()))
        return
    console = Terminal()
    if isinstance(result, Comparison):
        table = result.glance()
        console.print(f"{len(result.reports)} models side by side", style="bold")
        show_table([table.columns, *([cell.text for cell in row] for row in table.rows)], console)
        for sentence in (*filter(None, [result.reading()]), *result.conclusions()):
            console.print(sentence)
        list_files(paths[:1], console)
        return
    console.print(result.story.finding, style="bold")
    console.print(result.story.headline, style="dim")
    show_pairs(((number.text, f"{number.label}: {number.note}") for number in result.story.numbers), console)
    show_pairs((("!", warning) for warning in result.story.warnings), console)
    console.print("\nRecommended actions", style="bold")
    for text, command in result.story.actions:
        show_pairs([("-", text)], console)
        if command:
            console.print(f"    {command}", style="cyan", soft_wrap=True)
    list_files(paths[:1], console)
