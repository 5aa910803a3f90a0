"""`torch-boc probe`: the numbers of each sample."""

import math
from pathlib import Path
from typing import Annotated

import typer

from .options import ENDINGS, Classes, JsonObject, Probabilities, Samples, Trials
from .output import check_output, counting, list_files, print_json, put, sample_file, screen, working

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
    out: Samples = None,
    probabilities: Probabilities = False,
    classes: Classes = None,
    trials: Trials = 100,
    json: JsonObject = False,
) -> None:
    """Confidence, dominance, coherence gap and p-value of each sample.

    Prints their means. With -o it writes a row for each sample: index, target (if there is one), prediction,
    confidence, dominance, gap, forced_gap, free_gap, concentration, p_value, log_p_value, energy, logit_gap, odds,
    loss. An older file of that name is replaced. For probabilities there is no energy, which is always 0 after a
    softmax.

    Parquet files are read by row groups, and arrays are mapped into memory, so that a file may be larger than memory.
    CSV files and compressed arrays of .npz are read as a whole. An error in the last row leaves no output behind.

    Examples:
        torch-boc probe logits.npz
        torch-boc probe logits.npz -o samples.parquet
        torch-boc probe logits.csv -o samples.csv --trials 200 --json
    """
    import torch

    from ..evaluation.separation import LOST
    from ..functional.columns import columns_of
    from ..metrics import BoCMetric
    from .inputs import FileReader

    check_output(out, [path])
    with working(f"reading {path}"):
        data = FileReader(probabilities, classes).stream(path)
    lost = LOST if data.from_probabilities else ()  # what a softmax makes useless
    metric = BoCMetric(trials=trials, validate_args=False)
    with counting("probing", data.rows) as advance, sample_file(out) as write:
        for block in data:
            evidence = metric.take(block.logits, block.target, extras=("margin",) if out else ())
            metric.update(evidence)
            if out is not None:
                index = torch.arange(block.start, block.start + len(block.logits))
                target = {} if block.target is None else {"target": block.target}
                columns = {name: x for name, x in columns_of(evidence).items() if name not in lost}
                write({"index": index, **target, **columns})
            advance(len(block.logits))
    summary = {name: value.item() for name, value in metric.compute().items()}
    rows = data.rows
    if json:
        content = {"name": data.name, "classes": data.num_classes, **summary, "samples": rows}
        print_json({**content, "output": None if out is None else str(out)})
        return
    console = screen()
    put(console, f"{data.name}: {rows:,} samples, {data.num_classes} classes", "bold", soft_wrap=True)
    for key, title in SHOWN.items():
        if not math.isnan(summary[key]):
            console.print(f"{title:<26} {summary[key]:.4f}")
    list_files([] if out is None else [out], console)
