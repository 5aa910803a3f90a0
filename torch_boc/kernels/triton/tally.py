"""The tally of samples as Triton kernels; `core/tally.py` says what is counted and summed.

A program takes `turns` blocks of samples, one sample to a thread, and counts and sums them without any other program.
Counts are whole numbers, which are added directly to the states: their sum is the same in any order. The sums of the
programs go to a table, and `collect` adds them up in a fixed order: every run gives the same bits.

The bins are a table of samples and bins, of which `width` bins fit into registers. Where there are more, the second
axis of the grid takes the next ones, and only its first programs do what is not about bins. This module needs Triton,
and is imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from ...core import schema
from ...core.schema import ALL_SUMS, BinCounts, BinSums, Counts
from .common import log1p
from .tails import ROUND, log_tail_and_slope


def _places(fields, *names):
    """The places of these names, as constants."""
    return [tl.constexpr(fields.index(name)) for name in names]


SAMPLES, INVALID, REJECTED = _places(Counts._fields, "samples", "invalid", "rejected")
LABELLED, CORRECT, BAD_TARGETS = _places(Counts._fields, "labelled", "correct", "bad_targets")
CONFIDENCE, DOMINANCE, GAP, GAP_SQUARE = _places(ALL_SUMS, "confidence", "dominance", "gap", "gap_square")
FORCED_GAP, FREE_GAP, CONCENTRATION = _places(ALL_SUMS, "forced_gap", "free_gap", "concentration")
P_VALUE, NLL, BRIER, BRIER_DOMINANCE = _places(ALL_SUMS, "p_value", "nll", "brier_confidence", "brier_dominance")
GAP_CORRECT, GAP_WRONG = _places(ALL_SUMS, "gap_correct", "gap_wrong")
IN_BIN, LABELLED_IN_BIN, CORRECT_IN_BIN = _places(BinCounts._fields, "samples", "labelled", "correct")
LABELLED_BY_DOMINANCE, CORRECT_BY_DOMINANCE = _places(
    BinCounts._fields, "labelled_by_dominance", "correct_by_dominance"
)
CONFIDENCE_IN_BIN, GAP_IN_BIN = _places(BinSums._fields, "confidence", "gap")
LABELLED_CONFIDENCE, LABELLED_DOMINANCE = _places(BinSums._fields, "labelled_confidence", "labelled_dominance")
SUMS = tl.constexpr(len(ALL_SUMS))
GAP_BINS = tl.constexpr(schema.GAP_BINS)
GAP_ROOM = tl.constexpr(1024)  # a power of 2
LOWEST_DECADE = tl.constexpr(float(schema.LOWEST_DECADE))
BINS_PER_DECADE = tl.constexpr(float(schema.BINS_PER_DECADE))
LOG10_E = tl.constexpr(0.43429448190325182)


@triton.jit
def _is_finite(x):
    return tl.abs(x) < float("inf")


@triton.jit
def _read(odds, loss, share, free, counted, place, inside):
    """Odds, loss, concentration and free gap of each sample, which count, and which are invalid.

    Samples that do not count become sure predictions.
    """
    against, lost = tl.load(odds + place, mask=inside, other=0.0), tl.load(loss + place, mask=inside, other=0.0)
    part, more = tl.load(share + place, mask=inside, other=0.0), tl.load(free + place, mask=inside, other=0.0)
    counting = inside
    if counted is not None:
        counting = inside & (tl.load(counted + place, mask=inside, other=0).to(tl.int32) != 0)
    finite = _is_finite(against) & _is_finite(lost) & _is_finite(part) & _is_finite(more)
    valid, invalid = counting & finite, counting & (finite == 0)
    against, lost = tl.where(valid, against, 0.0), tl.where(valid, lost, 0.0)
    return against, lost, tl.where(valid, part, 0.0), tl.where(valid, more, 0.0), valid, invalid


@triton.jit
def _gap_of(odds, loss):
    return tl.maximum(odds / (1.0 + odds) - loss, 0.0)


@triton.jit
def _labels(prediction, target, valid, rivals, place, inside):
    """Which samples have a target that is a class, and which of them are right."""
    label = tl.load(target + place, mask=inside, other=-1)
    has_target = valid & (label >= 0) & (label <= rivals)
    return has_target, has_target & (label == tl.load(prediction + place, mask=inside, other=-1))


@triton.jit
def _add_count(counts, number):
    tl.atomic_add(counts, tl.sum(number, 0).to(tl.int64), sem="relaxed")


@triton.jit
def _add_counts(counts, numbers, mask):
    tl.atomic_add(counts, numbers.to(tl.int64), mask=mask & (numbers != 0), sem="relaxed")


@triton.jit
def _gap_histogram(gap, valid):
    """How many gaps in each logarithmic bin; those of samples that do not count are in the last place of all."""
    scaled = (tl.log(tl.where(gap > 0.0, gap, 1e-300)) * LOG10_E - LOWEST_DECADE) * BINS_PER_DECADE + 1.0
    place = tl.minimum(tl.maximum(scaled, 0.0), GAP_BINS - 1.0).to(tl.int32)
    return tl.histogram(tl.where(valid, place, GAP_ROOM - 1), GAP_ROOM)


@triton.jit
def _p_values(
    odds, loss, share, free, counted, counts, table, size, trials, steps, alpha, turns, block: tl.constexpr
):  # fmt: skip
    """The sum of the p-values, and how many are at most `alpha`, the bits of a float64."""
    level = alpha.to(tl.int64).to(tl.float64, bitcast=True)
    number = trials.to(tl.float64)
    total, rejected = tl.zeros([block], tl.float64), tl.zeros([block], tl.int32)
    for turn in range(turns):
        place = (tl.program_id(0) * turns + turn).to(tl.int64) * block + tl.arange(0, block)
        against, lost, _, _, valid, _ = _read(odds, loss, share, free, counted, place, place < size)
        wins = (number * (1.0 - lost) + ROUND) - ROUND  # half to even
        p_value = tl.exp(log_tail_and_slope(wins, number, against, steps)[0])
        total += tl.where(valid, p_value, 0.0)
        rejected += (valid & (p_value <= level)).to(tl.int32)
    _add_count(counts + REJECTED, rejected)
    tl.store(table + P_VALUE * tl.num_programs(0) + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def _sums(
    prediction, odds, loss, share, free, target, distance, counted, counts, gap_histogram, table,
    size, rivals, turns, block: tl.constexpr
):  # fmt: skip
    """All other sums and counts but those in bins."""
    none, zero, histogram = tl.zeros([block], tl.int32), tl.zeros([block], tl.float64), tl.zeros([GAP_ROOM], tl.int32)
    samples, bad, labelled, correct, unlabelled = none, none, none, none, none
    confidences, dominances, gaps, gap_squares = zero, zero, zero, zero
    forced_gaps, free_gaps, concentrations = zero, zero, zero
    losses, confidence_errors, dominance_errors, right_gaps, wrong_gaps = zero, zero, zero, zero, zero
    others = rivals.to(tl.float64)
    for turn in range(turns):
        place = (tl.program_id(0) * turns + turn).to(tl.int64) * block + tl.arange(0, block)
        inside = place < size
        against, lost, part, more, valid, invalid = _read(odds, loss, share, free, counted, place, inside)
        confidence, dominance, gap = 1.0 / (1.0 + against), 1.0 - lost, _gap_of(against, lost)
        histogram += _gap_histogram(gap, valid)
        samples += valid.to(tl.int32)
        bad += invalid.to(tl.int32)
        confidences += tl.where(valid, confidence, 0.0)
        dominances += tl.where(valid, dominance, 0.0)
        gaps += tl.where(valid, gap, 0.0)
        gap_squares += tl.where(valid, gap * gap, 0.0)
        # 0 where the sample does not count, as the next two.
        forced_gaps += against * (others - 1.0) / ((1.0 + against) * (others + against))
        free_gaps += tl.maximum(more, 0.0)
        concentrations += part
        if target is not None:
            has_target, hit = _labels(prediction, target, valid, rivals, place, inside)
            below = tl.load(distance + place, mask=has_target, other=0.0)
            unlabelled += (valid & (has_target == 0)).to(tl.int32)
            labelled += has_target.to(tl.int32)
            correct += hit.to(tl.int32)
            miss_by, miss = confidence - hit.to(tl.float64), dominance - hit.to(tl.float64)
            losses += tl.where(has_target, log1p(against) + below, 0.0)
            confidence_errors += tl.where(has_target, miss_by * miss_by, 0.0)
            dominance_errors += tl.where(has_target, miss * miss, 0.0)
            right_gaps += tl.where(hit, gap, 0.0)
            wrong_gaps += tl.where(has_target & (hit == 0), gap, 0.0)
    _add_count(counts + SAMPLES, samples)
    _add_count(counts + INVALID, bad)
    _add_count(counts + LABELLED, labelled)
    _add_count(counts + CORRECT, correct)
    _add_count(counts + BAD_TARGETS, unlabelled)
    gap_bin = tl.arange(0, GAP_ROOM)
    _add_counts(gap_histogram + gap_bin, histogram, gap_bin < GAP_BINS)
    of_sums, programs = table + tl.program_id(0), tl.num_programs(0)
    tl.store(of_sums + CONFIDENCE * programs, tl.sum(confidences, 0))
    tl.store(of_sums + DOMINANCE * programs, tl.sum(dominances, 0))
    tl.store(of_sums + GAP * programs, tl.sum(gaps, 0))
    tl.store(of_sums + GAP_SQUARE * programs, tl.sum(gap_squares, 0))
    tl.store(of_sums + FORCED_GAP * programs, tl.sum(forced_gaps, 0))
    tl.store(of_sums + FREE_GAP * programs, tl.sum(free_gaps, 0))
    tl.store(of_sums + CONCENTRATION * programs, tl.sum(concentrations, 0))
    tl.store(of_sums + NLL * programs, tl.sum(losses, 0))
    tl.store(of_sums + BRIER * programs, tl.sum(confidence_errors, 0))
    tl.store(of_sums + BRIER_DOMINANCE * programs, tl.sum(dominance_errors, 0))
    tl.store(of_sums + GAP_CORRECT * programs, tl.sum(right_gaps, 0))
    tl.store(of_sums + GAP_WRONG * programs, tl.sum(wrong_gaps, 0))


@triton.jit
def _hot(score, column, bins):
    """Which of the bins each score in [0, 1] is in; they are closed on the right."""
    last = bins.to(tl.float64) - 1.0
    place = tl.minimum(tl.maximum(tl.ceil(score * bins.to(tl.float64)) - 1.0, 0.0), last)
    return place.to(tl.int32)[:, None] == column[None, :]


@triton.jit
def _sum_in(hot, value):
    return tl.sum(tl.where(hot, value[:, None], 0.0), 0)


@triton.jit
def _count_in(hot, which):
    return tl.sum((hot & which[:, None]).to(tl.int32), 0)


@triton.jit
def _bins(
    prediction, odds, loss, share, free, target, counted, bin_counts, table,
    size, rivals, bins, turns, block: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """Counts and sums in `width` bins of confidence and of dominance."""
    column = tl.program_id(1) * width + tl.arange(0, width)
    samples, nothing = tl.zeros([width], tl.int32), tl.zeros([width], tl.float64)
    labelled, correct, other_labelled, other_correct = samples, samples, samples, samples
    confidences, gaps, labelled_confidences, dominances = nothing, nothing, nothing, nothing
    for turn in range(turns):
        place = (tl.program_id(0) * turns + turn).to(tl.int64) * block + tl.arange(0, block)
        inside = place < size
        against, lost, _, _, valid, _ = _read(odds, loss, share, free, counted, place, inside)
        confidence, dominance, gap = 1.0 / (1.0 + against), 1.0 - lost, _gap_of(against, lost)
        hot = _hot(confidence, column, bins)
        samples += _count_in(hot, valid)
        confidences += _sum_in(hot, tl.where(valid, confidence, 0.0))
        gaps += _sum_in(hot, tl.where(valid, gap, 0.0))
        if target is not None:
            has_target, hit = _labels(prediction, target, valid, rivals, place, inside)
            labelled += _count_in(hot, has_target)
            correct += _count_in(hot, hit)
            labelled_confidences += _sum_in(hot, tl.where(has_target, confidence, 0.0))
            other = _hot(dominance, column, bins)
            other_labelled += _count_in(other, has_target)
            other_correct += _count_in(other, hit)
            dominances += _sum_in(other, tl.where(has_target, dominance, 0.0))
    real = column < bins
    of_counts = bin_counts + column
    _add_counts(of_counts + IN_BIN * bins, samples, real)
    _add_counts(of_counts + LABELLED_IN_BIN * bins, labelled, real)
    _add_counts(of_counts + CORRECT_IN_BIN * bins, correct, real)
    _add_counts(of_counts + LABELLED_BY_DOMINANCE * bins, other_labelled, real)
    _add_counts(of_counts + CORRECT_BY_DOMINANCE * bins, other_correct, real)
    programs = tl.num_programs(0)
    of_sums = table + tl.program_id(0) + (column + SUMS).to(tl.int64) * programs
    step = bins.to(tl.int64) * programs
    tl.store(of_sums + CONFIDENCE_IN_BIN * step, confidences, mask=real)
    tl.store(of_sums + GAP_IN_BIN * step, gaps, mask=real)
    tl.store(of_sums + LABELLED_CONFIDENCE * step, labelled_confidences, mask=real)
    tl.store(of_sums + LABELLED_DOMINANCE * step, dominances, mask=real)


# Pointers to what the caller brings are not specialised either: views of larger tensors may begin anywhere.
BROUGHT = ["prediction", "odds", "loss", "share", "free", "target", "distance", "counted"]
SIZES = ["size", "rivals", "trials", "steps", "alpha", "bins", "turns"]


@triton.jit(do_not_specialize=BROUGHT + SIZES)
def tally(
    prediction, odds, loss, share, free, target, distance, counted, counts, gap_histogram, bin_counts, table,
    size, rivals, trials, steps, alpha, bins, turns, block: tl.constexpr, width: tl.constexpr, tails: tl.constexpr
):  # fmt: skip
    """Counts to the states, sums to the column of this program in `table`; three loops, to need few registers."""
    if tl.program_id(1) == 0:
        if tails:
            _p_values(odds, loss, share, free, counted, counts, table, size, trials, steps, alpha, turns, block)
        else:
            tl.store(table + P_VALUE * tl.num_programs(0) + tl.program_id(0), 0.0)
        _sums(
            prediction, odds, loss, share, free, target, distance, counted, counts, gap_histogram, table,
            size, rivals, turns, block
        )  # fmt: skip
    _bins(
        prediction, odds, loss, share, free, target, counted, bin_counts, table,
        size, rivals, bins, turns, block, width
    )  # fmt: skip


@triton.jit(do_not_specialize=["first_size", "programs"])
def collect(table, first, second, first_size, programs, block: tl.constexpr):
    """Add the sums of all programs, one row of `table` to one number of the states `first` and then `second`."""
    row = tl.program_id(0)
    lane = tl.arange(0, block)
    totals = tl.zeros([block], tl.float64)
    for start in range(0, programs, block):
        place = start + lane
        totals += tl.load(table + row.to(tl.int64) * programs + place, mask=place < programs, other=0.0)
    total = tl.sum(totals, 0)
    if row < first_size:
        tl.store(first + row, tl.load(first + row) + total)
    else:
        tl.store(second + row - first_size, tl.load(second + row - first_size) + total)
