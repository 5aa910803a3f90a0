// What a batch adds to the states of a metric; functional/tally.py says what they are.
#pragma once
#include <cstdlib>

#include "coins.h"
#include "tails.h"

constexpr int COUNTS = 6, SUMS = 13, GAP_BINS = 601, BIN_COUNTS = 5, BIN_SUMS = 4;
constexpr double LOWEST_DECADE = -12.0, BINS_PER_DECADE = 50.0;

// The tensors of a Tally.
struct States {
    int64_t *counts;
    double *sums;
    int64_t *gap_histogram, *bin_counts;
    double *bin_sums;
};

// Up to ROWS samples as a tally sees them; `counted` is -1 or 0.
struct alignas(64) Samples : Numbers {
    double odds[ROWS], distance[ROWS];
    int64_t prediction[ROWS], target[ROWS], counted[ROWS];
};

// Which samples count by their targets; those that are equal to *ignored, which may be null, do not.
static inline void take_targets(const int64_t *target, const int64_t *ignored, int64_t count, Samples &out) {
    memcpy(out.target, target, sizeof(int64_t) * size_t(count));
    for (int64_t i = 0; ignored && i < count; i++) out.counted[i] = -int64_t(target[i] != *ignored);
}

// How the samples are looked at.
struct View {
    double rivals, alpha;
    bool labels;  // whether there are targets
    int64_t bins;
    Trials trials;
};

struct Bin {
    int64_t counts[BIN_COUNTS];
    double sums[BIN_SUMS];
};

// What one thread adds up before it joins the states; the bins follow it in memory.
struct alignas(64) Partial {
    Longs counts[COUNTS];  // by lanes
    Doubles sums[SUMS];
    int64_t gap_histogram[GAP_BINS];

    Bin *bins() { return reinterpret_cast<Bin *>(this + 1); }
    static size_t bytes(int64_t bins) { return sizeof(Partial) + size_t(bins) * sizeof(Bin); }
    void add(const Samples &samples, int64_t count, const View &view);
    void add_labels(const struct Seen &now, Doubles confidence, Doubles log_loss);
    void add_to_bins(const struct Seen &now, Doubles confidence, int64_t number);
    void join(const States &states, int64_t bins);
};

// Zeroed memory for each thread, which begins at a multiple of 64 bytes.
class Scratch {
    char *whole;
    size_t each;

  public:
    Scratch(size_t bytes, int32_t threads) : each((bytes + 63) / 64 * 64) {
        whole = static_cast<char *>(calloc(size_t(threads) * each + 64, 1));
    }
    ~Scratch() { free(whole); }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    bool is_missing() const { return !whole; }  // there was no memory left
    void *of(int32_t thread) const {
        return whole + (64 - reinterpret_cast<uintptr_t>(whole) % 64) + size_t(thread) * each;
    }
};

// Which samples have numbers only, and count.
static inline Longs valid_of(Longs counted, Doubles odds, Doubles loss, Doubles share, Doubles free) {
    const Doubles nothing = (odds - odds) + (loss - loss) + (share - share) + (free - free);  // 0, or NaN
    return counted & (nothing == 0.0);
}

// The values where the mask is set, 0 elsewhere.
static inline Doubles where(Longs mask, Doubles values) { return (Doubles)(mask & (Longs)values); }
static inline Doubles at_least_0(Doubles x) { return x < 0.0 ? doubles(0.0) : x; }
static inline Doubles gap_of(Doubles odds, Doubles loss) { return odds / (1.0 + odds) - loss; }
static inline Doubles forced_gap_of(Doubles odds, double rivals) {
    return odds * (rivals - 1.0) / ((1.0 + odds) * (rivals + odds));
}
