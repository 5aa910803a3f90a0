"""The tally of a batch as Triton kernels; `functional/tally.py` says what is counted and summed.

A program takes `turns` blocks of rows, one row to a thread, and counts and sums them without any other program. Counts
are whole numbers, which are added directly to the states: their sum is the same in any order. The sums of the programs
go to a table, and `sums.collect` adds them up in a fixed order: the result is the same to the last bit in every run.

The bins are a table of rows and bins, of which `width` bins fit into registers. Where there are more, the second axis
of the grid takes the next ones, and only its first programs do what is not about bins. This module needs Triton, and is
imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .addresses import NUMBERS, along, start_of
from .quantities import as_place, counted_rows, forced_gap_of, gap_of, log1p, read_coins, read_wide, settle
from .sums import add_count, add_counts, count_in_bins, sum_in_bins
from .tails import log_p_and_slope

# As in `functional/tally.py`: how many sums there are, and the bins of the gap. The room for these is a power of 2.
SUMS = tl.constexpr(13)
GAP_BINS = tl.constexpr(601)
GAP_ROOM = tl.constexpr(1024)
LOWEST_DECADE = tl.constexpr(-12.0)
BINS_PER_DECADE = tl.constexpr(50.0)
LOG10_E = tl.constexpr(0.43429448190325182)


@triton.jit
def _distance(distance, logits, top, target, is_class, place, inside, size, inner, jump, stride, step):
    """How far the target's logit is below the top: given, or from the one logit that is read again."""
    if distance is not None:
        below = read_wide(distance, place, inside)
    else:
        start = start_of(place, size, inner, jump, stride, 0)
        own = tl.load(logits + start + along(tl.where(is_class, target, 0), step, 0), mask=is_class, other=0.0)
        below = read_wide(top, place, inside) - own.to(tl.float64)
    return below


@triton.jit
def _gap_histogram(gap, valid):
    """How many gaps in each logarithmic bin; those of rows that do not count are in the last place of all."""
    scaled = (tl.log(tl.where(gap > 0.0, gap, 1e-300)) * LOG10_E - LOWEST_DECADE) * BINS_PER_DECADE + 1.0
    place = tl.minimum(tl.maximum(scaled, 0.0), GAP_BINS - 1.0).to(tl.int32)
    return tl.histogram(tl.where(valid, place, GAP_ROOM - 1), GAP_ROOM)


