// One call adds a batch to the states of a metric; functional/tally.py has the formulas.
#include "tally.h"

// The bin of a number in [0, 1] among equal ones, closed on the right; see functional/bins.py.
static inline Longs equal_bin(Doubles score, double bins) {
    const Doubles place = ceil_of(score * bins) - 1.0;
    return __builtin_convertvector(place < 0.0 ? doubles(0.0) : place > bins - 1.0 ? doubles(bins - 1.0) : place, Longs);
}

// The place of a gap in the histogram, by the C library.
static int64_t exact_gap_bin(double gap) {
    const double number = (std::log10(gap) - LOWEST_DECADE) * BINS_PER_DECADE + 1.0;
    return number > 0.0 ? number < GAP_BINS - 1.0 ? int64_t(number) : GAP_BINS - 1 : 0;
}

// The places of several. The logarithm may be off by an ulp: where that could matter, which is beside an edge, the C
// library has the last word.
static inline Longs gap_bins(Doubles gap, Longs valid) {
    Doubles number = (log_of(gap) * 0.43429448190325182765 - LOWEST_DECADE) * BINS_PER_DECADE + 1.0;
    number = number < 0.0 ? doubles(0.0) : number > GAP_BINS - 0.5 ? doubles(GAP_BINS - 0.5) : number;
    const Doubles whole = floor_of(number), rest = number - whole;
    Longs places = __builtin_convertvector(whole, Longs);
    const Longs doubtful = valid & (number > 0.5) & ((rest < 1e-9) | (rest > 1.0 - 1e-9));
    for (uint32_t left = bits_of(doubtful); __builtin_expect(left, 0); left &= left - 1)
        places[__builtin_ctz(left)] = exact_gap_bin(gap[__builtin_ctz(left)]);
    return places;
}

// What is known of a vector of samples after the first look at them.
struct Seen {
    Longs counted, valid, labelled, correct;
    Doubles share, free, gap, dominance, forced;
};

// Rows that do not count become sure predictions, whose every quantity is finite, and weigh nothing.
static inline Seen seen(const Samples &of, int64_t i, int64_t count, const View &view, Doubles &odds, Doubles &loss) {
    Seen out = {};
    out.counted = load_as<Longs>(of.counted + i) & (WIDE_LANE < count - i);
    odds = load_as<Doubles>(of.odds + i), loss = load_as<Doubles>(of.loss + i);
    out.share = load_as<Doubles>(of.concentration + i), out.free = load_as<Doubles>(of.free_gap + i);
    const Longs valid = out.valid = valid_of(out.counted, odds, loss, out.share, out.free);
    odds = where(valid, odds), loss = where(valid, loss);
    out.share = where(valid, out.share), out.free = at_least_0(where(valid, out.free));
    out.dominance = 1.0 - loss, out.gap = at_least_0(gap_of(odds, loss));
    out.forced = forced_gap_of(odds, view.rivals);
    if (view.labels) {
        const Longs target = load_as<Longs>(of.target + i);
        out.labelled = valid & (target >= 0) & (target <= int64_t(view.rivals));
        out.correct = out.labelled & (load_as<Longs>(of.prediction + i) == target);
    }
    return out;
}

void Partial::add(const Samples &of, int64_t count, const View &view) {
    const int vectors = int((count + WIDE - 1) / WIDE);
    Seen all[MANY];
    Chance chances[MANY];
    Doubles odds[MANY], wins[MANY];
    Tails tails[MANY];
    for (int v = 0; v < vectors; v++) {
        Doubles loss;
        all[v] = seen(of, v * WIDE, count, view, odds[v], loss);
        chances[v] = chance_of(odds[v]), wins[v] = expected_wins(loss, view.trials);
    }
    log_tails<false>(vectors, wins, odds, chances, view.trials, tails);
    for (int v = 0; v < vectors; v++) {
        const Seen &now = all[v];
        const Doubles p = exp_of(tails[v].log), confidence = chances[v].win;
        const Doubles numbers[] = {confidence, now.dominance, now.gap, now.gap * now.gap, now.forced, now.free, now.share, p};
        for (int k = 0; k < 8; k++) sums[k] += where(now.valid, numbers[k]);
        const Longs masks[] = {now.valid, now.counted & ~now.valid, now.valid & (p <= view.alpha)};
        for (int k = 0; k < 3; k++) counts[k] -= masks[k];
        if (view.labels) add_labels(now, confidence, load_as<Doubles>(of.distance + v * WIDE) - chances[v].log_win);
    }
    for (int v = 0; v < vectors; v++) add_to_bins(all[v], chances[v].win, view.bins);
}

void Partial::add_labels(const Seen &now, Doubles confidence, Doubles log_loss) {
    const Doubles hit = where(now.correct, doubles(1.0)), wide = confidence - hit, far = now.dominance - hit;
    const Doubles numbers[] = {log_loss, wide * wide, far * far};
    for (int k = 0; k < 3; k++) sums[8 + k] += where(now.labelled, numbers[k]);
    sums[11] += where(now.correct, now.gap), sums[12] += where(now.labelled & ~now.correct, now.gap);
    counts[3] -= now.labelled, counts[4] -= now.correct, counts[5] -= now.valid & ~now.labelled;
}

void Partial::add_to_bins(const Seen &now, Doubles confidence, int64_t number) {
    const Longs by_confidence = equal_bin(confidence, double(number)), by_dominance = equal_bin(now.dominance, double(number));
    const Longs by_gap = gap_bins(now.gap, now.valid);
    for (uint32_t left = bits_of(now.valid); left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        gap_histogram[by_gap[lane]]++;
        Bin &own = bins()[by_confidence[lane]];
        own.counts[0]++, own.sums[0] += confidence[lane], own.sums[1] += now.gap[lane];
        if (!now.labelled[lane]) continue;
        Bin &other = bins()[by_dominance[lane]];
        own.counts[1]++, own.counts[2] -= now.correct[lane], own.sums[2] += confidence[lane];
        other.counts[3]++, other.counts[4] -= now.correct[lane], other.sums[3] += now.dominance[lane];
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
        over_blocks(logits, 0, threads, [&](int64_t at, int64_t count, const Block &block, int32_t thread) {
            Samples samples;
            coins_of_block(block, count, view.rivals, samples);
            memcpy(samples.odds, block.odds, sizeof samples.odds);
            memcpy(samples.prediction, block.prediction, sizeof samples.prediction);
            memset(samples.counted, 0xff, sizeof samples.counted);
            if (target) take_targets(target + at, ignored, count, samples);
            for (int64_t i = 0; target && i < count; i++)
                samples.distance[i] = distance_below(logits, at + i, block.top[i], target[at + i]);
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
