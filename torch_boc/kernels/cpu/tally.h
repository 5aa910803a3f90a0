// What samples add to the states of a metric; core/tally.py has the formulas.
#pragma once
#include "schema.h"
#include "parallel.h"
#include "tails.h"

// The values where the mask is set, 0 elsewhere.
static inline Doubles where(Longs mask, Doubles values) { return (Doubles)(mask & (Longs)values); }

// The bin of a number in [0, 1] among equal ones, closed on the right; see core/tally.py.
static inline Longs equal_bin(Doubles score, double bins) {
    const Doubles place = ceil_of(score * bins) - 1.0;
    return __builtin_convertvector(place < 0.0 ? doubles(0.0) : place > bins - 1.0 ? doubles(bins - 1.0) : place, Longs);
}

// The bins of gaps in the histogram. The logarithm may be off by an ulp: next to an edge, the edge itself decides.
static inline Longs gap_bins(Doubles gap, Longs valid) {
    Doubles number = (log_of(gap) * 0.43429448190325182765 - (BOC_LOWEST_DECADE)) * BOC_BINS_PER_DECADE + 1.0;
    number = number < 0.0 ? doubles(0.0) : number > BOC_GAP_BINS - 0.5 ? doubles(BOC_GAP_BINS - 0.5) : number;
    const Doubles whole = floor_of(number), rest = number - whole;
    Longs bins = __builtin_convertvector(whole, Longs);
    const Longs doubtful = valid & (number > 0.5) & ((rest < 1e-9) | (rest > 1.0 - 1e-9));
    for (uint32_t left = bits_of(doubtful); __builtin_expect(left, 0); left &= left - 1) {
        const int i = __builtin_ctz(left);
        const double edge = std::floor(number[i] + 0.5), decade = BOC_LOWEST_DECADE + (edge - 1.0) / BOC_BINS_PER_DECADE;
        bins[i] = int64_t(edge) - (gap[i] < std::pow(10.0, decade));
    }
    return bins;
}

// The samples of a batch, by the places of their numbers; target and distance may be null, and so may `counted`.
struct Samples {
    double rivals, alpha;
    int64_t bins;
    Trials trials;
    const int64_t *target;
    const uint8_t *counted;
    const int64_t *prediction;
    const double *odds, *loss, *concentration, *free_gap, *distance;
    bool has_labels() const { return target && distance; }
};

// What every sum of a tally needs of a vector of samples.
struct Seen {
    Longs counted, valid, labelled, correct;
    Doubles share, free, gap, dominance, forced, distance;
};

// Up to a vector of numbers from `at` on.
template <typename Vector, typename Number> static inline Vector some(const Number *from, int64_t at, int64_t count) {
    Vector values = {};
    memcpy(&values, from + at, size_t(count < WIDE ? count : WIDE) * sizeof(Number));
    return values;
}

// Rows that do not count become sure predictions, whose every quantity is finite, and weigh nothing.
static inline Seen seen(const Samples &of, int64_t at, int64_t count, Doubles &odds, Doubles &loss) {
    Seen out = {};
    out.counted = Wide::lane() < count;
    if (of.counted) out.counted &= __builtin_convertvector(some<Bytes>(of.counted, at, count), Longs) != 0;
    odds = some<Doubles>(of.odds, at, count), loss = some<Doubles>(of.loss, at, count);
    out.share = some<Doubles>(of.concentration, at, count), out.free = some<Doubles>(of.free_gap, at, count);
    const Doubles nothing = (odds - odds) + (loss - loss) + (out.share - out.share) + (out.free - out.free);  // 0 or NaN
    const Longs valid = out.valid = out.counted & (nothing == 0.0);
    odds = where(valid, odds), loss = where(valid, loss);
    out.share = where(valid, out.share), out.free = at_least_0(where(valid, out.free));
    out.dominance = 1.0 - loss, out.gap = at_least_0(odds / (1.0 + odds) - loss);
    out.forced = odds * (of.rivals - 1.0) / ((1.0 + odds) * (of.rivals + odds));
    if (of.has_labels()) {
        const Longs target = some<Longs>(of.target, at, count);
        out.labelled = valid & (target >= 0) & (target <= int64_t(of.rivals));
        out.correct = out.labelled & (some<Longs>(of.prediction, at, count) == target);
        out.distance = where(out.labelled, some<Doubles>(of.distance, at, count));
    }
    return out;
}

struct Bin {
    int64_t counts[bin_count::number];
    double sums[bin_sum::number];
};

// What one thread adds up before it joins the states; the bins follow it in memory.
struct alignas(64) Partial {
    Longs counts[count::number];  // by lanes
    Doubles sums[sum::number];
    int64_t gap_histogram[BOC_GAP_BINS];
    Bin bins[1];