@triton.jit
def _p_values(
    odds, second, third, fourth, target, counted, counts, table,
    size, rivals, ignore_index, trials, steps, alpha, turns, given: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """The sum of the p-values, and how many are at most `alpha`, the bits of a float64."""
    level = alpha.to(tl.int64).to(tl.float64, bitcast=True)
    total, rejected = tl.zeros([block], tl.float64), tl.zeros([block], tl.int32)
    for turn in range(turns):
        place = (tl.program_id(0) * turns + turn).to(tl.int64) * block + tl.arange(0, block)
        inside = place < size
        counting = counted_rows(target, counted, ignore_index, place, inside)
        against, lost, share, free = read_coins(odds, second, third, fourth, place, inside, rivals, given)
        against, lost, share, free, valid, _ = settle(against, lost, share, free, counting)
        p_value = tl.exp(log_p_and_slope(lost, against, trials, steps)[0])
        total += tl.where(valid, p_value, 0.0)
        rejected += (valid & (p_value <= level)).to(tl.int32)
    add_count(counts + 2, rejected)
    tl.store(table + 7 * tl.num_programs(0) + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def _sums(
    prediction, odds, second, third, fourth, top, logits, target, distance, counted, counts, gap_histogram, table,
    size, rivals, inner, jump, stride, step, ignore_index, turns, given: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """All other sums and counts but those in bins."""
    none, zero, histogram = tl.zeros([block], tl.int32), tl.zeros([block], tl.float64), tl.zeros([GAP_ROOM], tl.int32)
    samples, bad, labelled, correct, unlabelled = none, none, none, none, none
    confidences, dominances, gaps, gap_squares = zero, zero, zero, zero
    forced_gaps, free_gaps, concentrations = zero, zero, zero
    losses, confidence_errors, dominance_errors, right_gaps, wrong_gaps = zero, zero, zero, zero, zero
    for turn in range(turns):
        place = (tl.program_id(0) * turns + turn).to(tl.int64) * block + tl.arange(0, block)
        inside = place < size
        counting = counted_rows(target, counted, ignore_index, place, inside)
        against, lost, share, free = read_coins(odds, second, third, fourth, place, inside, rivals, given)
        against, lost, share, free, valid, invalid = settle(against, lost, share, free, counting)
        confidence, dominance = 1.0 / (1.0 + against), 1.0 - lost
        gap = tl.maximum(gap_of(against, lost), 0.0)
        histogram += _gap_histogram(gap, valid)
        samples += valid.to(tl.int32)
        bad += invalid.to(tl.int32)
        confidences += tl.where(valid, confidence, 0.0)
        dominances += tl.where(valid, dominance, 0.0)
        gaps += tl.where(valid, gap, 0.0)
        gap_squares += tl.where(valid, gap * gap, 0.0)
        forced_gaps += forced_gap_of(against, rivals)  # 0 where the row does not count, as the next two
        free_gaps += tl.maximum(free, 0.0)
        concentrations += share
        if target is not None:
            label = tl.load(target + place, mask=inside, other=-1).to(tl.int64)
            has_target = valid & (label >= 0) & (label <= rivals)
            hit = has_target & (label == tl.load(prediction + place, mask=inside, other=-1))
            below = _distance(distance, logits, top, label, has_target, place, inside, size, inner, jump, stride, step)
            unlabelled += (valid & (has_target == 0)).to(tl.int32)
            labelled += has_target.to(tl.int32)
            correct += hit.to(tl.int32)
            miss_by, miss = confidence - hit.to(tl.float64), dominance - hit.to(tl.float64)
            losses += tl.where(has_target, log1p(against) + below, 0.0)
            confidence_errors += tl.where(has_target, miss_by * miss_by, 0.0)
            dominance_errors += tl.where(has_target, miss * miss, 0.0)
            right_gaps += tl.where(hit, gap, 0.0)
            wrong_gaps += tl.where(has_target & (hit == 0), gap, 0.0)
    add_count(counts, samples)
    add_count(counts + 1, bad)
    add_count(counts + 3, labelled)
    add_count(counts + 4, correct)
    add_count(counts + 5, unlabelled)
    gap_bin = tl.arange(0, GAP_ROOM)
    add_counts(gap_histogram + gap_bin, histogram, gap_bin < GAP_BINS)
    own, programs = table + tl.program_id(0), tl.num_programs(0)
    tl.store(own, tl.sum(confidences, 0))
    tl.store(own + programs, tl.sum(dominances, 0))
    tl.store(own + 2 * programs, tl.sum(gaps, 0))
    tl.store(own + 3 * programs, tl.sum(gap_squares, 0))
    tl.store(own + 4 * programs, tl.sum(forced_gaps, 0))
    tl.store(own + 5 * programs, tl.sum(free_gaps, 0))
    tl.store(own + 6 * programs, tl.sum(concentrations, 0))
    tl.store(own + 8 * programs, tl.sum(losses, 0))
    tl.store(own + 9 * programs, tl.sum(confidence_errors, 0))
    tl.store(own + 10 * programs, tl.sum(dominance_errors, 0))
    tl.store(own + 11 * programs, tl.sum(right_gaps, 0))
    tl.store(own + 12 * programs, tl.sum(wrong_gaps, 0))


@triton.jit
def _bins(
    prediction, odds, second, third, fourth, target, counted, bin_counts, table,
    size, rivals, ignore_index, bins, turns, given: tl.constexpr, block: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """Counts and sums in `width` bins of confidence and of dominance."""
    column = tl.program_id(1) * width + tl.arange(0, width)
    samples, nothing = tl.zeros([width], tl.int32), tl.zeros([width], tl.float64)
    labelled, correct, other_labelled, other_correct = samples, samples, samples, samples
    confidences, gaps, labelled_confidences, dominances = nothing, nothing, nothing, nothing
    for turn in range(turns):
        place = (tl.program_id(0) * turns + turn).to(tl.int64) * block + tl.arange(0, block)
        inside = place < size
        counting = counted_rows(target, counted, ignore_index, place, inside)
        against, lost, share, free = read_coins(odds, second, third, fourth, place, inside, rivals, given)
        against, lost, share, free, valid, _ = settle(against, lost, share, free, counting)
        confidence, dominance = 1.0 / (1.0 + against), 1.0 - lost
        gap = tl.maximum(gap_of(against, lost), 0.0)
        hot = as_place(tl.ceil(confidence * bins.to(tl.float64)) - 1.0, bins)[:, None] == column[None, :]
        samples += count_in_bins(hot, valid)
        confidences += sum_in_bins(hot, tl.where(valid, confidence, 0.0))
        gaps += sum_in_bins(hot, tl.where(valid, gap, 0.0))
        if target is not None:
            label = tl.load(target + place, mask=inside, other=-1).to(tl.int64)
            has_target = valid & (label >= 0) & (label <= rivals)
            hit = has_target & (label == tl.load(prediction + place, mask=inside, other=-1))
            labelled += count_in_bins(hot, has_target)
            correct += count_in_bins(hot, hit)
            labelled_confidences += sum_in_bins(hot, tl.where(has_target, confidence, 0.0))
            other = as_place(tl.ceil(dominance * bins.to(tl.float64)) - 1.0, bins)[:, None] == column[None, :]
            other_labelled += count_in_bins(other, has_target)
            other_correct += count_in_bins(other, hit)
            dominances += sum_in_bins(other, tl.where(has_target, dominance, 0.0))
    real = column < bins
    add_counts(bin_counts + column, samples, real)
    add_counts(bin_counts + bins + column, labelled, real)
    add_counts(bin_counts + 2 * bins + column, correct, real)
    add_counts(bin_counts + 3 * bins + column, other_labelled, real)
    add_counts(bin_counts + 4 * bins + column, other_correct, real)
    programs = tl.num_programs(0)
    own = table + tl.program_id(0) + (column + SUMS).to(tl.int64) * programs
    step = bins.to(tl.int64) * programs
    tl.store(own, confidences, mask=real)
    tl.store(own + step, gaps, mask=real)
    tl.store(own + 2 * step, labelled_confidences, mask=real)
    tl.store(own + 3 * step, dominances, mask=real)


# Pointers to what the caller brings are not specialised either: views of larger tensors may begin anywhere.
BROUGHT = ["prediction", "odds", "second", "third", "fourth", "target", "distance", "counted"]
SIZES = ["size", "rivals", *NUMBERS[2:], "ignore_index", "trials", "steps", "alpha", "bins", "turns"]


@triton.jit(do_not_specialize=BROUGHT + SIZES)
def tally(
    prediction, odds, second, third, fourth, top, logits, target, distance, counted,
    counts, gap_histogram, bin_counts, table,
    size, rivals, inner, jump, stride, step, ignore_index, trials, steps, alpha, bins, turns,
    given: tl.constexpr, block: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """Counts to the states, sums to the column of this program in `table`; three loops, to need few registers."""
    if tl.program_id(1) == 0:
        _p_values(
            odds, second, third, fourth, target, counted, counts, table,
            size, rivals, ignore_index, trials, steps, alpha, turns, given, block
        )  # fmt: skip
        _sums(
            prediction, odds, second, third, fourth, top, logits, target, distance, counted,
            counts, gap_histogram, table, size, rivals, inner, jump, stride, step, ignore_index, turns, given, block
        )  # fmt: skip
    _bins(
        prediction, odds, second, third, fourth, target, counted, bin_counts, table,
        size, rivals, ignore_index, bins, turns, given, block, width
    )  # fmt: skip
