// One call adds a batch to the states of a metric; functional/tally.py has the formulas.
#include "tally.h"

// The bin of a number in [0, 1] among equal ones, closed on the right; see functional/bins.py.
static inline Longs equal_bin(Doubles score, double bins) {
    const Doubles place = ceil_of(score * bins) - 1.0;
    return __builtin_convertvector(place < 0.0 ? doubles(0.0) : place > bins - 1.0 ? doubles(bins - 1.0) : place, Longs);
}

// The place of a gap in the histogram, from a number that may be off by an ulp: where that could matter, which is
// beside an edge, the C library has the last word.
static inline int64_t gap_bin(double gap, double near) {
    if (near <= 0.5) return 0;
    const double edge = near - double(int64_t(near));
    if (__builtin_expect(edge < 1e-9 || edge > 1.0 - 1e-9, 0))
        near = (std::log10(gap) - LOWEST_DECADE) * BINS_PER_DECADE + 1.0;
    return near < GAP_BINS - 1.0 ? int64_t(near) : GAP_BINS - 1;
}
static inline Doubles near_gap_bin(Doubles gap) {
    const Doubles near = (log_of(gap) * 0.43429448190325182765 - LOWEST_DECADE) * BINS_PER_DECADE + 1.0;
    return near < 0.0 ? doubles(0.0) : near > double(GAP_BINS) ? doubles(GAP_BINS) : near;
}

void Partial::add(const Samples &of, int64_t count, const View &view) {
    const double b = double(view.bins);
    for (int64_t i = 0; i < count; i += WIDE) {
        const Longs counted = load_as<Longs>(of.counted + i) & (WIDE_LANE < count - i);
        Doubles odds = load_as<Doubles>(of.odds + i), loss = load_as<Doubles>(of.loss + i);
        Doubles share = load_as<Doubles>(of.concentration + i), free = load_as<Doubles>(of.free_gap + i);
        const Longs valid = valid_of(counted, odds, loss, share, free);
        // Rows that do not count become sure predictions, whose every quantity is finite, and weigh nothing.
        odds = where(valid, odds), loss = where(valid, loss), share = where(valid, share), free = where(valid, free);

        const Doubles p = exp_of(log_tail<false>(expected_wins(loss, view.trials), odds, view.trials).log);
        const Doubles confidence = 1.0 / (1.0 + odds), dominance = 1.0 - loss, gap = at_least_0(gap_of(odds, loss));
        const Doubles numbers[] = {confidence,   dominance, gap, gap * gap, forced_gap_of(odds, view.rivals),
                                   at_least_0(free), share,     p};
        for (int k = 0; k < 8; k++) sums[k] += where(valid, numbers[k]);
        Longs labelled = {}, correct = {};
        if (view.labels) {
            const Longs target = load_as<Longs>(of.target + i);
            labelled = valid & (target >= 0) & (target <= int64_t(view.rivals));
            correct = labelled & (load_as<Longs>(of.prediction + i) == target);
            counts[5] -= valid & ~labelled;
            const Doubles hit = where(correct, doubles(1.0));
            const Doubles wide = confidence - hit, far = dominance - hit;
            sums[8] += where(labelled, log_of_one_and(odds) + load_as<Doubles>(of.distance + i));
            sums[9] += where(labelled, wide * wide), sums[10] += where(labelled, far * far);
            sums[11] += where(correct, gap), sums[12] += where(labelled & ~correct, gap);
        }
        const Longs masks[] = {valid, counted & ~valid, valid & (p <= view.alpha), labelled, correct};
        for (int k = 0; k < 5; k++) counts[k] -= masks[k];

        const Longs by_confidence = equal_bin(confidence, b), by_dominance = equal_bin(dominance, b);
        const Doubles near = near_gap_bin(gap);
        for (uint32_t left = bits_of(valid); left; left &= left - 1) {
            const int lane = __builtin_ctz(left);
            gap_histogram[gap_bin(gap[lane], near[lane])]++;
            Bin &own = bins()[by_confidence[lane]], &other = bins()[by_dominance[lane]];
            own.counts[0]++;
            own.sums[0] += confidence[lane], own.sums[1] += gap[lane];
            if (!labelled[lane]) continue;
            own.counts[1]++, own.counts[2] -= correct[lane];
            own.sums[2] += confidence[lane];
            other.counts[3]++, other.counts[4] -= correct[lane];
            other.sums[3] += dominance[lane];
        }
    }
}

