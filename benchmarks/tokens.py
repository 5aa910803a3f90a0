"""Time what is computed for each token of a language model: `python -m benchmarks.tokens`.

Writes results/tokens.csv. The baseline is `log_softmax` of the same logits, which is what is computed for the
log-probability of a token, and `logsumexp` for the bounds from the log-probabilities that an API returns.
"""

import torch

from benchmarks.harness import RESULTS, best_times, target, write_csv
from torch_boc.functional import bag_of_coins, coins_from_top_k, token_numbers

SHAPES = ((1, 49_152), (8, 49_152), (8, 128_256), (512, 50_257))
ROWS, TOP, VOCABULARY = 1_000_000, 20, 50_257
BASELINE, BOUNDS = "log_softmax", "coins_from_top_k"
# Seconds for all rows on two cores.
LIMIT = 1.0


def of_logits(rows: int, classes: int) -> dict[str, object]:
    """What is timed on logits, by name."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(rows, classes, generator=generator)
    token = torch.randint(classes, (rows,), generator=generator)
    return {
        BASELINE: lambda: logits.log_softmax(-1),
        "bag_of_coins": lambda: bag_of_coins(logits),
        "bag_of_coins(index=)": lambda: bag_of_coins(logits, index=token),
        "token_numbers": lambda: token_numbers(logits, token),
    }


def of_bounds() -> dict[str, object]:
    """The bounds from the 20 largest log-probabilities of a million tokens, in float32 as they are received."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(ROWS // 100, 2_000, generator=generator)
    largest = logits.log_softmax(-1).topk(TOP, -1).values.repeat(100, 1)
    return {
        "logsumexp": lambda: largest.logsumexp(-1),
        BOUNDS: lambda: coins_from_top_k(largest, num_classes=VOCABULARY),
    }


def main() -> None:
    """Run, print the target, write the table."""
    table = []
    for shape, contestants in [*((x, of_logits(*x)) for x in SHAPES), ((ROWS, TOP), of_bounds())]:
        best = best_times(contestants, seconds=8.0)
        baseline = next(iter(best))
        for name, time in best.items():
            ratio = round(time / best[baseline], 3)
            row = {"rows": shape[0], "columns": shape[1], "what": name, "ms": round(1e3 * time, 4)}
            table.append(row | {"baseline": baseline, "ratio": ratio})
            print(f"{shape!s:18} {name:22} {1e3 * time:10.3f} ms  {ratio:8.2f} of {baseline}", flush=True)
        if BOUNDS in best:
            target(f"seconds for {ROWS:,} rows of {BOUNDS}", best[BOUNDS], LIMIT)
    write_csv(RESULTS / "tokens.csv", table)


if __name__ == "__main__":
    main()
