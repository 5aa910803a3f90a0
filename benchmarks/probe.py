"""Time the functional core against softmax, a bare read of the logits and the obvious implementation.

`make bench`, or `python -m benchmarks.probe`; writes results/probe.csv, results/targets.csv and results/probe.png.
The probe has three paths on a CPU: torch's own operations, kernels in C++ (`torch_boc.kernels.use("native")`), and
torch.compile around the call. Softmax takes part twice: as everybody calls it, and into memory that is there already,
which spares it the time that the system takes to hand out memory.
"""

from collections.abc import Callable
from functools import partial

import scipy.stats
import torch
from matplotlib.figure import Figure

from benchmarks.harness import RESULTS, best_times, machine, ratio, target, write_csv
from tests.reference import obvious_probe
from torch_boc.functional import bag_of_coins, binomial_log_tail, flip_coins, log_p_value, sample_wins
from torch_boc.kernels import use

SHAPES = ((100_000, 10), (65_536, 100), (16_384, 1_000), (512, 50_257), (256, 128_256))
DTYPES = (torch.float32, torch.bfloat16)
PATHS = ("", " in C++", " by torch.compile")
Run = Callable[[], object]


def probe(logits: torch.Tensor) -> torch.Tensor:
    """The whole probe: coins and the log of p*."""
    return log_p_value(bag_of_coins(logits))


def compiled(function: Callable[..., object]) -> Callable[..., object]:
    """`function` compiled anew for one shape."""
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=False)


def in_cpp(function: Callable[..., object]) -> Callable[..., object]:
    """`function` by the kernels in C++."""

    def run(*args: object) -> object:
        with use("native"):
            return function(*args)

    return run


def paths(name: str, function: Callable[..., object], *args: object) -> dict[str, Run]:
    """A contestant for each path."""
    ways = (function, in_cpp(function), compiled(function))
    return {name + path: partial(way, *args) for path, way in zip(PATHS, ways, strict=True)}


def time_shape(rows: int, classes: int, dtype: torch.dtype) -> dict[str, object]:
    """The times of all contestants on one batch of logits, in milliseconds."""
    logits = (4 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(0))).to(dtype)
    there = torch.empty_like(logits)
    best = best_times(
        {
            "amax": lambda: logits.amax(-1),
            "softmax": lambda: logits.softmax(-1),
            "softmax into": lambda: torch.softmax(logits, -1, out=there),
            **paths("coins", bag_of_coins, logits),
            **paths("probe", probe, logits),
            "obvious": lambda: obvious_probe(logits, 100),
        }
    )
    milliseconds = {name: round(1e3 * time, 3) for name, time in best.items()}
    return {"rows": rows, "classes": classes, "dtype": str(dtype).removeprefix("torch."), **milliseconds}


def best_path(row: dict[str, object], name: str) -> str:
    """The contestant among the paths of `name` that took the least time."""
    return min((name + path for path in PATHS), key=lambda contestant: float(str(row[contestant])))


def shape_targets(row: dict[str, object]) -> list[dict[str, object]]:
    """The ratios of one batch beside what was aimed at, on the best path."""
    classes = int(str(row["classes"]))
    where = f"({row['rows']}, {classes}) {row['dtype']}"
    coins, whole = best_path(row, "coins"), best_path(row, "probe")
    found = [
        target(f"{coins} / {baseline}, {where}", ratio(row, coins, baseline), 0.5 if classes >= 1_000 else 1.0)
        for baseline in ("softmax", "softmax into")
    ]
    if classes == 50_257:
        found.append(target(f"{coins} / amax, {where}", ratio(row, coins, "amax"), 3.0))
    if classes != 100:
        limit = 0.1 if classes >= 1_000 else 0.25
        found.append(target(f"{whole} / obvious, {where}", ratio(row, whole, "obvious"), limit))
    return found


def linear_targets() -> list[dict[str, object]]:
    """Time for each logit, over that of the batch in which it is least, from 10^5 to 10^8 logits of 1,000 classes."""
    logits = 4 * torch.randn(100_000, 1_000, generator=torch.Generator().manual_seed(0))
    found = []
    for name, function in (("coins", bag_of_coins), ("coins in C++", in_cpp(bag_of_coins))):
        batches = {str(rows): partial(function, logits[:rows]) for rows in (100, 1_000, 10_000, 100_000)}
        each = {int(rows): time / int(rows) for rows, time in best_times(batches).items()}
        found += [
            target(f"{name}, a logit of {1_000 * rows:,} / the least", time / min(each.values()), 1.1)
            for rows, time in each.items()
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
    best = best_times(
        {
            "scipy": lambda: scipy.stats.binom.sf(counts, 100, chances),
            **paths("tail", lambda odds: binomial_log_tail(wins, 100, odds), coins.odds),
            "sample": lambda: sample_wins(coins, 100),
            "flip": lambda: flip_coins(logits, 100),
        }
    )
    return [
        *(
            target(f"binomial_log_tail{path} / scipy.stats.binom.sf", ratio(best, f"tail{path}", "scipy"), limit)
            for path, limit in zip(PATHS, (1.0, 0.5, 0.5), strict=True)
        ),
        target("sample_wins / flip_coins", ratio(best, "sample", "flip"), 1 / 20),
    ]


def figure(rows: list[dict[str, object]]) -> Figure:
    """Time of each contestant over that of softmax, a panel for each dtype."""
    drawing = Figure(figsize=(9, 3.6), layout="constrained")
    axes = drawing.subplots(1, len(DTYPES), sharey=True)
    styles = {
        "obvious": "s--",
        "probe": "o-",
        "probe in C++": "o--",
        "coins": "^-",
        "coins in C++": "v--",
        "amax": "x:",
    }
    colours = ("#D55E00", "#0072B2", "#0072B2", "#009E73", "#009E73", "#666666")
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
    targets += other_targets() + linear_targets()
    write_csv(RESULTS / "probe.csv", rows)
    write_csv(RESULTS / "targets.csv", targets)
    figure(rows).savefig(RESULTS / "probe.png", dpi=150)


if __name__ == "__main__":
    main()
