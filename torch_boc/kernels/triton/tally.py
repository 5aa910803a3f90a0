"""The tally of a batch as Triton kernels; `functional/tally.py` says what is counted and summed.

A program takes `turns` blocks of rows, one row to a thread, and counts and sums them without any other program. Counts
are whole numbers, which are added to the states at once: their sum is the same in any order. The sums of the programs
go to a table, and `sums.collect` adds them up in a fixed order: the result is the same to the last bit in every run.

The bins are a table of rows and bins, of which `width` bins fit into registers. Where there are more, the second axis
of the grid takes the next ones, and only its first programs do what is not about bins. This module needs Triton, and is
imported when the first kernel is launched.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .quantities import as_place, counted_rows, forced_gap_of, gap_of, log1p, read_coins, read_wide, settle
from .sums import add_count, add_counts, count_in_bins, sum_in_bins
from .tails import log_p_and_slope

# As in `functional/tally.py`: the counts, the sums, and the histogram of the gap with its room in a power of 2.
SUMS = tl.constexpr(13)
BIN_SUMS = tl.constexpr(4)
GAP_BINS = tl.constexpr(601)
GAP_ROOM = tl.constexpr(1024)
LOWEST_DECADE = tl.constexpr(-12.0)
BINS_PER_DECADE = tl.constexpr(50.0)
LOG10_E = tl.constexpr(0.43429448190325182)


@triton.jit
def _distance(distance, logits, top, target, is_class, place, inside, stride):
    """How far the target's logit is below the top: given, or from the one logit that is read again."""
    if distance is not None:
        below = read_wide(distance, place, inside)
    else:
        own = tl.load(logits + place * stride + tl.where(is_class, target, 0), mask=is_class, other=0.0)
        below = read_wide(top, place, inside) - own.to(tl.float64)
    return below


@triton.jit
def _gap_histogram(gap, valid):
    """How many gaps in each logarithmic bin; those of rows that do not count are in the last place of all."""
    scaled = (tl.log(tl.where(gap > 0.0, gap, 1e-300)) * LOG10_E - LOWEST_DECADE) * BINS_PER_DECADE + 1.0
    place = tl.minimum(tl.maximum(scaled, 0.0), GAP_BINS - 1.0).to(tl.int32)
    return tl.histogram(tl.where(valid, place, GAP_ROOM - 1), GAP_ROOM)


