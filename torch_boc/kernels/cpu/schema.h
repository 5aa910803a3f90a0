// The table of core/schema.py: names, dtypes and places. The library reports it, and Python refuses one that differs.
#pragma once

#define BOC_LOGIT_TYPES(X) X(float32) X(bfloat16) X(float16) X(float64)
#define BOC_COLUMNS(X)                                                                                                 \
    X(prediction, index) X(top, real) X(odds, real) X(squares, wide) X(mass, wide) X(mass_squares, wide)               \
    X(entropy_sum, real) X(margin, real) X(loss, real) X(gap, wide) X(concentration, real) X(free_gap, real)              \
    X(log_odds, wide) X(tempered_loss, wide) X(top_margin, wide) X(gen, wide) X(distance, wide) X(lost, wide)           \
    X(ahead, index)
#define BOC_COUNTS(X) X(samples) X(invalid) X(rejected) X(labelled) X(correct) X(bad_targets)
#define BOC_SUMS(X)                                                                                                    \
    X(confidence) X(dominance) X(gap) X(gap_square) X(forced_gap) X(free_gap) X(concentration) X(p_value)              \
    X(nll) X(brier_confidence) X(brier_dominance) X(gap_correct) X(gap_wrong)
#define BOC_BIN_COUNTS(X) X(samples) X(labelled) X(correct) X(labelled_by_dominance) X(correct_by_dominance)
#define BOC_BIN_SUMS(X) X(confidence) X(gap) X(labelled_confidence) X(labelled_dominance)
// The bins of the gap, its lowest decade, and the bins of a decade.
#define BOC_GAP_BINS 601
#define BOC_LOWEST_DECADE -12
#define BOC_BINS_PER_DECADE 50

// What boc_gradient is given, what boc_tally is given of each sample, and the tensors of a tally.
#define BOC_PULLS(X)                                                                                                   \
    X(prediction) X(top) X(odds) X(mass) X(on_top) X(on_odds) X(on_squares) X(on_mass) X(on_mass_squares)              \
    X(on_entropy_sum) X(on_margin)
#define BOC_SAMPLES(X) X(target) X(counted) X(prediction) X(odds) X(loss) X(concentration) X(free_gap) X(distance)
#define BOC_STATES(X) X(counts) X(sums) X(gap_histogram) X(bin_counts) X(bin_sums)
// Of the scores: a temperature, a power and how many probabilities it is of, and the nearest rivals; core/schema.py.
#define BOC_TEMPERATURE 4
#define BOC_EXPONENT 0.1
#define BOC_LARGEST 100
#define BOC_FEW_SHARE 2
#define BOC_FEW 10
#define BOC_MANY_SHARE 5
#define BOC_MANY 200

#define BOC_NAME(name, ...) name,
#define BOC_PLACES(space, NAMES)                                                                                       \
    namespace space {                                                                                                  \
    enum { NAMES(BOC_NAME) number };                                                                                   \
    }
enum class Type { BOC_LOGIT_TYPES(BOC_NAME) number };
BOC_PLACES(column, BOC_COLUMNS)
BOC_PLACES(count, BOC_COUNTS)
BOC_PLACES(sum, BOC_SUMS)
BOC_PLACES(bin_count, BOC_BIN_COUNTS)
BOC_PLACES(bin_sum, BOC_BIN_SUMS)
BOC_PLACES(pull, BOC_PULLS)
BOC_PLACES(sample, BOC_SAMPLES)
BOC_PLACES(state, BOC_STATES)
