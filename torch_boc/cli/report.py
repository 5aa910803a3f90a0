"""`torch-boc report`: calibration, detection and the coherence gap of a user's logits."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..storage.files import printable
from .console import working
from .inputs import ENDINGS, FileReader, check_name, split_source
from .options import Classes, Json, Out, Probabilities, Replicates, Seed, Trials
from .output import choose_folder, print_report, save_report


def report(
    test: Annotated[
        str,
        typer.Option("--id", metavar="PATH", help=f"In-distribution test logits: {ENDINGS}; or a folder of .parquet."),
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
    num_classes: Annotated[
        int | None,
        typer.Option("--num-classes", metavar="N", min=2, help="Classes of tables of columns that do not tell."),
    ] = None,
    out: Out = None,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Print nothing; write the files.")] = False,
) -> None:
    """Calibration, OOD detection and the coherence gap of your logits.

    A file holds "logits" (N, C), perhaps "target" (N), and perhaps further columns of scores (N), higher = more
    in-distribution. CSV and Parquet files have columns logit_0, logit_1, ..., target; with --classes, the columns may
    have the names of the classes. Probabilities are refused without --probabilities. Pickles are always refused.

    A folder of Parquet files, a pattern in quotes such as "out/part-*.parquet", or a URI such as s3://bucket/folder is
    read in parts, and may be larger than memory. So are Parquet files with the columns that BoCPredictor writes, which
    have no logits: the report names what is left out then.
    """
    folder = choose_folder(out, json=json)
    how: dict[str, Any] = {"trials": trials, "replicates": replicates, "seed": seed, "title": printable(test)}
    from ..evaluation.streamed.sources import needs_parts

    if any(needs_parts(split_source(x)[1] if x is not test else x) for x in (test, *(ood or []))):
        if train is not None:
            raise ValueError(
                "expected no --train for tables that are read in parts, got one: it needs all logits at once"
            )
        how["num_classes"] = num_classes
        result = _on_tables(test, ood or [], calibration or [], FileReader(probabilities, classes), how)
    else:
        result = _on_files(test, ood or [], calibration or [], train, FileReader(probabilities, classes), how)
    with working("drawing") as tell:
        paths = save_report(result, folder, tell)
    if json or not quiet:
        from ..report.measured import headline

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


def _on_tables(test: str, ood: list[str], calibration: list[str], files: FileReader, how: dict[str, Any]) -> Any:
    """The report on tables that are read in parts."""
    from ..evaluation import evaluate_tables

    others: dict[str, str] = {}
    for name, source in map(split_source, ood):
        check_name("--ood", name, source, others)
        others[name] = source
    with working(f"reading {test}") as tell:
        splits = replace(files, progress=tell).read_named("--calibration", calibration, labelled=True)
    kind: dict[str, Any] = {"from_probabilities": files.probabilities, "classes": files.names()}
    return evaluate_tables(test, others or None, calibration=splits or None, **kind, **how)
