// Loss, concentration and free gap from the sums of each row; core/coins.py and core/bounds.py have the formulas.
#pragma once
#include <cfloat>

#include "logs.h"
#include "parallel.h"
#include "rows.h"

struct Coins {
    Doubles loss, concentration, free_gap;
};

static inline Coins coins_of(Doubles odds, Doubles squares, Doubles mass, Doubles mass_squares, double rivals) {
    if (rivals == 1.0) return {odds / (1.0 + odds), odds * 0.0, odds * 0.0};
    const Longs flat = odds > rivals * FLAT;
    const Doubles base = flat ? doubles(2.0) : doubles(1.0), sign = flat ? doubles(-1.0) : doubles(1.0);
    const Doubles whole = floor_of(mass), rest = mass - whole;
    const Doubles even = mass * mass / (rivals * base + sign * mass);
    // The base and the sign are 1 and 1, or 2 and -1: whole / (base + sign) without a division.
    const Doubles room = whole * (flat ? doubles(1.0) : doubles(0.5)) + rest * rest / (base + sign * rest) - even;
    const Longs empty = room <= 4.0 * DBL_EPSILON * even;
    Doubles share = (mass_squares - even) / (empty ? doubles(1.0) : room);
    share = empty | (share < 0.0) ? doubles(0.0) : share > 1.0 ? doubles(1.0) : share;
    const double part = 1.0 / rivals;
    return {(odds - squares) / rivals, share, share * room * (flat ? doubles(0.25 * part) : doubles(part))};
}

// The coins of a block, in float64.
struct alignas(64) Numbers {
    double loss[ROWS], concentration[ROWS], free_gap[ROWS];
};

static inline void coins_of_block(const Block &block, int64_t count, double rivals, Numbers &out) {
    for (int64_t i = 0; i < count; i += WIDE) {
        const Coins coins = coins_of(load_as<Doubles>(block.odds + i), load_as<Doubles>(block.squares + i),
                                     load_as<Doubles>(block.mass + i), load_as<Doubles>(block.mass_squares + i), rivals);
        memcpy(out.loss + i, &coins.loss, sizeof(Doubles));
        memcpy(out.concentration + i, &coins.concentration, sizeof(Doubles));
        memcpy(out.free_gap + i, &coins.free_gap, sizeof(Doubles));
    }
}

// -log R of each row. The lead of one rival near the top has more digits than its odds.
static inline Doubles log_odds_of(Doubles odds, Doubles mass, Doubles relative, Doubles unit, double rivals) {
    const Doubles log_rest = unit + log_of(relative);
    return -(rivals == 1.0 ? (odds > FLAT ? log_of_one_and(-mass) : log_rest) : log_rest);
}

// The generalized entropy: the rivals' part, and the top's, p (1 - p) = R / (1 + R)^2 of it.
static inline Doubles gen_of(Doubles powers, Doubles odds, Doubles log_odds) {
    const Doubles log_top = log_of_one_and(-odds / (1.0 + odds));
    return powers + exp_of(0.1 * (2.0 * log_top - log_odds));
}

// What every function that reads logits is given; BOC_DESCRIBED makes `logits` of it, and decides on the threads by what
// is to be done for each row beside reading it, in logits that could be read in the time.
#define BOC_LOGITS                                                                                                     \
    const void *data, int64_t rows, int64_t classes, int64_t inner, int64_t stride, int64_t outer, int64_t step,       \
        int32_t dtype, int32_t tall, int32_t threads
#define BOC_DESCRIBED(beside)                                                                                          \
    const Logits logits = {data, rows, classes, inner, stride, outer, step, dtype, tall};                              \
    threads = useful_threads(rows, classes + (beside), threads)
constexpr int64_t TAIL = 64;  // of a tail
static inline int64_t work_of_extras(int wanted, int64_t classes) { return wanted & ~MARGINS ? 8 * classes : 0; }

// body(first, count, block, thread) for blocks of all rows, whose sums are in `block`.
template <typename Body> static void over_blocks(const Logits &logits, int wanted, int32_t threads, const Body &body) {
    over_rows(logits.rows, grain_of(logits), threads, [&](int64_t first, int64_t last, int32_t thread) {
        Block block = {};
        for (int64_t i = first; i < last; i += ROWS) {
            const int64_t count = last - i < ROWS ? last - i : ROWS;
            read_block(logits, i, count, wanted, block);
            body(i, count, block, thread);
        }
    });
}
