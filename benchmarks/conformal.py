"""Time conformal p-values against crepes, and what follows from them: `python -m benchmarks.conformal`.

Writes results/conformal.csv. crepes is given the scores, and makes smoothed p-values of them in NumPy. Our times are
those from the logits of 10 classes: score, p-value, and the decision.
"""

import torch
from crepes.base import p_values_batch

from benchmarks.harness import RESULTS, best_times, target, write_csv
from torch_boc import ConformalTest, DriftMonitor
from torch_boc.functional import compute_scores
from torch_boc.functional.conformal import look_up_ranks, rank_p_values
from torch_boc.functional.score_bins import score_bin

ROWS, CLASSES, HELD_OUT, STREAM = 1_000_000, 10, 5_000, 100_000
OURS, THEIRS, MONITORED = "p-values from logits", "crepes from scores", "a monitored stream"
# Seconds for all rows on two cores.
LIMITS = {OURS: 0.2, "discoveries from logits": 0.5}


def contestants() -> dict[str, object]:
    """What is timed, by name."""
    generator = torch.Generator().manual_seed(0)
    held_out, new = (4 * torch.randn(rows, CLASSES, generator=generator) for rows in (HELD_OUT, ROWS))
    test = ConformalTest().calibrate(held_out)
    reference, scores = (compute_scores(x, ["log_odds"])["log_odds"] for x in (held_out, new))
    upto, crepes = test.counts.cumsum(-1), (-reference.numpy(), -scores.numpy())
    monitor, stream = DriftMonitor(test), new[:STREAM]
    return {
        THEIRS: lambda: p_values_batch(*crepes, seed=0),
        OURS: lambda: test(new),
        "p-values from scores": lambda: rank_p_values(look_up_ranks(test.counts, upto, score_bin(scores, 64))),
        "discoveries from logits": lambda: test.discoveries(new, 0.1),
        "calibration": lambda: ConformalTest().update(new),
        MONITORED: lambda: monitor.update(stream),
    }


def main() -> None:
    """Run, print the targets, write the table."""
    best = best_times(contestants(), seconds=20.0)
    for name, limit in LIMITS.items():
        target(f"seconds for {ROWS:,} {name}", best[name], limit)
    target(f"{OURS} / {THEIRS}", best[OURS] / best[THEIRS], 1 / 20)
    rows = [
        {"what": name, "rows": STREAM if name == MONITORED else ROWS, "seconds": round(time, 4)}
        for name, time in best.items()
    ]
    write_csv(RESULTS / "conformal.csv", rows)


if __name__ == "__main__":
    main()
