// Binomial log tails, 8 at a time; core/tails.py says how they are computed.
#pragma once
#include <cfloat>

#include "logs.h"

// The trials k, half the number of steps of the continued fraction, and log binomial(k, w) for each w in 0..k.
struct Trials {
    double trials;
    int half;
    const double *log_choices;
};

// Pr{X >= w} / Pr{X = w} on the far side of the mean: the continued fraction from its last step back to the first, as
// a numerator and a denominator. Neither overflows for k <= 1000: at most 74 steps, of less than 1100 each.
static inline Doubles ratio_of(Doubles count, Doubles chance, Doubles other, double trials, int half) {
    const Doubles odd = count * chance, even = (trials + 1.0) * chance - odd;
    Doubles base = count + 2.0 * half, above = base, below = doubles(1.0);
    for (int step = half; step > 0; step--) {
        const Doubles next = (base - 1.0) * above + (even - chance * double(step)) * double(step) * below;
        below = above;
        base -= 2.0;
        above = base * next - (odd + chance * double(step - 1)) * (trials + step) * below;
        below = next;
    }
    return other * count * below / above;
}

struct Tails {
    Doubles log, slope;
};

// The log tail of Pr{Binomial(k, 1 / (1 + odds)) >= wins}, and its derivative in the odds if it is asked for.
template <bool SLOPE> static inline Tails log_tail(Doubles wins, Doubles odds, const Trials &of) {
    const double trials = of.trials;
    const Doubles real = odds < 0.0 ? doubles(NAN) : odds < DBL_MIN ? doubles(DBL_MIN) : odds;
    const Doubles win = 1.0 / (1.0 + real), inverse = 1.0 / real, lose = 1.0 / (1.0 + inverse);
    const Doubles log_win = -log_of_one_and(real), log_lose = -log_of_one_and(inverse);
    const Longs near = win * (trials + 3.0) >= wins + 1.0;
    Doubles count = near ? (trials + 1.0) - wins : wins;
    count = count < 1.0 ? doubles(1.0) : count > trials ? doubles(trials) : count;
    const Doubles rest = trials - count, chance = near ? lose : win, other = near ? win : lose;
    Doubles log_first;
    for (int i = 0; i < WIDE; i++) log_first[i] = of.log_choices[count[i] == count[i] ? int64_t(count[i]) : 0];
    // Not 0 * -inf, where no loss is asked for.
    log_first += count * (near ? log_lose : log_win) + (rest > 0.0 ? rest * (near ? log_win : log_lose) : doubles(0.0));
    const Doubles ratio = ratio_of(count, chance, other, trials, of.half);
    const Doubles complement = -ratio * exp_of(log_first);
    const Doubles value = near ? log_of_one_and(complement) : log_first + log_of(ratio);
    const Longs defined = odds >= 0.0, certain = defined & (wins <= 0.0), never = defined & (wins > trials);
    const Longs sure = certain | ((odds == 0.0) & (wins <= trials));
    Tails tails = {never ? doubles(-INFINITY) : sure ? doubles(0.0) : value, {}};
    if (SLOPE) {
        // On the near side over the odds too, whose logarithm is log_lose - log_win: the mass alone may underflow.
        const Doubles mass_over_tail = near ? exp_of(log_first - log_lose + log_win) / (1.0 + complement) : 1.0 / ratio;
        tails.slope = certain | never ? doubles(0.0) : -count * mass_over_tail * win;
    }
    return tails;
}

// The wins round(k (1 - loss)), half to even.
static inline Doubles expected_wins(Doubles loss, const Trials &of) { return rounded(of.trials * (1.0 - loss)); }
