// Binomial log tails, a vector at a time; core/tails.py says how they are computed.
#pragma once
#include <cfloat>

#include "vector_math.h"

// The trials k, half the number of steps of the continued fraction, and log binomial(k, w) for each w in 0..k.
struct Trials {
    double trials;
    int half;
    const double *log_choices;
};

// A chance to win of 1 / (1 + odds): each logarithm is taken from the smaller of both chances, which knows more digits.
struct Chance {
    Doubles win, lose, log_win, log_lose;
};
static inline Chance chance_of(Doubles odds) {
    const Doubles real = odds < 0.0 ? doubles(NAN) : odds < DBL_MIN ? doubles(DBL_MIN) : odds;
    const Longs likely = real < 1.0;
    const Doubles win = 1.0 / (1.0 + real), lose = likely ? real * win : 1.0 - win, small = likely ? lose : win;
    const Doubles log_small = log_of(small), log_large = log_of_one_and(-small);
    return {win, lose, likely ? log_large : log_small, likely ? log_small : log_large};
}

// The far side of the mean: for wins on the near side, they count the losses.
struct Side {
    Longs near;
    Doubles count, chance, other, log_first;  // the last is log Pr{X = count}
};
static inline Side side_of(Doubles wins, const Chance &of, const Trials &given) {
    const double trials = given.trials;
    const Longs near = of.win * (trials + 3.0) >= wins + 1.0;
    Doubles count = near ? (trials + 1.0) - wins : wins;
    count = count < 1.0 ? doubles(1.0) : count > trials ? doubles(trials) : count;
    const Longs place = __builtin_convertvector(count == count ? count : doubles(0.0), Longs);
    Doubles log_first;
    for (int i = 0; i < WIDE; i++) log_first[i] = given.log_choices[place[i]];
    // Not 0 * -inf, where no loss is asked for.
    const Doubles rest = trials - count, log_rest = near ? of.log_win : of.log_lose;
    log_first += count * (near ? of.log_lose : of.log_win) + (rest > 0.0 ? rest * log_rest : doubles(0.0));
    return {near, count, near ? of.lose : of.win, near ? of.win : of.lose, log_first};
}

// Pr{X >= w} / Pr{X = w} on the far side of the mean: the continued fraction from its last step back to the first, as
// a numerator and a denominator. Neither overflows for k <= 1000: at most 74 steps, of less than 1100 each.
// The factors of the steps, s (k + 1 - w - s) p and (k + s) (w + s - 1) p, come from sums where they can: processors add
// while they multiply. Two vectors at a time, because each step waits for the one before it.
static inline void ratios_of(const Side of[2], const Trials &given, Doubles ratios[2]) {
    const int half = given.half;
    Doubles even[2], change[2], odd[2], base[2], above[2], below[2], twice[2];
    for (int v = 0; v < 2; v++) {
        const Doubles chance = of[v].chance, whole = (given.trials + 1.0) * chance - of[v].count * chance;
        even[v] = double(half) * (whole - double(half) * chance), change[v] = double(2 * half - 1) * chance - whole;
        odd[v] = of[v].count * chance + double(half - 1) * chance;
        base[v] = above[v] = of[v].count + 2.0 * half, below[v] = doubles(1.0), twice[v] = chance + chance;
    }
    for (int step = half; step > 0; step--)
        for (int v = 0; v < 2; v++) {
            const Doubles next = (base[v] - 1.0) * above[v] + even[v] * below[v];
            base[v] -= 2.0;
            above[v] = base[v] * next - odd[v] * (given.trials + step) * above[v];
            below[v] = next;
            even[v] += change[v], change[v] -= twice[v], odd[v] -= of[v].chance;
        }
    for (int v = 0; v < 2; v++) ratios[v] = of[v].other * of[v].count * below[v] / above[v];
}

struct Tails {
    Doubles log, slope;
};

template <bool SLOPE>
static inline Tails tails_of(Doubles wins, Doubles odds, const Chance &of, const Side &side, Doubles ratio, double trials) {
    const Longs near = side.near;
    const Doubles complement = -ratio * exp_of(side.log_first);
    // The near side is log(1 + complement), the far side log_first + log(ratio): one logarithm for either.
    const Parts parts = parts_of(near ? 1.0 + complement : ratio);
    const Longs exact = near & (complement > -0.25);
    const Doubles log = log_of_parts(exact ? doubles(0.0) : parts.n, exact ? complement : parts.f);
    const Longs defined = odds >= 0.0, certain = defined & (wins <= 0.0), never = defined & (wins > trials);
    const Longs sure = certain | ((odds == 0.0) & (wins <= trials));
    const Doubles value = near ? log : side.log_first + log;
    Tails tails = {never ? doubles(-INFINITY) : sure ? doubles(0.0) : value, {}};
    if (SLOPE) {
        // On the near side over the odds too, whose logarithm is log_lose - log_win: the mass itself may underflow.
        const Doubles over_odds = exp_of(side.log_first - of.log_lose + of.log_win);
        const Doubles mass_over_tail = near ? over_odds / (1.0 + complement) : 1.0 / ratio;
        tails.slope = certain | never ? doubles(0.0) : -side.count * mass_over_tail * of.win;
    }
    return tails;
}

constexpr int MANY = 64 / WIDE;  // vectors of 64 numbers

// The log tails of Pr{Binomial(k, 1 / (1 + odds)) >= wins}, and their derivatives in the odds, of up to MANY vectors;
// there is room for an even number. In short loops, a processor works on several vectors at once.
template <bool SLOPE>
static inline void log_tails(int vectors, const Doubles *wins, const Doubles *odds, const Chance *chances,
                             const Trials &given, Tails *out) {
    Side sides[MANY];
    Doubles ratios[MANY];
    for (int v = 0; v < vectors; v++) sides[v] = side_of(wins[v], chances[v], given);
    if (vectors % 2) sides[vectors] = sides[vectors - 1];
    for (int v = 0; v < vectors; v += 2) ratios_of(sides + v, given, ratios + v);
    for (int v = 0; v < vectors; v++)
        out[v] = tails_of<SLOPE>(wins[v], odds[v], chances[v], sides[v], ratios[v], given.trials);
}
