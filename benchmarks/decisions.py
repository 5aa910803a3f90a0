"""How acceptance, tests and alarms decide on the zoo: `python -m benchmarks.decisions`, to results/decisions.md.

Everything is computed from the logits of the zoo with fixed seeds, so that the page is the same on every machine.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import RESULTS, markdown_table, write_page
from torch_boc import Acceptance, ConformalTest, DriftMonitor, zoo
from torch_boc.data import LogitSet
from torch_boc.evaluation.intervals import binomial_interval
from torch_boc.functional import bag_of_coins, p_value
from torch_boc.kernels import use

PAGE = RESULTS / "decisions.md"
# Name, arguments of the test, and in which tables it is.
TESTS: dict[str, dict[str, object]] = {
    "log odds (p̂)": {"score": "log_odds"},
    "energy": {"score": "energy"},
    "GEN": {"score": "gen"},
    "coins, T = 4": {"score": "tempered_dominance"},
    "−ρ at equal confidence": {"score": "concentration", "groups": "confidence"},
    "ρ at equal confidence": {"score": "-concentration", "groups": "confidence"},
}
LEVELS, RATES, ALPHA = (0.05, 0.01), (0.1, 0.2), 0.01
ERRORS, SPLITS = (0.01, 0.02, 0.05), 100
SMALL = 50  # streams of the smaller tables
STREAMS, LENGTH, MIXED = 200, 2_000, 0.3
BEFORE, AFTER = (0, 1_000), 1_000  # samples before and after the change
INTRODUCTION = f"""# Decisions on the zoo

Written by `python -m benchmarks.decisions` from the logits that come with the package.

## Acceptance

`Acceptance().accept(logits, max_error)` with delta = 0.05, in {SPLITS} random splits of the held-out and the test
samples: the share that is accepted and the error among it, on average, in how many splits that error is above the
guaranteed one, and in how many nothing is accepted. The guarantee is about the true error; that of the test part varies
around it, and may exceed it a little more often than in 5 of 100. For comparison: the error of predictions whose
confidence is at least 1 − error, and in how many splits a threshold at which the held-out error itself is `max_error`
breaks the guarantee.
"""
SETS = """`sets(logits, coverage=0.95)` on the same splits: how many sets contain the target, their mean size, and the
share of OOD samples whose set is empty, because no class is probable enough.
"""
LEVEL_TEXT = """## False-positive and detection rates

A test is calibrated on held-out samples and evaluated on the other test samples and on the OOD set. Intervals are those
of Clopper and Pearson for 95 %; they do not include the variation of the held-out set, so a true FPR of 5 % can lie a
little outside.

The share of samples flagged, in percent. In-distribution it is the FPR, which should equal its nominal value for every
score; on the OOD set it is the detection rate. **A valid test can lack power**: where both are equal, the score does
not separate the two sets in its lowest 5 %, even if its AUROC is high. Where far fewer than the nominal share are
flagged, many scores are tied: most ρ of the ResNet are near 1. The paper's test, with its own p-value, is the last row
of each network.
"""
DISCOVERIES = """## Discoveries

A batch of 1,000 test samples and 250 of the OOD set, by the procedure of Benjamini and Hochberg on the p-values of the
log odds, the energy and GEN: the number of discoveries, and the share of test samples among them. The mean of 20
batches, each with its own draw of held-out and test samples.
"""
STREAM = f"""## Alarms

{STREAMS} streams for each row, `DriftMonitor` with alpha = {ALPHA} on the default score, GEN: test samples before the
change, then OOD samples only, or OOD samples with a probability of {MIXED:.0%}. The columns are the samples after the
change until the alarm (median, and for 90 % of the streams), the share of alarms whose range `change` contains the
truth, and how many streams had an alarm before the change. The last column is for {STREAMS} streams of {LENGTH:,} test
samples without a change, drawn with the held-out ones: the probability of an alarm is at most {ALPHA:.0%} each.
"""
BEYOND = f"""Is it more than a shift of confidence? The same streams after {BEFORE[-1]:,} test samples, for a monitor of
ρ among samples of about the same confidence, `ConformalTest("concentration", groups="confidence")`:
"""
OTHERS = f"""The median of {SMALL} streams each, with the number of alarms. *Long*: 10,000 test samples, drawn with
repetition, and then OOD samples only, with alpha = {ALPHA} and with `run_length=100_000`. *Classes*: 500 test samples,
and then {AFTER:,} with a third of the classes, without and with `mix=True`.
"""
DEPENDENT = f"""## Dependent samples void the guarantee

