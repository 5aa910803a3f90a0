"""Write what the kernels must move and compute at least: `python -m benchmarks.roofline`, to results/roofline.md."""

import textwrap
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from benchmarks import traffic
from benchmarks.harness import RESULTS, markdown_table, write_page
from benchmarks.probe import DTYPES, SHAPES
from benchmarks.traffic import CARDS, GPUS, SLOW_FLOAT64, Gpu, Traffic, is_long
from torch_boc.core.tails import continued_steps
from torch_boc.kernels.triton.geometry import parts_of

PAGE = RESULTS / "roofline.md"
PIXELS = 8 * 512 * 512  # of eight images
FEW_ROWS = (1, 8, 32, 128)
TRIALS = (1, 100, 1_000, 10_000, 1_000_000)
INTRODUCTION = """# What the kernels must move

Written by `python -m benchmarks.roofline`. **Nothing on this page was measured, and nothing ran on a GPU**: the bytes
follow from the code that starts the kernels, and a time is those bytes over the published memory bandwidth, or
instructions over the published rates (memory and float64: {published}; A100 and H100 are SXM). No launch can be faster;
how close one comes is for `pytest -m gpu` to say. 1 MB is 10^6 bytes."""
SUMS = """## Sums of the rows, one launch

A short row is read once and stays in registers. A long row is read twice, the second time from the L2 cache if it is
still there; where two numbers stand, the second is for the case that it never is. Softmax reads the logits and writes
as much, at the very least."""
INSTRUCTIONS = """## Instructions of the sums

A multiprocessor starts instructions of four warps in a cycle, however fast the memory is. They are counted in what the
assembler makes for an A100 (SASS), on the shortest way through it; per logit, they are those of one thread. The first
time is that of the bytes, the second that of the instructions at the boost clock: no launch can be faster than
either."""
FEW = """Few long rows are split over several programs: three launches in place of one find the tops of the parts, their
sums, and the sums of the rows. The number of parts follows from the rows, the classes and the number of
multiprocessors. The times are those of the instructions, of the multiprocessor that has the most of them; what it takes
to start two more launches, some microseconds, is not in them."""
FLIGHT = """Whether a long row is still in the cache is decided by how many are worked on at once. If nothing but
threads limits that, they are, beside {caches} of L2 cache:"""
GRADIENTS = """## Gradient of the logits, one launch

Every row is read once, long or short, and its gradient is written once. The backward of softmax reads its result and a
gradient, and writes one: three times the logits."""
TAILS = """## P-values, one launch

Two numbers are read and two are written for each row, {each} bytes, but what takes the time is float64: a step of the
continued fraction has {step} instructions, and the rest of a tail about {other} (in the PTX, a division counted as
ten). A GPU starts half as many as the published rate has operations, because that takes a fused multiply-add for two.
Fewer tails than fill the device take longer than their share: each is a chain of instructions that wait for another.

On cards with slow float64, up to {most:,} trials, the steps are computed in pairs of float32: {pair} instructions
a step, none of them of the float64 pipe, with an error of at most 5e-12 beside float64. What is left to the float64
pipe are {other} instructions in place of {before} for 100 trials. The p-values of an image still take longer than all
else: those of {pixels:,} pixels, with 100 trials, at least {slow}."""
LAUNCHES = """## The whole probe

Coins and p-value of one batch are {count} launches where no gradient is needed: one for the sums, {between} for loss,
concentration and free gap ({each} bytes per row, which can stay in the cache, and once more the logits of rows that
nearly tie or whose odds are below 1e-30), and one for the p-values. At the least, with {trials} trials, the first and
the last take, by bytes or by instructions:"""


def batches() -> list[Tensor]:
    """Logits of every shape and dtype, without their memory."""
    return [torch.empty(shape, dtype=dtype, device="meta") for dtype in DTYPES for shape in SHAPES]


def page() -> str:
    """The whole page."""
    peaks = (f"{name}: {x.bandwidth / 1e9:,.0f} GB/s and {x.float64 / 1e12:g} TFLOPS" for name, x in CARDS.items())
    caches = " and ".join(f"{x.cache / 1e6:.0f} MB ({name})" for name, x in GPUS.items())
    parts = [
        _wrap(INTRODUCTION.format(published="; ".join(peaks))),
        _wrap(SUMS),
        traffic_table(traffic.rows_traffic, softmax=2),
        _wrap(INSTRUCTIONS),
        instruction_table(),
        _wrap(FEW),
        few_table(),
        _wrap(FLIGHT.format(caches=caches)),
        flight_table(),
        _wrap(GRADIENTS),
        traffic_table(traffic.gradients_traffic, softmax=3),
        *tails(),
        _wrap(launches()),
        probe_table(GPUS),
        probe_table(SLOW_FLOAT64),
    ]
    return "\n\n".join(parts) + "\n"


def traffic_table(moved_by: Callable[[Tensor], Traffic], *, softmax: int) -> str:
    """Bytes and least times of one kernel, beside softmax, which moves the logits `softmax` times."""
    columns = ["rows", "bytes per row", "read, MB", "written, MB", "of softmax's bytes"]
    columns += [f"{name}, µs" for name in GPUS] + [f"softmax {name}, µs" for name in GPUS]
    rows = []
    for logits in batches():
        moved, theirs = moved_by(logits), softmax * logits.nbytes
        both = sorted({moved.least, moved.most})
        cells = ["long" if is_long(logits) else "short", " / ".join(f"{x / len(logits):,.0f}" for x in both)]
        cells += [
            f"{moved.read / 1e6:.2f}",
            f"{moved.written / 1e6:.2f}",
            " / ".join(f"{x / theirs:.2f}" for x in both),
        ]
        cells += [" / ".join(f"{1e6 * x / gpu.bandwidth:.1f}" for x in both) for gpu in GPUS.values()]
        cells += [f"{1e6 * theirs / gpu.bandwidth:.1f}" for gpu in GPUS.values()]
        rows.append([*_name(logits), *cells])
    return markdown_table(["logits", "dtype", *columns], rows)


