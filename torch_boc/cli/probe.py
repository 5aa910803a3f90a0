"""`torch-boc probe`: the numbers of each sample."""

import math

from . import options as o
from .output import STDOUT, Terminal, check_output, list_files, print_json, sample_file, spinner

SHOWN = {
    "accuracy": "accuracy",
    "confidence": "mean confidence",
    "dominance": "mean dominance",
    "gap": "mean gap",
    "forced_gap": "  forced by confidence",
    "free_gap": "  free",
    "rejection_rate": "rejected by the paper's test",
}


def probe(
    path: o.Path,
    out: o.Table = None,
    probabilities: o.Probabilities = False,
    classes: o.Classes = None,
    json: o.Json = False,
) -> None:
    """Confidence, dominance, coherence gap and p-value of each sample.

    Prints their means. With -o it writes one row per sample: index, columns of text, target (if there is one),
    prediction, confidence, dominance, gap, forced_gap, free_gap, concentration, p_value, log_p_value, energy,
    logit_gap, odds, loss. An older file of that name is replaced. For probabilities there is no energy, which is always
    0 after a softmax. Samples with a target of -100 do not count in the means, nor do those with NaN.

    Parquet, .npy, .pt and .safetensors files can exceed memory; text files and .npz are read as a whole. An error in
    the last row leaves no output behind.

    Examples:
        torch-boc probe logits.npz
        torch-boc probe logits.npz -o samples.parquet
        torch-boc probe logits.csv -o samples.csv --json
    """
    from ..data.logit_set import IGNORED_CLASS
    from ..evaluation.gaps import ALPHA
    from ..evaluation.inputs import LOST
    from ..functional.table_columns import columns_of
    from ..metrics import BoCMetric
    from ..report.format import counted
    from .inputs import Files

    check_output(out, [path])
    with spinner(f"reading {path}") as tell, sample_file(out) as write:
        data = Files(probabilities, classes, tell).open(path)
        metric = BoCMetric(ignore_index=IGNORED_CLASS, validate_args=False)
        for block in data:
            stats = metric.extract(block.logits, block.target, extras=("margin",) if out else ())
            metric.update(stats)
            if out is not None:
                target = {} if block.target is None else {"target": block.target}
                columns = {name: x for name, x in columns_of(stats).items() if not probabilities or name not in LOST}
                write({"index": block.row_numbers, **block.notes, **target, **columns}, data.num_classes)
            tell(f"probing {data.name}: {int(block.row_numbers[-1]) + 1:,} of {data.rows:,}")
        summary = {name: value.item() for name, value in metric.compute().items()}
    if json:
        print_json({"name": data.name, "classes": data.num_classes, **summary, "output": out})
        return
    console = Terminal(stderr=out == STDOUT)
    title = f"{data.name}: {counted(data.rows, 'sample')}, {data.num_classes} classes"
    console.print(title, style="bold", soft_wrap=True)
    for key, title in SHOWN.items():
        if not math.isnan(summary[key]):
            console.print(f"{title:<30} {summary[key]:.4f}")
    if data.num_classes > 2 and summary["rejection_rate"] > ALPHA:
        console.print("The paper's test does not hold its level; torch-boc screen has one that does.", style="dim")
    list_files([out], console)
