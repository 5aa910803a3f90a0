"""How tests, discoveries and alarms decide on the zoo: `python -m benchmarks.decisions`, to results/decisions.md.

Everything is computed from the logits of the zoo with fixed seeds, so that the page is the same on every machine.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import RESULTS, markdown_table, write_page
from torch_boc import ConformalTest, DriftMonitor, zoo
from torch_boc.evaluation.intervals import binomial_interval
from torch_boc.functional import bag_of_coins, p_value
from torch_boc.kernels import use

PAGE = RESULTS / "decisions.md"
# Name, arguments of the test, and in which tables it is.
TESTS: dict[str, dict[str, object]] = {
    "log odds (p̂)": {},
    "energy": {"score": "energy"},
    "GEN": {"score": "gen"},
    "coins, T = 4": {"score": "dominance", "temperature": 4.0},
    "−ρ at equal confidence": {"score": "concentration", "groups": "confidence"},
    "ρ at equal confidence": {"score": "-concentration", "groups": "confidence"},
}
LEVELS, RATES, ALPHA = (0.05, 0.01), (0.1, 0.2), 0.01
STREAMS, LENGTH, MIXED = 200, 2_000, 0.3
BEFORE, AFTER = (0, 1_000), 1_000  # samples before and after the change
INTRODUCTION = """# Decisions on the zoo

Written by `python -m benchmarks.decisions` from the logits that come with the package. A test is calibrated on held-out
samples that the network was not trained on, and tried on the other test samples and on the OOD set. Intervals are those
of Clopper and Pearson for 95 %; they do not contain how the held-out samples vary, so a true level of 5 % can lie a
little outside.

## Level and power

The share that is flagged, in percent. In-distribution it should be the level, whatever the score is; on the OOD set it
is the power. **Valid is not powerful**: where both are equal, the score does not tell the two sets apart in its lowest
5 %, even if its AUROC is high. Where far fewer than the level are flagged, many scores are tied: most ρ of the ResNet
are near 1. The paper's test, which takes its own p-value for the level, is the last row of each network.
"""
DISCOVERIES = """## Discoveries

A batch of 1,000 test samples and 250 of the OOD set, by the procedure of Benjamini and Hochberg on the p-values of the
log odds, the energy and GEN: how many were found, and the share of test samples among them. The mean of 20 batches, for
each of which held-out and test samples were drawn anew.
"""
STREAM = f"""## Alarms

{STREAMS} streams for each row, `DriftMonitor` with alpha = {ALPHA}: test samples before the change, then OOD samples
only, or OOD samples with a chance of {MIXED:.0%}. The columns are the samples after the change until the alarm (median,
and for 90 % of the streams), how far the estimated begin is from the truth (median), and how many streams had an alarm
before the change. The last column is for {STREAMS} streams of {LENGTH:,} test samples without a change, drawn by chance
together with the held-out ones: the chance of an alarm is at most {ALPHA:.0%} for each.
"""
BEYOND = f"""Is it more than a shift of confidence? The same streams after {BEFORE[-1]:,} test samples, for a monitor of
ρ among samples of about the same confidence, `ConformalTest("concentration", groups="confidence")`:
"""


Parts = tuple[Tensor, Tensor, Tensor]


def share(flags: Tensor) -> str:
    """A share with its interval, in percent."""
    low, high = binomial_interval(int(flags.sum()), len(flags))
    return f"{100 * flags.double().mean():.1f} ({100 * low:.1f} to {100 * high:.1f})"


def parts(entry: zoo.Entry) -> Parts:
    """The logits of held-out, test and OOD samples."""
    test, splits = entry.test_and_splits()
    (ood,) = entry.ood.values()
    return next(iter(splits.values())).logits, test.logits, ood.logits


def paper_flags(logits: Tensor, alpha: float) -> Tensor:
    """What the paper's test rejects."""
    return p_value(bag_of_coins(logits)) <= alpha


def level_rows(entry: zoo.Entry) -> Iterator[list[str]]:
    """Level and power of each test, and of the paper's."""
    held_out, known, unknown = parts(entry)
    for name, options in TESTS.items():
        test = ConformalTest(**options).calibrate(held_out)  # type: ignore[arg-type]
        yield [entry.name, name, *(share(test.flag(x, level)) for level in LEVELS for x in (known, unknown))]
    yield [entry.name, "the paper's", *(share(paper_flags(x, level)) for level in LEVELS for x in (known, unknown))]