void Partial::join(const States &states, int64_t bin_number) {
    for (int k = 0; k < COUNTS; k++) states.counts[k] += sum_of(counts[k]);
    for (int k = 0; k < SUMS; k++) states.sums[k] += sum_of(sums[k]);
    for (int k = 0; k < GAP_BINS; k++) states.gap_histogram[k] += gap_histogram[k];
    for (int64_t b = 0; b < bin_number; b++) {
        for (int k = 0; k < BIN_COUNTS; k++) states.bin_counts[k * bin_number + b] += bins()[b].counts[k];
        for (int k = 0; k < BIN_SUMS; k++) states.bin_sums[k * bin_number + b] += bins()[b].sums[k];
    }
}

// Runs `fill`, which gives a thread's Partial what it is to add, and joins all of them in the order of the threads.
// Returns 1 if there is no memory left, else 0.
template <typename Fill>
static int32_t in_parts(int32_t threads, int64_t bins, const States &states, const Fill &fill) {
    const Scratch scratch(Partial::bytes(bins), threads);
    if (scratch.is_missing()) return 1;
    fill([&](int32_t thread) -> Partial & { return *static_cast<Partial *>(scratch.of(thread)); });
    for (int32_t i = 0; i < threads; i++) static_cast<Partial *>(scratch.of(i))->join(states, bins);
    return 0;
}

#define BOC_STATES                                                                                                     \
    double alpha, int64_t bins, int64_t *counts, double *sums, int64_t *gap_histogram, int64_t *bin_counts,            \
        double *bin_sums

// Adds a batch of logits. Targets may be null; those that are equal to *ignored, which may be null, do not count.
BOC_EXPORT int32_t boc_tally(BOC_LOGITS, const int64_t *target, const int64_t *ignored, int64_t trials, int32_t half,
                             const double *log_choices, BOC_STATES) {
    BOC_DESCRIBED(TAIL);
    const View view = {double(classes - 1), alpha, target != nullptr, bins, {double(trials), half, log_choices}};
    const States states = {counts, sums, gap_histogram, bin_counts, bin_sums};
    return in_parts(threads, bins, states, [&](const auto &partial) {
        over_blocks(logits, false, threads, [&](int64_t at, int64_t count, const Block &block, int32_t thread) {
            Samples samples;
            coins_of_block(block, count, view.rivals, samples);
            memcpy(samples.odds, block.odds, sizeof samples.odds);
            memcpy(samples.prediction, block.prediction, sizeof samples.prediction);
            memset(samples.counted, 0xff, sizeof samples.counted);
            if (target) take_targets(target + at, ignored, count, samples);
            for (int64_t i = 0; target && i < count; i++)
                samples.distance[i] = distance_below(logits, at + i, block.prediction[i], target[at + i]);
            partial(thread).add(samples, count, view);
        });
    });
}

// Adds samples of which the numbers are there. Targets with their distances may be null, and so may `counted`.
BOC_EXPORT int32_t boc_tally_evidence(const int64_t *prediction, const double *odds, const double *loss,
                                      const double *concentration, const double *free_gap, const int64_t *target,
                                      const double *distance, const uint8_t *counted, int64_t size, int64_t classes,
                                      int32_t threads, int64_t trials, int32_t half, const double *log_choices,
                                      BOC_STATES) {
    threads = useful_threads(size, TAIL, threads);
    const View view = {double(classes - 1), alpha, target && distance, bins, {double(trials), half, log_choices}};
    const States states = {counts, sums, gap_histogram, bin_counts, bin_sums};
    return in_parts(threads, bins, states, [&](const auto &partial) {
        over_rows(size, ROWS, threads, [&](int64_t first, int64_t last, int32_t thread) {
            Samples samples = {};
            for (int64_t at = first; at < last; at += ROWS) {
                const int64_t count = last - at < ROWS ? last - at : ROWS;
                const size_t bytes = sizeof(double) * size_t(count);
                memcpy(samples.odds, odds + at, bytes), memcpy(samples.loss, loss + at, bytes);
                memcpy(samples.concentration, concentration + at, bytes);
                memcpy(samples.free_gap, free_gap + at, bytes);
                memcpy(samples.prediction, prediction + at, bytes);
                if (view.labels) memcpy(samples.target, target + at, bytes);
                if (view.labels) memcpy(samples.distance, distance + at, bytes);
                for (int64_t i = 0; i < count; i++) samples.counted[i] = -int64_t(!counted || counted[at + i]);
                partial(thread).add(samples, count, view);
            }
        });
    });
}
