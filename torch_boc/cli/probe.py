"""`torch-boc probe`: the numbers of each sample."""

import json as json_format
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from ..data.inspection import LogitBlock
from ..data.streams import LogitStream
from ..evaluation.separation import LOST
from ..functional.columns import columns_of
from ..functional.evidence import Evidence
from .console import counting, put, screen, working
from .inputs import ENDINGS, FileReader
from .options import Classes, Probabilities, Trials
from .output import list_files
from .samples import check_output, sample_file

SHOWN = {
    "accuracy": "accuracy",
    "confidence": "mean confidence",
    "dominance": "mean dominance",
    "gap": "mean gap",
    "forced_gap": "  forced by confidence",
    "free_gap": "  free",
    "rejection_rate": "rejected at the 5 % level",
}


def probe(
    path: Annotated[Path, typer.Argument(metavar="PATH", help=f"{ENDINGS}.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="A row for each sample: .parquet or .csv.")
    ] = None,
    probabilities: Probabilities = False,
    classes: Classes = None,
    trials: Trials = 100,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Confidence, dominance, coherence gap and p-value of each sample.

    Prints their means. With -o it writes a row for each sample: index, target (if there is one), prediction,
    confidence, dominance, gap, forced_gap, free_gap, concentration, p_value, log_p_value, energy, logit_gap, odds,
    loss. An older file of that name is replaced. For probabilities there is no energy, which is always 0 after a
    softmax.

    Files are read and written in parts, so that memory does not grow with them. Only .pt and .pth, and compressed
    arrays of .npz in the order of Fortran, are read as a whole. An error in the last row still leaves no output behind.
    """
    if out is not None:
        check_output(out, [path])
    with working(f"reading {path}"):
        data = FileReader(probabilities, classes).stream(path)
    from ..metrics import BoCMetric

    metric = BoCMetric(trials=trials, validate_args=False)
    with counting("probing", data.rows) as advance, sample_file(out) as write:
        for block in data:
            evidence = metric.take(block.logits, block.target, extras=("margin",) if out else ())
            metric.update(evidence)
            write({**_known(block), **_columns(data, evidence)} if out is not None else {})
            advance(len(block.logits))
    summary = {name: value.item() for name, value in metric.compute().items()}
    _print(data, summary, out, json=json)


def _known(block: LogitBlock) -> dict[str, Tensor]:
    """The columns `index` and `target` of a block."""
    index = torch.arange(block.start, block.start + len(block.logits))
    return {"index": index} if block.target is None else {"index": index, "target": block.target}


def _columns(data: LogitStream, evidence: Evidence) -> dict[str, Tensor]:
    """The numbers of some rows, without those that a softmax makes useless."""
    lost = LOST if data.from_probabilities else ()
    return {name: x for name, x in columns_of(evidence).items() if name not in lost}


def _print(data: LogitStream, summary: Mapping[str, float], out: Path | None, *, json: bool) -> None:
    console, rows = screen(), data.rows
    if json:
        from ..report.report import strict

        content: dict[str, Any] = {"name": data.name, "classes": data.num_classes, **summary}
        content |= {"samples": rows, "output": None if out is None else str(out)}
        console.file.write(json_format.dumps(strict(content), allow_nan=False) + "\n")
        return
    put(console, f"{data.name}: {rows:,} samples, {data.num_classes} classes", "bold", soft_wrap=True)
    for key, title in SHOWN.items():
        if not math.isnan(summary[key]):
            console.print(f"{title:<26} {summary[key]:.4f}")
    list_files([] if out is None else [out], console)
