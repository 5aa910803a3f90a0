// Binomial log tails, 8 at a time; core/tails.py says how they are computed.
#include <cfloat>

#include "vectors.h"

constexpr int WIDE = 8;
typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Longs __attribute__((vector_size(64)));

static inline Doubles doubles(double x) { return Doubles{} + x; }

// log(x) for x >= 0: x = 2^n m with m in [1/sqrt(2), sqrt(2)), and log(m) = 2 atanh(s) with s = (m - 1) / (m + 1).
static inline Doubles log_of(Doubles x) {
    const Longs offset = (Longs)x - 0x3fe6a09e667f3bcdLL;
    const Longs n = offset >> 52;
    const Doubles f = (Doubles)((Longs)x - (n << 52)) - 1.0;
    const Doubles power = (Doubles)(n + 0x4338000000000000LL) - 0x1.8p52;  // n as a double
    const Doubles s = f / (f + 2.0), z = s * s, half = 0.5 * f * f;
    Doubles p = z * 1.479819860511658591e-01 + 1.531383769920937332e-01;
    p = p * z + 1.818357216161805012e-01;
    p = p * z + 2.222219843214978396e-01;
    p = p * z + 2.857142874366239149e-01;
    p = p * z + 3.999999999940941908e-01;
    p = p * z + 6.666666666666735130e-01;
    const Doubles low = s * (half + z * p) + power * 1.90821492927058770002e-10;
    const Doubles value = power * 6.93147180369123816490e-01 - ((half - low) - f);
    return x == 0.0 ? doubles(-INFINITY) : x < INFINITY ? value : x;
}

// log(1 + x) for x > -1: what rounding 1 + x lost is added again.
static inline Doubles log_of_one_and(Doubles x) {
    const Doubles y = 1.0 + x;
    return log_of(y) - (x < 0x1p60 && y > 0.0 ? ((y - 1.0) - x) / y : doubles(0.0));
}

// exp(x) for x <= 0; 0 below 2^-1022, where exp(-708.5) is.
static inline Doubles exp_of(Doubles x) {
    constexpr double magic = 0x1.8p52 + 1023.0;
    const Doubles small = x < -708.5 ? doubles(-708.5) : x;
    const Doubles shifted = small * 1.44269504088896338700 + magic, n = shifted - magic;
    const Doubles r = (small - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    Doubles p = doubles(1.0 / 479001600.0);
    constexpr double factorials[] = {39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2, 1, 1};
    for (double factorial : factorials) p = p * r + 1.0 / factorial;
    return x < -708.5 ? doubles(0.0) : p * (Doubles)((Longs)shifted << 52);
}

// Pr{X >= w} / Pr{X = w} on the far side of the mean: the continued fraction from its last step back to the first, as
// a numerator and a denominator. Neither overflows for k <= 1000: at most 74 steps, of less than 1100 each.
static inline Doubles ratio_of(Doubles count, double trials, Doubles chance, Doubles other, int half) {
    const Doubles odd = count * chance, even = (trials + 1.0) * chance - odd;
    Doubles base = count + 2.0 * half, above = base, below = doubles(1.0);
    for (int step = half; step > 0; step--) {
        Doubles next = (base - 1.0) * above + (even - chance * double(step)) * double(step) * below;
        below = above;
        base -= 2.0;
        above = base * next - (odd + chance * double(step - 1)) * (trials + step) * below;
        below = next;
    }
    return other * count * below / above;
}

// To the nearest integer, half to even. Not contracted with the product before it: that would round another number.
static inline Doubles rounded(Doubles x) {
    volatile Doubles exact = x;
    return (exact + 0x1.8p52) - 0x1.8p52;
}

struct Tails {
    Doubles log, slope;
};

static inline Tails log_tail(Doubles wins, Doubles odds, double trials, int half, const double *log_choices) {
    const Doubles real = odds < 0.0 ? doubles(NAN) : odds < DBL_MIN ? doubles(DBL_MIN) : odds;
    const Doubles win = 1.0 / (1.0 + real), inverse = 1.0 / real, lose = 1.0 / (1.0 + inverse);
    const Doubles log_win = -log_of_one_and(real), log_lose = -log_of_one_and(inverse);
    const Longs near = win * (trials + 3.0) >= wins + 1.0;
    Doubles count = near ? (trials + 1.0) - wins : wins;
    count = count < 1.0 ? doubles(1.0) : count > trials ? doubles(trials) : count;
    const Doubles rest = trials - count, chance = near ? lose : win, other = near ? win : lose;
    Doubles log_first;
    for (int i = 0; i < WIDE; i++) log_first[i] = log_choices[count[i] == count[i] ? int64_t(count[i]) : 0];
    // Not 0 * -inf, where no loss is asked for.
    log_first += count * (near ? log_lose : log_win) + (rest > 0.0 ? rest * (near ? log_win : log_lose) : doubles(0.0));
    const Doubles ratio = ratio_of(count, trials, chance, other, half);
    const Doubles complement = -ratio * exp_of(log_first);
    const Doubles value = near ? log_of_one_and(complement) : log_first + log_of(ratio);
    // On the near side over the odds too, whose logarithm is log_lose - log_win: the mass alone may underflow.
    const Doubles mass_over_tail = near ? exp_of(log_first - log_lose + log_win) / (1.0 + complement) : 1.0 / ratio;
    const Longs defined = odds >= 0.0, certain = defined & (wins <= 0.0), never = defined & (wins > trials);
    const Longs sure = certain | ((odds == 0.0) & (wins <= trials));
    return {never ? doubles(-INFINITY) : sure ? doubles(0.0) : value,
            certain | never ? doubles(0.0) : -count * mass_over_tail * win};
}

// `given` are the wins or, with `expected`, the losses 1 - q, from which the wins are round(k q), half to even.
extern "C" void log_tails(const double *given, const double *odds, const double *log_choices, double *log,
                          double *slope, int64_t size, int64_t trials, int32_t half, int32_t expected) {
#pragma omp parallel for schedule(static) if (size > 512)
    for (int64_t i = 0; i < size; i += WIDE) {
        const size_t bytes = sizeof(double) * (size - i < WIDE ? size - i : WIDE);
        Doubles wins = {}, against = {};
        memcpy(&wins, given + i, bytes);
        memcpy(&against, odds + i, bytes);
        if (expected)
            wins = rounded(double(trials) * (1.0 - wins));
        else  // rounded up, as whole wins are
            wins = rounded(wins) < wins ? rounded(wins) + 1.0 : rounded(wins);
        const Tails tails = log_tail(wins, against, double(trials), half, log_choices);
        memcpy(log + i, &tails.log, bytes);
        memcpy(slope + i, &tails.slope, bytes);
    }
}
