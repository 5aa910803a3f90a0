"""Time the functional core against softmax, a bare read of the logits and the obvious implementation.

`make bench`, or `python -m benchmarks.probe`; writes results/probe.csv, results/targets.csv and results/probe.png.
The probe has three paths on a CPU: the one that it takes by itself, which is the native library if there is one;
torch's own operations (`torch_boc.kernels.use("torch")`); and torch.compile around the call. The targets are for the
first. Softmax is timed twice: as `torch.softmax(x)`, and as `torch.softmax(x, out=)`, which allocates no memory.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import scipy.stats
import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks.axes import finish, panels, write_on
from benchmarks.harness import RESULTS, best_times, compiled, in_torch, ratio, target, write_csv
from tests.reference import obvious_probe
from torch_boc.data.atomic import write
from torch_boc.functional import bag_of_coins, binomial_log_tail, flip_coins, log_p_value, sample_wins
from torch_boc.plots import BLUE, ORANGE, SKY, image

SHAPES = ((100_000, 10), (65_536, 100), (16_384, 1_000), (512, 50_257), (256, 128_256))
SMALL = ((64, 10), (256, 1_000))
FIGURE = ((64, 10), (100_000, 10), (16_384, 1_000))
DTYPES = (torch.float32, torch.bfloat16)
# Relative to `torch.softmax(out=)`, float32.
LIMITS = {
    (64, 10): 3.0,
    (256, 1_000): 1.0,
    (100_000, 10): 0.15,
    (65_536, 100): 0.8,
    (16_384, 1_000): 0.7,
    (512, 50_257): 0.6,
}
PATHS = ("", " in torch", " by torch.compile")
Run = Callable[[], object]


def probe(logits: Tensor) -> Tensor:
    """The whole probe: coins and the log of p*."""
    return log_p_value(bag_of_coins(logits))


def contestants(logits: Tensor) -> dict[str, Run]:
    """What is timed on one batch of logits."""
    there = torch.empty_like(logits)
    runs: dict[str, Run] = {
        "amax": lambda: logits.amax(-1),
        "softmax": lambda: logits.softmax(-1),
        "softmax into": lambda: torch.softmax(logits, -1, out=there),
        "obvious": lambda: obvious_probe(logits, 100),
    }
    for name, function in (("coins", bag_of_coins), ("probe", probe)):
        ways = (function, in_torch(function), compiled(function))
        runs |= {name + path: partial(way, logits) for path, way in zip(PATHS, ways, strict=True)}
    return runs


def time_shape(rows: int, classes: int) -> list[dict[str, object]]:
    """The times of all contestants in milliseconds, one row per dtype; the dtypes take turns too."""
    logits = 4 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(0))
    by_dtype = {str(dtype).removeprefix("torch."): contestants(logits.to(dtype)) for dtype in DTYPES}
    runs = {f"{dtype} {name}": run for dtype, all_runs in by_dtype.items() for name, run in all_runs.items()}
    # What torch compiles has threads of its own, which keep spinning after a call and slow down whoever comes next.
    apart = {name: run for name, run in runs.items() if name.endswith(PATHS[-1])}
    best = best_times({name: run for name, run in runs.items() if name not in apart}, seconds=6)
    best |= best_times(apart, seconds=3)
    return [
        {"rows": rows, "classes": classes, "dtype": dtype}
        | {name: round(1e3 * best[f"{dtype} {name}"], 4) for name in all_runs}
        for dtype, all_runs in by_dtype.items()
    ]


def shape_targets(table: list[dict[str, object]]) -> list[dict[str, object]]:
    """The ratios of one shape with their targets."""
    targets = []
    for row in table:
        rows, classes = int(str(row["rows"])), int(str(row["classes"]))
        where = f"({rows}, {classes}) {row['dtype']}"
        if row["dtype"] == "float32" and (rows, classes) in LIMITS:
            limit = LIMITS[rows, classes]
            targets.append(target(f"coins / softmax into, {where}", ratio(row, "coins", "softmax into"), limit))
        if classes >= 1_000:
            targets.append(target(f"coins / amax, {where}", ratio(row, "coins", "amax"), 2.5))
        if classes >= 1_000 or classes == 10:
            limit = 1 / 20 if classes >= 1_000 else 1 / 8
            targets.append(target(f"probe / obvious, {where}", ratio(row, "probe", "obvious"), limit))
    single, half = (float(str(row["coins"])) for row in table)
    name = f"coins, bfloat16 / float32, ({table[0]['rows']}, {table[0]['classes']})"
    return [*targets, target(name, half / single, 1.0)]


def linear_targets() -> list[dict[str, object]]:
    """Time for each logit, over that of the batch in which it is least, from 10^6 to 10^8 logits of 1,000 classes."""
    logits = 4 * torch.randn(100_000, 1_000, generator=torch.Generator().manual_seed(0))
    batches = {str(rows): partial(bag_of_coins, logits[:rows]) for rows in (1_000, 10_000, 100_000)}
    each = {int(rows): time / int(rows) for rows, time in best_times(batches).items()}
    return [
        target(f"coins, a logit of {1_000 * rows:,} / the least", time / min(each.values()), 1.1)
        for rows, time in each.items()
    ]


def tail_targets() -> list[dict[str, object]]:
    """Tails and sampling, for 100,000 rows and 100 trials."""
    logits = 4 * torch.randn(100_000, 10, generator=torch.Generator().manual_seed(0))
    coins = bag_of_coins(logits)
    wins = torch.round(100 * coins.dominance.double())
    counts, chances = (wins - 1).numpy(), coins.confidence.double().numpy()
    tail = partial(binomial_log_tail, wins, 100)
    best = best_times(
        {
            "scipy": lambda: scipy.stats.binom.sf(counts, 100, chances),
            "tail": lambda: tail(coins.odds),
            "tail in torch": partial(in_torch(tail), coins.odds),
            "tail by torch.compile": partial(compiled(lambda odds: binomial_log_tail(wins, 100, odds)), coins.odds),
            "sample": lambda: sample_wins(coins, 100),
            "flip": lambda: flip_coins(logits, 100),
        }
    )
    limits = {"tail": 0.25, "tail in torch": 1.0, "tail by torch.compile": 0.5}
    return [
        *(
            target(f"binomial_log_{name} / scipy.stats.binom.sf", ratio(best, name, "scipy"), limit)
            for name, limit in limits.items()
        ),
        target("sample_wins / flip_coins", ratio(best, "sample", "flip"), 1 / 20),
    ]


def figure(rows: Sequence[Mapping[str, object]]) -> Figure:
    """Time of the whole probe by three ways, a panel for each of three sizes."""
    drawing, axes = panels(3, (2.9, 1.9))
    ways = {"naive torch + SciPy": "obvious", "torch operations": "probe in torch", "native": "probe"}
    single = {(int(str(row["rows"])), int(str(row["classes"]))): row for row in rows if row["dtype"] == "float32"}
    for axis, shape in zip(axes, FIGURE, strict=True):
        times = [float(str(single[shape][name])) for name in ways.values()]
        axis.barh(range(3), times, color=(ORANGE, SKY, BLUE), height=0.65)
        for row, time in enumerate(times):
            write_on(axis, time, row, f"{time:.3g} ms", xytext=(4, -3))
        axis.set(title="{:,} × {:,} logits".format(*shape), xlabel="ms", xlim=(0, 1.6 * max(times)), ylim=(2.6, -0.6))
        axis.set_yticks(range(3), ways if axis is axes[0] else [""] * 3)
    finish(drawing, axes, None)
    for axis in axes:
        axis.grid(visible=False, axis="y")  # it would cross the numbers
    return drawing


def main() -> None:
    """Run everything, print the targets, write the results."""
    rows, targets = [], []
    for shape in (*SMALL, *SHAPES):
        rows += time_shape(*shape)
        targets += shape_targets(rows[-len(DTYPES) :])
    targets += [*tail_targets(), *linear_targets()]
    write_csv(RESULTS / "probe.csv", rows)
    write_csv(RESULTS / "targets.csv", targets)
    write(RESULTS / "probe.png", image(figure(rows), "png"))


if __name__ == "__main__":
    main()
