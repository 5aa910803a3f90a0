// The sums of a few rows at a time; core/rows.py and core/spread.py say what they are.
#pragma once
#include "logits.h"

constexpr int ROWS = 64;  // of a block

// In float64, which holds what was summed in float32 as it is.
struct alignas(64) Block {
    int64_t prediction[ROWS];
    double top[ROWS], odds[ROWS], squares[ROWS], mass[ROWS], mass_squares[ROWS], surprise[ROWS], margin[ROWS];
};

// The sums of `count` rows from `first` on, at most ROWS; surprise and margin only with `extras`.
void read_block(const Logits &logits, int64_t first, int64_t count, bool extras, Block &block);

// The logit of a class, in float64.
double logit_at(const Logits &logits, int64_t row, int64_t place);

// How far the logit of the target is below the top; 0 for a target that is no class.
static inline double distance_below(const Logits &logits, int64_t row, double top, int64_t target) {
    return top - (0 <= target && target < logits.classes ? logit_at(logits, row, target) : top);
}

// How the rows are shared among threads: where they are transposed, whole blocks at a time.
int64_t grain_of(const Logits &logits);

constexpr double FLAT = 0.5, SHARP = 0x1p-100;  // see core/spread.py
