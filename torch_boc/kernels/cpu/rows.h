// The sums of a few rows at a time; core/rows.py and core/spread.py say what they are.
#pragma once
#include "logits.h"

constexpr int ROWS = 64;  // of a block

// What is wanted of a row beside what is always read: surprise and margin, and the numbers of extras.h.
enum Wanted { MARGINS = 1, TEMPERED = 2, NEAREST = 4, POWERS = 8 };

// In float64, which holds what was summed in float32 as it is. The odds are also `relative` times exp(unit), which does
// not underflow. The last three are the sums of extras.h over the rivals.
struct alignas(64) Block {
    int64_t prediction[ROWS];
    double top[ROWS], odds[ROWS], squares[ROWS], mass[ROWS], mass_squares[ROWS], surprise[ROWS], margin[ROWS];
    double relative[ROWS], unit[ROWS], tempered[ROWS], nearest[ROWS], powers[ROWS];
};

// The sums of `count` rows from `first` on, at most ROWS, and what else is `wanted`.
void read_block(const Logits &logits, int64_t first, int64_t count, int wanted, Block &block);

// Only what extras.h computes, after the sums were read.
void read_extras(const Logits &logits, int64_t first, int64_t count, int wanted, Block &block);

// The logit of a class, in float64.
double logit_at(const Logits &logits, int64_t row, int64_t place);

// How far the logit of the target is below the top; 0 for a target that is no class.
static inline double distance_below(const Logits &logits, int64_t row, double top, int64_t target) {
    return top - (0 <= target && target < logits.classes ? logit_at(logits, row, target) : top);
}

// How the rows are shared among threads: where they are transposed, whole blocks at a time.
int64_t grain_of(const Logits &logits);

constexpr double FLAT = 0.5, SHARP = 0x1p-100;  // see core/spread.py
