// The numbers of each row, by name, a block of rows at a time; core/columns.py and core/coins.py have the formulas.
#pragma once
#include <cfloat>

#include "rows.h"

// Loss, gap, concentration and free gap of a vector of rows.
static inline void coins_of(Block &block, int64_t i, double rivals) {
    auto given = [&](int which) { return load_as<Doubles>(block.at[which] + i); };
    auto put = [&](int which, Doubles values) { memcpy(block.at[which] + i, &values, sizeof values); };
    const Doubles odds = given(column::odds), mass = given(column::mass);
    if (rivals == 1.0) {
        put(column::loss, odds / (1.0 + odds)), put(column::gap, odds * 0.0);
        put(column::concentration, odds * 0.0), put(column::free_gap, odds * 0.0);
        return;
    }
    const Longs flat = odds > rivals * FLAT;
    const Doubles base = flat ? doubles(2.0) : doubles(1.0), sign = flat ? doubles(-1.0) : doubles(1.0);
    const Doubles whole = floor_of(mass), rest = mass - whole;
    const Doubles even = mass * mass / (rivals * base + sign * mass);
    // The base and the sign are 1 and 1, or 2 and -1: whole / (base + sign) without a division.
    const Doubles room = whole * (flat ? doubles(1.0) : doubles(0.5)) + rest * rest / (base + sign * rest) - even;
    const Longs empty = room <= 4.0 * DBL_EPSILON * even;
    Doubles share = (given(column::mass_squares) - even) / (empty ? doubles(1.0) : room);
    share = empty | (share < 0.0) ? doubles(0.0) : share > 1.0 ? doubles(1.0) : share;
    const Doubles loss = (odds - given(column::squares)) / rivals;
    put(column::loss, loss), put(column::gap, at_least_0(odds / (1.0 + odds) - loss)), put(column::concentration, share);
    put(column::free_gap, share * room * (flat ? doubles(0.25 / rivals) : doubles(1.0 / rivals)));
}

// -log R of a vector of rows, and the top's part of the generalized entropy: p (1 - p) = R / (1 + R)^2.
static inline void logs_of(Block &block, int64_t i, double rivals) {
    const Doubles odds = load_as<Doubles>(block.at[column::odds] + i), mass = load_as<Doubles>(block.at[column::mass] + i);
    const Doubles log_rest = load_as<Doubles>(block.unit + i) + log_of(load_as<Doubles>(block.relative + i));
    // The lead of one rival near the top has more digits than its odds.
    const Doubles log_odds = -(rivals == 1.0 ? (odds > FLAT ? log_of_one_and(-mass) : log_rest) : log_rest);
    const Doubles log_top = log_of_one_and(-odds / (1.0 + odds));
    const Doubles gen = load_as<Doubles>(block.at[column::gen] + i) + exp_of(EXPONENT * (2.0 * log_top - log_odds));
    memcpy(block.at[column::log_odds] + i, &log_odds, sizeof log_odds), memcpy(block.at[column::gen] + i, &gen, sizeof gen);
}

// Which numbers are asked for, one bit each.
struct Asked {
    int64_t bits;
    template <typename... Columns> bool any(Columns... which) const { return ((bits >> which & 1) || ...); }
    int wanted() const {
        return (any(column::surprise, column::margin) ? MARGINS : 0) | (any(column::tempered_loss) ? TEMPERED : 0) |
               (any(column::top_margin) ? NEAREST : 0) | (any(column::gen) ? POWERS : 0) |
               (any(column::lost, column::ahead) ? STANDING : 0);
    }
};

// The block's numbers from those that were read: coins, logarithms, and what is about the given class.
static void complete(Block &block, const Logits &logits, int64_t at, int64_t count, Asked asked, const int64_t *index) {
    const double rivals = double(logits.classes - 1);
    if (asked.any(column::loss, column::gap, column::concentration, column::free_gap))
        for (int64_t i = 0; i < count; i += WIDE) coins_of(block, i, rivals);
    if (asked.any(column::log_odds, column::gen))
        for (int64_t i = 0; i < count; i += WIDE) logs_of(block, i, rivals);
    for (int64_t i = 0; asked.any(column::tempered_loss) && i < count; i++) block.at[column::tempered_loss][i] /= rivals;
    for (int64_t i = 0; asked.any(column::distance) && i < count; i++) {
        const bool is_class = 0 <= index[at + i] && index[at + i] < logits.classes;
        double top = block.at[column::top][i];
        if (top != top) top = logit_at(logits, at + i, block.prediction[i]);  // infinite, or NaN
        block.at[column::distance][i] = top - (is_class ? logit_at(logits, at + i, index[at + i]) : top);
    }
}

// Calls each(block, first row, number of rows, thread) for all rows, with the numbers that are asked for in the block.
// Returns 1 if there is no memory left, else 0.
template <typename Each>
static int32_t over_blocks(const Logits &logits, Asked asked, const int64_t *index, int32_t threads, const Each &each) {
    const int wanted = asked.wanted();
    const bool turned = logits.is_turned();
    const size_t size = logits.dtype == Type::float64 ? 8 : logits.dtype == Type::float32 ? 4 : 2;
    const Scratch scratch(turned ? size_t(logits.classes) * ROWS * size : 0, threads);
    if (scratch.is_missing()) return 1;
    auto *read = with_type(logits.dtype, [&](auto logit) {
        return wanted & MARGINS ? read_rows<decltype(logit), true> : read_rows<decltype(logit), false>;
    });
    over_rows(logits.rows, turned ? ROWS : 1, threads, [&](int64_t first, int64_t last, int32_t thread) {
        Block block = {};
        for (int64_t at = first; at < last; at += ROWS) {
            const int64_t count = last - at < ROWS ? last - at : ROWS, end = logits.classes - 1;
            for (int64_t i = 0; wanted & STANDING && i < count; i++) {
                const int64_t place = index[at + i] < 0 ? 0 : index[at + i] < end ? index[at + i] : end;
                block.own[i] = logit_at(logits, at + i, place);
            }
            read(logits, at, count, wanted, scratch.of(thread), block);
            complete(block, logits, at, count, asked, index);
            each(block, at, count, thread);
        }
    });
    return 0;
}