def instruction_table() -> str:
    """Instructions per row and per logit, and the times of bytes and of instructions."""
    rows = []
    for logits in batches():
        moved, started = traffic.rows_traffic(logits).least, traffic.row_instructions(logits)
        cells = [f"{started / len(logits):,.0f}", f"{32 * started / logits.numel():.0f}"]
        cells += [f"{1e6 * moved / x.bandwidth:.1f} / {1e6 * started / x.issue:.1f}" for x in CARDS.values()]
        rows.append([*_name(logits), *cells])
    columns = ["of warps, per row", "per logit", *(f"{name}, µs" for name in CARDS)]
    return markdown_table(["logits", "dtype", *columns], rows)


def few_table() -> str:
    """How few long rows are split on each card, and what this saves."""
    rows = []
    for logits in (torch.empty(n, 128_256, dtype=dtype, device="meta") for dtype in DTYPES for n in FEW_ROWS):
        cells = []
        for gpu in CARDS.values():
            parts = parts_of(*logits.shape, gpu.processors)
            times = [f"{1e6 * traffic.split_seconds(logits, gpu, x):.1f}" for x in (1, parts)]
            cells += [str(parts), f"{times[0]} → {times[1]}" if parts > 1 else times[0]]
        rows.append([*_name(logits), *cells])
    columns = [column for name in CARDS for column in (f"parts {name}", f"{name}, µs")]
    return markdown_table(["logits", "dtype", *columns], rows)


def flight_table() -> str:
    """Long rows that are worked on at once."""
    rows = [
        [*_name(logits), *(f"{traffic.bytes_in_flight(logits, gpu) / 1e6:.0f}" for gpu in GPUS.values())]
        for logits in batches()
        if is_long(logits)
    ]
    return markdown_table(["logits", "dtype", *(f"{name}, MB" for name in GPUS)], rows)


def tails() -> list[str]:
    """What a tail takes, and the least times of a million of them, by trials."""
    tails = 10**6
    moved = traffic.tails_traffic(torch.empty(tails, 2, device="meta")).least
    counts = {"step": traffic.STEP_INSTRUCTIONS, "other": traffic.OTHER_INSTRUCTIONS}
    counts |= {"pair": traffic.PAIR_INSTRUCTIONS, "before": traffic.tail_instructions(100)}
    counts |= {"most": traffic.MOST_TRIALS_IN_PAIRS}
    rows = []
    for trials in TRIALS:
        cells = [f"{trials:,}", str(continued_steps(trials)), f"{traffic.tail_instructions(trials):,}"]
        cells += [f"{1e6 * traffic.tail_seconds(tails, trials, gpu):,.0f}" for gpu in CARDS.values()]
        rows.append([*cells, *(f"{1e6 * moved / gpu.bandwidth:.0f}" for gpu in GPUS.values())])
    columns = ["trials", "steps", "instructions per tail", *(f"10^6 tails {name}, µs" for name in CARDS)]
    columns += [f"their {moved // 10**6} MB {name}, µs" for name in GPUS]
    waits = (f"{1e3 * traffic.tail_seconds(PIXELS, 100, x):.1f} ms ({name})" for name, x in SLOW_FLOAT64.items())
    text = TAILS.format(each=moved // tails, pixels=PIXELS, slow=", ".join(waits), **counts)
    return [_wrap(text), markdown_table(columns, rows)]


def launches(trials: int = 100) -> str:
    """How many launches the probe has, the same for every shape."""
    ((count, moved),) = {traffic.probe_launches(logits, trials) for logits in batches()}
    return LAUNCHES.format(count=count, between=count - 2, each=moved, trials=trials)


def probe_table(gpus: Mapping[str, Gpu], trials: int = 100) -> str:
    """Least times of the sums and the p-values, beside softmax."""
    columns = [f"{kernel} {name}, µs" for name in gpus for kernel in ("sums", "p-values", "softmax")]
    rows = []
    for logits in batches():
        cells = []
        for gpu in gpus.values():
            tails = traffic.tail_seconds(len(logits), trials, gpu)
            seconds = [traffic.row_seconds(logits, gpu), tails, 2 * logits.nbytes / gpu.bandwidth]
            cells += [f"{1e6 * x:.1f}" if x >= 5e-8 else "< 0.1" for x in seconds]
        rows.append([*_name(logits), *cells])
    return markdown_table(["logits", "dtype", *columns], rows)


def _wrap(text: str) -> str:
    return "\n\n".join(textwrap.fill(part, 120, break_on_hyphens=False) for part in text.split("\n\n"))


def _name(logits: Tensor) -> list[str]:
    return [f"{logits.shape[0]:,} × {logits.shape[1]:,}", str(logits.dtype).removeprefix("torch.")]


def main() -> None:
    """Write the page."""
    write_page(PAGE, page())


if __name__ == "__main__":
    main()
