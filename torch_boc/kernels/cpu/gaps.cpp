// One call adds the gaps of a batch to the states of a CoherenceGap; functional/tally.py has the formulas.
#include "tally.h"

// The gap of a vector of samples, or its forced or its free part.
static inline Doubles part_of(int32_t part, Doubles odds, Doubles loss, Doubles free, double rivals) {
    return part == 0 ? at_least_0(gap_of(odds, loss)) : part == 1 ? forced_gap_of(odds, rivals) : at_least_0(free);
}

// Adds to `gap` and `samples`, of `size` 1 or one for each predicted class, and to `invalid`. The part is 0 for all of
// the gap, 1 for what is forced, 2 for what is free. Returns 1 if there is no memory left, else 0.
BOC_EXPORT int32_t boc_gap_tally(BOC_LOGITS, const int64_t *target, const int64_t *ignored, int32_t part, int64_t size,
                                 double *gap, int64_t *samples, int64_t *invalid) {
    BOC_DESCRIBED(0);
    const double rivals = double(classes - 1);
    const Scratch scratch(size_t(2 * size + 1) * 8, threads);
    if (scratch.is_missing()) return 1;
    over_blocks(logits, 0, threads, [&](int64_t at, int64_t count, const Block &block, int32_t thread) {
        double *sums = static_cast<double *>(scratch.of(thread));
        int64_t *counts = static_cast<int64_t *>(scratch.of(thread)) + size;
        Samples of;
        coins_of_block(block, count, rivals, of);
        memset(of.counted, 0xff, sizeof of.counted);
        if (target) take_targets(target + at, ignored, count, of);
        for (int64_t i = 0; i < count; i += WIDE) {
            const Longs counted = load_as<Longs>(of.counted + i) & (WIDE_LANE < count - i);
            const Doubles odds = load_as<Doubles>(block.odds + i), loss = load_as<Doubles>(of.loss + i);
            const Doubles free = load_as<Doubles>(of.free_gap + i);
            const Longs valid = valid_of(counted, odds, loss, load_as<Doubles>(of.concentration + i), free);
            const Doubles gaps = where(valid, part_of(part, odds, loss, free, rivals));
            counts[size] -= sum_of(counted & ~valid);
            for (uint32_t left = bits_of(valid); left; left &= left - 1) {
                const int lane = __builtin_ctz(left);
                const int64_t place = size > 1 ? block.prediction[i + lane] : 0;
                sums[place] += gaps[lane], counts[place]++;
            }
        }
    });
    for (int32_t thread = 0; thread < threads; thread++) {
        const double *sums = static_cast<double *>(scratch.of(thread));
        const int64_t *counts = static_cast<int64_t *>(scratch.of(thread)) + size;
        for (int64_t i = 0; i < size; i++) gap[i] += sums[i], samples[i] += counts[i];
        *invalid += counts[size];
    }
    return 0;
}
