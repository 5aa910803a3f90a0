"""`torch-boc report`: calibration, detection and the coherence gap of a user's logits."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.atomic import printable
from .console import working
from .inputs import ENDINGS, FileReader
from .options import Classes, Json, Out, Probabilities, Replicates, Seed, Trials
from .output import choose_folder, print_report, save_report


def report(
    test: Annotated[
        str,
        typer.Option("--id", metavar="PATH", help=f"In-distribution test logits: {ENDINGS}."),
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
    out: Out = None,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Print nothing; write the files.")] = False,
) -> None:
    """Calibration, OOD detection and the coherence gap of your logits.

    A file holds "logits" (N, C), perhaps "target" (N), and perhaps further columns of scores (N), higher = more
    in-distribution. CSV and Parquet files have columns logit_0, logit_1, ..., target; with --classes, the columns may
    have the names of the classes. Probabilities are refused without --probabilities. Pickles are always refused.
    """
    folder = choose_folder(out, json=json)
    how: dict[str, Any] = {"trials": trials, "replicates": replicates, "seed": seed, "title": printable(test)}
    result = _on_files(test, ood or [], calibration or [], train, FileReader(probabilities, classes), how)
    with working("drawing") as tell:
        paths = save_report(result, folder, tell)
    if json or not quiet:
        from ..report.topics import headline

        print_report(result, paths, title=[f"Bag of coins: {test}", headline(result.results)], json=json)


def _on_files(
    test: str, ood: list[str], calibration: list[str], train: Path | None, files: FileReader, how: dict[str, Any]
) -> Any:
    """The report on files that fit in memory."""
    with working(f"reading {test}") as tell:
        files = replace(files, progress=tell)
        known = files.read(Path(test))
        others = files.read_named("--ood", ood, known)
        splits = files.read_named("--calibration", calibration, known, labelled=True)
        trained = None if train is None else files.read(train, like=known, labelled=True)
        from ..evaluation import evaluate

        return evaluate(known, others or None, calibration=splits or None, train=trained, progress=tell, **how)