def discovery_rows(entry: zoo.Entry) -> Iterator[list[str]]:
    """What is found in mixed batches, and how much of it is false."""
    held_out, known, unknown = parts(entry)
    pool = torch.cat([held_out, known])
    for name in list(TESTS)[:3]:
        cells = []
        for rate in RATES:
            found, false = [], []
            for seed in range(20):
                generator = torch.Generator().manual_seed(seed)
                first, second = draw(pool, len(held_out) + 1_000, generator).split([len(held_out), 1_000])
                batch = torch.cat([second, draw(unknown, 250, generator)])
                flags = ConformalTest(**TESTS[name]).calibrate(first).discoveries(batch, rate)  # type: ignore[arg-type]
                found.append(flags.sum().item())
                false.append(flags[:1_000].sum().item() / max(1, found[-1]))
            cells += [f"{sum(found) / 20:.1f}", f"{100 * sum(false) / 20:.1f} %"]
        yield [entry.name, name, *cells]


def draw(logits: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Rows drawn by chance, each at most once."""
    return logits[torch.randperm(len(logits), generator=generator)[:size]]


def alarms(logits: Parts, first: int, chance: float, seed: int, **options: Any) -> tuple[float, float]:
    """Samples after the change until the alarm, and how far its estimated begin is from it; inf without an alarm."""
    held_out, known, unknown = logits
    generator = torch.Generator().manual_seed(seed)
    before, after = draw(known, first + AFTER, generator).split([first, AFTER])
    foreign = torch.rand(len(after), generator=generator) < chance
    stream = torch.cat([before, torch.where(foreign[:, None], draw(unknown, len(after), generator), after)])
    monitor = DriftMonitor(ConformalTest(**options).calibrate(held_out), ALPHA, seed=seed)
    monitor.update(stream)
    at = int(monitor.alarm_at)
    begin = monitor.change
    return (at - first if at else math.inf), (math.inf if begin is None else abs(begin - first))


def false_alarms(held_out: Tensor, known: Tensor) -> int:
    """In how many streams of in-distribution samples there is an alarm. All samples are drawn from one pool."""
    pool, count = torch.cat([held_out, known]), 0
    for seed in range(STREAMS):
        rows = draw(pool, len(pool), torch.Generator().manual_seed(seed))
        monitor = DriftMonitor(ConformalTest().calibrate(rows[LENGTH:]), ALPHA, seed=seed)
        monitor.update(rows[:LENGTH])
        count += bool(monitor.alarm)
    return count


def quantile(values: Sequence[float], chance: float) -> str:
    """A quantile of numbers of samples."""
    found = sorted(values)[math.ceil(chance * len(values)) - 1]
    return "none" if math.isinf(found) else f"{found:.0f}"


def alarm_cells(logits: Parts, first: int, **options: Any) -> list[str]:
    """How soon alarms come, how far their begin is off, and how many are early; for both kinds of change."""
    cells = []
    for chance in (1.0, MIXED):
        found = [alarms(logits, first, chance, seed, **options) for seed in range(STREAMS)]
        late = [at if at > 0 else math.inf for at, _ in found]
        begin, early = quantile([x for _, x in found], 0.5), sum(at <= 0 for at, _ in found)
        cells += [f"{quantile(late, 0.5)} ({quantile(late, 0.9)})", begin, str(early)]
    return cells


def stream_rows(entry: zoo.Entry) -> Iterator[list[str]]:
    """How soon an alarm comes, and how often without a reason."""
    logits = parts(entry)
    without_reason = str(false_alarms(*logits[:2]))
    for first in BEFORE:
        yield [entry.name, f"{first:,}", *alarm_cells(logits, first), without_reason]


def beyond_row(entry: zoo.Entry) -> list[str]:
    """How soon an alarm comes that is none of the confidence."""
    return [entry.name, *alarm_cells(parts(entry), BEFORE[-1], score="concentration", groups="confidence")]


def page() -> str:
    """The whole page."""
    entries = [zoo.load(name) for name in zoo.names()]
    with use("torch"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # groups with few held-out samples
        levels = [row for entry in entries for row in level_rows(entry)]
        found = [row for entry in entries for row in discovery_rows(entry)]
        streams = [row for entry in entries for row in stream_rows(entry)]
        beyond = [beyond_row(entry) for entry in entries]
    of_levels = [f"{what} at {level:.0%}" for level in LEVELS for what in ("test set", "OOD set")]
    of_rates = [f"{what} at {rate:.0%}" for rate in RATES for what in ("found", "false")]
    of_streams = [
        "all OOD: alarm after",
        "begin off by",
        "early",
        f"{MIXED:.0%} OOD: alarm after",
        "begin off by",
        "early",
    ]
    return "\n".join(
        [
            INTRODUCTION,
            markdown_table(["network", "test", *of_levels], levels),
            "",
            DISCOVERIES,
            markdown_table(["network", "test", *of_rates], found),
            "",
            STREAM,
            markdown_table(["network", "before", *of_streams, "false alarms"], streams),
            "",
            BEYOND,
            markdown_table(["network", *of_streams], beyond),
            "",
        ]
    )


def main() -> None:
    """Write the page."""
    write_page(PAGE, page())


if __name__ == "__main__":
    main()