Alarms in {SMALL} streams of 1,000 test samples at alpha = 5 %: in a random order, with each sample twice, and sorted by
class. The last column is the number of streams with each sample twice in which `dependence` warns.
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


def accept_rows(entry: zoo.Entry) -> Iterator[list[str]]:
    """What is accepted at each error, whether the guarantee holds, and what simpler rules do."""
    for error in ERRORS:
        rows = []
        for first, second in random_splits(entry):
            accept = Acceptance().calibrate(first.logits, first.target)
            right, wrong, _ = accept.counts
            upto, bad = (x.flip(0).cumsum(0).flip(0) for x in (right + wrong, wrong))
            lowest = (bad <= error * upto).nonzero()[0]  # the held-out error itself
            rules = {
                "accept": accept.accept(second.logits, error),
                "confident": second.logits.softmax(-1).amax(-1) >= 1 - error,
                "naive": accept.bin_scores(second.logits).bin >= lowest,
            }
            wrong = (second.logits.argmax(-1) != second.target).double()
            rows.append([x for mask in rules.values() for x in (mask.double().mean(), wrong[mask].mean())])
        shares = torch.tensor(rows).double()
        broken = (shares[:, 1::2] > error).sum(0).tolist()
        mean = [f"{100 * x:.1f}" for x in shares[:, :4].nanmean(0).tolist()]
        nothing = int((shares[:, 0] == 0).sum())
        yield [entry.name, f"{error:.0%}", mean[0], mean[1], str(broken[0]), str(nothing), mean[3], str(broken[2])]


def sets_row(entry: zoo.Entry) -> list[str]:
    """Coverage and size of the sets of classes."""
    (ood,) = entry.ood.values()
    rows = []
    for first, second in random_splits(entry, 10):
        accept = Acceptance().calibrate(first.logits, first.target)
        sets, empty = accept.sets(second.logits), accept.sets(ood.logits).sum(1) == 0
        covers = sets.gather(1, second.target.unsqueeze(1))
        rows.append([covers.double().mean(), sets.sum(1).double().mean(), empty.double().mean()])
    covered, size, empty_share = torch.tensor(rows).double().mean(0).tolist()
    return [entry.name, f"{100 * covered:.1f}", f"{size:.2f}", f"{100 * empty_share:.1f}"]


def random_splits(entry: zoo.Entry, number: int = SPLITS) -> Iterator[tuple[LogitSet, ...]]:
    """Held-out and test samples, mixed and divided anew."""
    test, splits = entry.test_and_splits()
    held_out = next(iter(splits.values()))
    logits, target = torch.cat([held_out.logits, test.logits]), torch.cat([held_out.target, test.target])
    for seed in range(number):
        order = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))
        rows = order[: len(held_out)], order[len(held_out) :]
        yield tuple(LogitSet(logits[x], target[x]) for x in rows)


def paper_flags(logits: Tensor, alpha: float) -> Tensor:
    """What the paper's test rejects."""
    return p_value(bag_of_coins(logits)) <= alpha


def level_rows(entry: zoo.Entry) -> Iterator[list[str]]:
    """Level and power of each test, and of the paper's."""
    held_out, test_set, ood = parts(entry)
    for name, options in TESTS.items():
        test = ConformalTest(**options).calibrate(held_out)  # type: ignore[arg-type]
        yield [entry.name, name, *(share(test.flag(x, level)) for level in LEVELS for x in (test_set, ood))]
    yield [entry.name, "the paper's", *(share(paper_flags(x, level)) for level in LEVELS for x in (test_set, ood))]


