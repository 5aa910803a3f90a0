"""`torch-boc probe`: the numbers of each sample."""

import json as json_format
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from ..core.blocks import block_elements
from ..data.sets import LogitSet
from ..evaluation.detection import LOST
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
    confidence, dominance, gap, forced_gap, free_gap, concentration, p_value, log_p_value, energy, logit_gap. An older
    file of that name is replaced. For probabilities there is no energy, because it is always 0 after a softmax.
    """
    if out is not None:
        check_output(out, [path])
    with working(f"reading {path}"):
        data = FileReader(probabilities, classes).read(path)
    from ..metrics import BoCMetric

    metric = BoCMetric(trials=trials, validate_args=False)
    with counting("probing", len(data)) as advance, sample_file(out) as write:
        for block, rows in _blocks(data):
            evidence = metric.take(data.logits[rows], block.get("target"), extras=("margin",) if out else ())
            metric.update(evidence)
            write({**block, **_columns(data, evidence)} if out is not None else {})
            advance(rows.stop - rows.start)
    summary = {name: value.item() for name, value in metric.compute().items()}
    _print(data, summary, out, json=json)


def _columns(data: LogitSet, evidence: Evidence) -> dict[str, Tensor]:
    """The numbers of some rows, without those that a softmax makes useless."""
    lost = LOST if data.from_probabilities else ()
    return {name: x for name, x in columns_of(evidence).items() if name not in lost}


def _blocks(data: LogitSet) -> Iterator[tuple[dict[str, Tensor], slice]]:
    """Slices of rows of bounded size, each with its columns `index` and `target`."""
    size = max(1, block_elements(data.logits.device) // data.num_classes)
    for start in range(0, len(data), size):
        rows = slice(start, min(start + size, len(data)))
        known = {} if data.target is None else {"target": data.target[rows]}
        yield {"index": torch.arange(rows.start, rows.stop), **known}, rows


def _print(data: LogitSet, summary: Mapping[str, float], out: Path | None, *, json: bool) -> None:
    console = screen()
    if json:
        from ..report.report import strict

        content: dict[str, Any] = {"name": data.name, "classes": data.num_classes, **summary}
        content |= {"samples": len(data), "output": None if out is None else str(out)}
        console.file.write(json_format.dumps(strict(content), allow_nan=False) + "\n")
        return
    put(console, f"{data.name}: {len(data):,} samples, {data.num_classes} classes", "bold", soft_wrap=True)
    for key, title in SHOWN.items():
        if not math.isnan(summary[key]):
            console.print(f"{title:<26} {summary[key]:.4f}")
    list_files([] if out is None else [out], console)
