"""Time the functional core against softmax, a bare read of the logits and the obvious implementation.

`make bench`, or `python -m benchmarks.probe`; writes results/probe.csv, results/targets.csv and results/probe.png.
"""

from collections.abc import Callable

import scipy.stats
import torch
from matplotlib.figure import Figure

from benchmarks.harness import RESULTS, best_times, machine, ratio, target, write_csv
from tests.reference import obvious_probe
from torch_boc.functional import bag_of_coins, binomial_log_tail, flip_coins, log_p_value, sample_wins

SHAPES = ((100_000, 10), (65_536, 100), (16_384, 1_000), (512, 50_257), (256, 128_256))
DTYPES = (torch.float32, torch.bfloat16)
CONTESTANTS = ("amax", "softmax", "coins", "coins compiled", "probe", "probe compiled", "obvious")


def probe(logits: torch.Tensor) -> torch.Tensor:
    """The whole probe: coins and the log of p*."""
    return log_p_value(bag_of_coins(logits))


def compiled(function: Callable[..., object]) -> Callable[..., object]:
    """`function` compiled anew for one shape."""
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=False)


def time_shape(rows: int, classes: int, dtype: torch.dtype) -> dict[str, object]:
    """The times of all contestants on one batch of logits, in milliseconds."""
    logits = (4 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(0))).to(dtype)
    coins_compiled, probe_compiled = compiled(bag_of_coins), compiled(probe)
    best = best_times(
        {
            "amax": lambda: logits.amax(-1),
            "softmax": lambda: logits.softmax(-1),
            "coins": lambda: bag_of_coins(logits),
            "coins compiled": lambda: coins_compiled(logits),
            "probe": lambda: probe(logits),
            "probe compiled": lambda: probe_compiled(logits),
            "obvious": lambda: obvious_probe(logits, 100),
        }
    )
    milliseconds = {name: round(1e3 * best[name], 3) for name in CONTESTANTS}
    return {"rows": rows, "classes": classes, "dtype": str(dtype).removeprefix("torch."), **milliseconds}


def shape_targets(row: dict[str, object]) -> list[dict[str, object]]:
    """The ratios of one batch beside what was aimed at."""
    large = int(str(row["classes"])) >= 1_000
    where = f"({row['rows']}, {row['classes']}) {row['dtype']}"
    found = [target(f"coins / softmax, {where}", ratio(row, "coins", "softmax"), 1.0 if large else 2.5)]
    if large:
        found += [
            target(f"coins compiled / softmax, {where}", ratio(row, "coins compiled", "softmax"), 0.5),
            target(f"probe / obvious, {where}", ratio(row, "probe", "obvious"), 1 / 5),
        ]
    return found


def other_targets() -> list[dict[str, object]]:
    """Tails and sampling, for 100,000 rows and 100 trials."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(100_000, 10, generator=generator)
    coins = bag_of_coins(logits)
    chance = coins.confidence.double()
    wins = torch.round(100 * coins.dominance.double())
    counts, chances = (wins - 1).numpy(), chance.numpy()
    tail_compiled = compiled(lambda odds: binomial_log_tail(wins, 100, odds))
    best = best_times(
        {
            "scipy": lambda: scipy.stats.binom.sf(counts, 100, chances),
            "tail": lambda: binomial_log_tail(wins, 100, coins.odds),
            "tail compiled": lambda: tail_compiled(coins.odds),
            "sample": lambda: sample_wins(coins, 100),
            "flip": lambda: flip_coins(logits, 100),
        }
    )
    return [
        target("binomial_log_tail / scipy.stats.binom.sf", ratio(best, "tail", "scipy"), 1.0),
        target("binomial_log_tail compiled / scipy.stats.binom.sf", ratio(best, "tail compiled", "scipy"), 0.5),
        target("sample_wins / flip_coins", ratio(best, "sample", "flip"), 1 / 20),
    ]


def figure(rows: list[dict[str, object]]) -> Figure:
    """Time of each contestant over that of softmax, a panel for each dtype."""
    drawing = Figure(figsize=(9, 3.6), layout="constrained")
    axes = drawing.subplots(1, len(DTYPES), sharey=True)
    styles = {"obvious": "s--", "probe": "o-", "coins": "^-", "coins compiled": "v-", "amax": "x:"}
    colours = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#666666")
    for axis, dtype in zip(axes, DTYPES, strict=True):
        batch = [row for row in rows if f"torch.{row['dtype']}" == str(dtype)]
        for (name, style), colour in zip(styles.items(), colours, strict=True):
            axis.plot([str(row["classes"]) for row in batch], [ratio(row, name, "softmax") for row in batch], style,
                      color=colour, label=name)  # fmt: skip
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(title=str(dtype).removeprefix("torch."), xlabel="classes", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("time / softmax")
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)
    drawing.suptitle(machine(), fontsize=9)
    return drawing


def main() -> None:
    """Run everything, print the targets, write the results."""
    rows, targets = [], []
    for dtype in DTYPES:
        for rows_, classes in SHAPES:
            rows.append(time_shape(rows_, classes, dtype))
            targets += shape_targets(rows[-1])
    targets += other_targets()
    write_csv(RESULTS / "probe.csv", rows)
    write_csv(RESULTS / "targets.csv", targets)
    figure(rows).savefig(RESULTS / "probe.png", dpi=150)


if __name__ == "__main__":
    main()