def discovery_rows(entry: zoo.Entry) -> Iterator[list[str]]:
    """What is found in mixed batches, and how much of it is false."""
    held_out, test_set, ood = parts(entry)
    pool = torch.cat([held_out, test_set])
    for name in list(TESTS)[:3]:
        cells = []
        for rate in RATES:
            counts, false = [], []
            for seed in range(20):
                generator = torch.Generator().manual_seed(seed)
                first, second = draw(pool, len(held_out) + 1_000, generator).split([len(held_out), 1_000])
                batch = torch.cat([second, draw(ood, 250, generator)])
                flags = ConformalTest(**TESTS[name]).calibrate(first).discoveries(batch, rate)  # type: ignore[arg-type]
                counts.append(flags.sum().item())
                false.append(flags[:1_000].sum().item() / max(1, counts[-1]))
            cells += [f"{sum(counts) / 20:.1f}", f"{100 * sum(false) / 20:.1f} %"]
        yield [entry.name, name, *cells]


def draw(logits: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Rows drawn by chance, each at most once."""
    return logits[torch.randperm(len(logits), generator=generator)[:size]]


def alarms(logits: Parts, first: int, chance: float, seed: int, **options: Any) -> tuple[float, bool]:
    """Samples after the change until the alarm, inf without one, and whether its range contains the change."""
    held_out, test_set, ood = logits
    generator = torch.Generator().manual_seed(seed)
    before, after = draw(test_set, first + AFTER, generator).split([first, AFTER])
    foreign = torch.rand(len(after), generator=generator) < chance
    stream = torch.cat([before, torch.where(foreign[:, None], draw(ood, len(after), generator), after)])
    monitor = DriftMonitor(ConformalTest(**options).calibrate(held_out), ALPHA, seed=seed)
    monitor.update(stream)
    low, high = monitor.change or (0, -1)
    return until_alarm(monitor, first), low <= first <= high


def until_alarm(monitor: DriftMonitor, first: int) -> float:
    """Samples from the change to the alarm; inf without an alarm."""
    return int(monitor.alarm_at) - first if bool(monitor.alarm) else math.inf


def false_alarms(held_out: Tensor, test_set: Tensor) -> int:
    """In how many streams of in-distribution samples there is an alarm. All samples are drawn from one pool."""
    pool, count = torch.cat([held_out, test_set]), 0
    for seed in range(STREAMS):
        rows = draw(pool, len(pool), torch.Generator().manual_seed(seed))
        monitor = DriftMonitor(ConformalTest().calibrate(rows[LENGTH:]), ALPHA, seed=seed)
        monitor.update(rows[:LENGTH])
        count += bool(monitor.alarm)
    return count


def quantile(values: Sequence[float], chance: float) -> str:
    """A quantile of numbers of samples."""
    value = sorted(values)[math.ceil(chance * len(values)) - 1]
    return "none" if math.isinf(value) else f"{value:.0f}"


def alarm_cells(logits: Parts, first: int, **options: Any) -> list[str]:
    """How soon alarms come, how many ranges hold the change, and how many are early; for both kinds of change."""
    cells = []
    for chance in (1.0, MIXED):
        outcomes = [alarms(logits, first, chance, seed, **options) for seed in range(STREAMS)]
        late = [at if at > 0 else math.inf for at, _ in outcomes]
        held = [inside for at, inside in outcomes if 0 < at < math.inf]
        share = f"{sum(held) / len(held):.0%}" if held else ""
        cells += [f"{quantile(late, 0.5)} ({quantile(late, 0.9)})", share, str(sum(at <= 0 for at, _ in outcomes))]
    return cells


def other_row(entry: zoo.Entry) -> list[str]:
    """Alarms after a long time, and when classes vanish."""
    held_out, test_set, ood = parts(entry)
    target = entry.test_and_splits()[0].target
    test, cells = ConformalTest().calibrate(held_out), []
    delays: dict[str, list[float]] = {"alpha": [], "run length": [], "scores": [], "mix": []}
    for seed in range(SMALL):
        generator = torch.Generator().manual_seed(seed)
        long = test_set[torch.randint(len(test_set), (10_000,), generator=generator)]
        stream = torch.cat([long, draw(ood, 300, generator)])
        order = torch.randperm(len(test_set), generator=generator)
        kept = torch.randperm(test_set.shape[-1], generator=generator)[: round(test_set.shape[-1] / 3)]
        later = order[500:][torch.isin(target[order[500:]], kept)][:AFTER]
        fewer = test_set[torch.cat([order[:500], later])]
        ways: list[tuple[Tensor, int, dict[str, Any]]] = [
            (stream, 10_000, {"alpha": ALPHA}),
            (stream, 10_000, {"run_length": 100_000}),
            (fewer, 500, {"alpha": ALPHA}),
            (fewer, 500, {"alpha": ALPHA, "mix": True}),
        ]
        for (samples, first, options), times in zip(ways, delays.values(), strict=True):
            monitor = DriftMonitor(test, seed=seed, **options)
            monitor.update(samples)
            times.append(until_alarm(monitor, first))
    for times in delays.values():
        late = [at for at in times if 0 < at < math.inf]
        cells.append(f"{quantile(late, 0.5) if late else 'none'} ({len(late)})")
    return [entry.name, *cells]


def dependent_row(entry: zoo.Entry) -> list[str]:
    """False alarms of samples in a random order, twice each, and sorted."""
    held_out, test_set, _ = parts(entry)
    target = entry.test_and_splits()[0].target
    test, counts, warned = ConformalTest().calibrate(held_out), [0, 0, 0], 0
    for seed in range(SMALL):
        rows = torch.randperm(len(test_set), generator=torch.Generator().manual_seed(seed))[:1_000]
        sorted_rows = rows[target[rows].argsort()]
        for way, stream in enumerate([rows, rows[:500].repeat_interleave(2), sorted_rows]):
            monitor = DriftMonitor(test, LEVELS[0], seed=seed)
            monitor.update(test_set[stream])
            counts[way] += bool(monitor.alarm)
            correlation, error = monitor.dependence
            warned += way == 1 and correlation > 3 * error
    return [entry.name, *map(str, [*counts, warned])]


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
        warnings.simplefilter("ignore", UserWarning)  # groups with few held-out samples, nothing to accept, dependence
        accepted = [row for entry in entries for row in accept_rows(entry)]
        sets = [sets_row(entry) for entry in entries]
        levels = [row for entry in entries for row in level_rows(entry)]
        discoveries = [row for entry in entries for row in discovery_rows(entry)]
        streams = [row for entry in entries for row in stream_rows(entry)]
        beyond = [beyond_row(entry) for entry in entries]
        others = [other_row(entry) for entry in entries]
        dependent = [dependent_row(entry) for entry in entries]
    rules = [
        "coverage %",
        "its error %",
        "broken",
        "nothing accepted",
        "error % of p̂ ≥ 1 − error",
        "held-out error: broken",
    ]
    of_levels = [f"{what} at {level:.0%}" for level in LEVELS for what in ("test set", "OOD set")]
    of_rates = [f"{what} at {rate:.0%}" for rate in RATES for what in ("discoveries", "false")]
    of_streams = [
        *("all OOD: delay", "in range", "early"),
        *(f"{MIXED:.0%} OOD: delay", "in range", "early"),
    ]
    of_others = ["long: alpha", "long: run length", "classes: scores only", "classes: with mix"]
    tables: list[tuple[str, list[str], list[list[str]]]] = [
        (INTRODUCTION, ["error", *rules], accepted),
        (SETS, ["covered %", "mean size", "empty on the OOD set %"], sets),
        (LEVEL_TEXT, ["test", *of_levels], levels),
        (DISCOVERIES, ["test", *of_rates], discoveries),
        (STREAM, ["before", *of_streams, "false alarms"], streams),
        (BEYOND, of_streams, beyond),
        (OTHERS, of_others, others),
        (DEPENDENT, ["random order", "each twice", "sorted", "warned"], dependent),
    ]
    parted = [[text, markdown_table(["network", *header], rows), ""] for text, header, rows in tables]
    return "\n".join(line for part in parted for line in part)


def main() -> None:
    """Write the page."""
    write_page(PAGE, page())


if __name__ == "__main__":
    main()