    void add(const Samples &of, int64_t at, int64_t count) {
        const int vectors = int((count + WIDE - 1) / WIDE);
        Seen all[MANY];
        Chance chances[MANY];
        Doubles odds[MANY], wins[MANY];
        Tails tails[MANY];
        for (int v = 0; v < vectors; v++) {
            Doubles loss;
            all[v] = seen(of, at + v * WIDE, count - v * WIDE, odds[v], loss);
            chances[v] = chance_of(odds[v]), wins[v] = rounded(of.trials.trials * (1.0 - loss));
        }
        const bool asked = of.trials.trials > 0.0;  // without trials, no p-values
        if (asked) log_tails<false>(vectors, wins, odds, chances, of.trials, tails);
        for (int v = 0; v < vectors; v++) {
            const Seen &now = all[v];
            const Doubles p = asked ? exp_of(tails[v].log) : doubles(INFINITY), confidence = chances[v].win;
            const Doubles hit = where(now.correct, doubles(1.0)), wide = confidence - hit, far = now.dominance - hit;
            auto add = [&](int which, Longs mask, Doubles values) { sums[which] += where(mask, values); };
            add(sum::confidence, now.valid, confidence), add(sum::dominance, now.valid, now.dominance);
            add(sum::gap, now.valid, now.gap), add(sum::gap_square, now.valid, now.gap * now.gap);
            add(sum::forced_gap, now.valid, now.forced), add(sum::free_gap, now.valid, now.free);
            add(sum::concentration, now.valid, now.share);
            if (asked) add(sum::p_value, now.valid, p);
            counts[count::samples] -= now.valid, counts[count::invalid] -= now.counted & ~now.valid;
            counts[count::rejected] -= now.valid & (p <= of.alpha);
            if (!of.has_labels()) continue;
            add(sum::nll, now.labelled, now.distance - chances[v].log_win);
            add(sum::brier_confidence, now.labelled, wide * wide), add(sum::brier_dominance, now.labelled, far * far);
            add(sum::gap_correct, now.correct, now.gap), add(sum::gap_wrong, now.labelled & ~now.correct, now.gap);
            counts[count::labelled] -= now.labelled, counts[count::correct] -= now.correct;
            counts[count::bad_targets] -= now.valid & ~now.labelled;
        }
        for (int v = 0; v < vectors; v++) add_to_bins(all[v], chances[v].win, of.bins);
    }

    void add_to_bins(const Seen &now, Doubles confidence, int64_t number) {
        const Longs by_confidence = equal_bin(confidence, double(number));
        const Longs by_dominance = equal_bin(now.dominance, double(number)), by_gap = gap_bins(now.gap, now.valid);
        for (uint32_t left = bits_of(now.valid); left; left &= left - 1) {
            const int lane = __builtin_ctz(left);
            gap_histogram[by_gap[lane]]++;
            Bin &own = bins[by_confidence[lane]];
            own.counts[bin_count::samples]++;
            own.sums[bin_sum::confidence] += confidence[lane], own.sums[bin_sum::gap] += now.gap[lane];
            if (!now.labelled[lane]) continue;
            Bin &other = bins[by_dominance[lane]];
            own.counts[bin_count::labelled]++, own.counts[bin_count::correct] -= now.correct[lane];
            own.sums[bin_sum::labelled_confidence] += confidence[lane];
            other.counts[bin_count::labelled_by_dominance]++;
            other.counts[bin_count::correct_by_dominance] -= now.correct[lane];
            other.sums[bin_sum::labelled_dominance] += now.dominance[lane];
        }
    }

    // Adds all to the tensors of a Tally, in their order.
    void join(void **states, int64_t number) const {
        auto whole = [&](int i) { return static_cast<int64_t *>(states[i]); };
        auto real = [&](int i) { return static_cast<double *>(states[i]); };
        for (int k = 0; k < count::number; k++) whole(state::counts)[k] += sum_of(counts[k]);
        for (int k = 0; k < sum::number; k++) real(state::sums)[k] += sum_of(sums[k]);
        for (int k = 0; k < BOC_GAP_BINS; k++) whole(state::gap_histogram)[k] += gap_histogram[k];
        for (int64_t b = 0; b < number; b++) {
            for (int k = 0; k < bin_count::number; k++) whole(state::bin_counts)[k * number + b] += bins[b].counts[k];
            for (int k = 0; k < bin_sum::number; k++) real(state::bin_sums)[k * number + b] += bins[b].sums[k];
        }
    }
};

// Calls body(partial), where partial(thread) is what this thread adds up. The parts are joined in the order of the
// threads, so that every run gives the same bits. Returns 1 if there is no memory left, or what the body returns.
template <typename Body> static int32_t with_partials(int64_t bins, int32_t threads, void **states, const Body &body) {
    const Scratch scratch(sizeof(Partial) + size_t(bins) * sizeof(Bin), threads);
    if (scratch.is_missing()) return 1;
    auto partial = [&](int32_t thread) { return static_cast<Partial *>(scratch.of(thread)); };
    if (body(partial)) return 1;
    for (int32_t i = 0; i < threads; i++) partial(i)->join(states, bins);
    return 0;
}