@triton.jit(do_not_specialize=["size", "rivals", "stride", "ignore_index", "trials", "steps", "alpha", "bins", "turns"])
def tally(
    prediction, odds, second, third, fourth, top, logits, target, distance, counted,
    counts, gap_histogram, bin_counts, table,
    size, rivals, stride, ignore_index, trials, steps, alpha, bins, turns,
    given: tl.constexpr, block: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """Counts to the states, sums to the column of this program in `table`; `alpha` is the bits of a float64."""
    program, programs, first = tl.program_id(0), tl.num_programs(0), tl.program_id(1) == 0
    level = alpha.to(tl.int64).to(tl.float64, bitcast=True)
    column = tl.program_id(1) * width + tl.arange(0, width)
    none, zero, nothing = tl.zeros([block], tl.int32), tl.zeros([block], tl.float64), tl.zeros([width], tl.float64)
    samples, bad, rejected, labelled, correct, unlabelled = none, none, none, none, none, none
    confidences, dominances, gaps, gap_squares = zero, zero, zero, zero
    forced_gaps, free_gaps, concentrations, p_values = zero, zero, zero, zero
    losses, confidence_errors, dominance_errors, right_gaps, wrong_gaps = zero, zero, zero, zero, zero
    histogram = tl.zeros([GAP_ROOM], tl.int32)
    bin_samples = tl.zeros([width], tl.int32)
    bin_labelled, bin_correct, other_labelled, other_correct = bin_samples, bin_samples, bin_samples, bin_samples
    bin_confidence, bin_gap, bin_labelled_confidence, bin_dominance = nothing, nothing, nothing, nothing
    for turn in range(turns):
        place = (program * turns + turn).to(tl.int64) * block + tl.arange(0, block)
        inside = place < size
        counting = counted_rows(target, counted, ignore_index, place, inside)
        against, lost, share, free = read_coins(odds, second, third, fourth, place, inside, rivals, given)
        against, lost, share, free, valid, invalid = settle(against, lost, share, free, counting)
        confidence, dominance = 1.0 / (1.0 + against), 1.0 - lost
        gap = tl.maximum(gap_of(against, lost), 0.0)
        if target is not None:
            label = tl.load(target + place, mask=inside, other=-1).to(tl.int64)
            has_target = valid & (label >= 0) & (label <= rivals)
            hit = has_target & (label == tl.load(prediction + place, mask=inside, other=-1))
            below = _distance(distance, logits, top, label, has_target, place, inside, stride)
            unlabelled += (valid & (has_target == 0)).to(tl.int32)
        by_confidence = as_place(tl.ceil(confidence * bins.to(tl.float64)) - 1.0, bins)[:, None] == column[None, :]
        bin_samples += count_in_bins(by_confidence, valid)
        bin_confidence += sum_in_bins(by_confidence, tl.where(valid, confidence, 0.0))
        bin_gap += sum_in_bins(by_confidence, tl.where(valid, gap, 0.0))
        if target is not None:
            by_dominance = as_place(tl.ceil(dominance * bins.to(tl.float64)) - 1.0, bins)[:, None] == column[None, :]
            bin_labelled += count_in_bins(by_confidence, has_target)
            bin_correct += count_in_bins(by_confidence, hit)
            other_labelled += count_in_bins(by_dominance, has_target)
            other_correct += count_in_bins(by_dominance, hit)
            bin_labelled_confidence += sum_in_bins(by_confidence, tl.where(has_target, confidence, 0.0))
            bin_dominance += sum_in_bins(by_dominance, tl.where(has_target, dominance, 0.0))
        if first:
            p_value = tl.exp(log_p_and_slope(lost, against, trials, steps)[0])
            histogram += _gap_histogram(gap, valid)
            samples += valid.to(tl.int32)
            bad += invalid.to(tl.int32)
            rejected += (valid & (p_value <= level)).to(tl.int32)
            confidences += tl.where(valid, confidence, 0.0)
            dominances += tl.where(valid, dominance, 0.0)
            gaps += tl.where(valid, gap, 0.0)
            gap_squares += tl.where(valid, gap * gap, 0.0)
            forced_gaps += forced_gap_of(against, rivals)  # 0 where the row does not count, as the next two
            free_gaps += tl.maximum(free, 0.0)
            concentrations += share
            p_values += tl.where(valid, p_value, 0.0)
            if target is not None:
                labelled += has_target.to(tl.int32)
                correct += hit.to(tl.int32)
                miss_by, miss = confidence - hit.to(tl.float64), dominance - hit.to(tl.float64)
                losses += tl.where(has_target, log1p(against) + below, 0.0)
                confidence_errors += tl.where(has_target, miss_by * miss_by, 0.0)
                dominance_errors += tl.where(has_target, miss * miss, 0.0)
                right_gaps += tl.where(hit, gap, 0.0)
                wrong_gaps += tl.where(has_target & (hit == 0), gap, 0.0)
    real = column < bins
    add_counts(bin_counts + column, bin_samples, real)
    add_counts(bin_counts + bins + column, bin_labelled, real)
    add_counts(bin_counts + 2 * bins + column, bin_correct, real)
    add_counts(bin_counts + 3 * bins + column, other_labelled, real)
    add_counts(bin_counts + 4 * bins + column, other_correct, real)
    own = table + program
    in_bins = own + (column + SUMS).to(tl.int64) * programs
    step = bins.to(tl.int64) * programs
    tl.store(in_bins, bin_confidence, mask=real)
    tl.store(in_bins + step, bin_gap, mask=real)
    tl.store(in_bins + 2 * step, bin_labelled_confidence, mask=real)
    tl.store(in_bins + 3 * step, bin_dominance, mask=real)
    if first:
        add_count(counts, samples)
        add_count(counts + 1, bad)
        add_count(counts + 2, rejected)
        add_count(counts + 3, labelled)
        add_count(counts + 4, correct)
        add_count(counts + 5, unlabelled)
        gap_bin = tl.arange(0, GAP_ROOM)
        add_counts(gap_histogram + gap_bin, histogram, gap_bin < GAP_BINS)
        tl.store(own, tl.sum(confidences, 0))
        tl.store(own + programs, tl.sum(dominances, 0))
        tl.store(own + 2 * programs, tl.sum(gaps, 0))
        tl.store(own + 3 * programs, tl.sum(gap_squares, 0))
        tl.store(own + 4 * programs, tl.sum(forced_gaps, 0))
        tl.store(own + 5 * programs, tl.sum(free_gaps, 0))
        tl.store(own + 6 * programs, tl.sum(concentrations, 0))
        tl.store(own + 7 * programs, tl.sum(p_values, 0))
        tl.store(own + 8 * programs, tl.sum(losses, 0))
        tl.store(own + 9 * programs, tl.sum(confidence_errors, 0))
        tl.store(own + 10 * programs, tl.sum(dominance_errors, 0))
        tl.store(own + 11 * programs, tl.sum(right_gaps, 0))
        tl.store(own + 12 * programs, tl.sum(wrong_gaps, 0))
