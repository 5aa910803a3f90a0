// Logarithms, exponentials and rounding in float64, 8 at a time.
#pragma once
#include "exps.h"

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

// exp(x) for x <= 0.
static inline Doubles exp_of(Doubles x) { return Wide::scaled_exp(x) * 0x1p-100; }

// To the nearest integer, half to even. Not contracted with the product before it: that would round another number.
static inline Doubles rounded(Doubles x) {
    volatile Doubles exact = x;
    return (exact + 0x1.8p52) - 0x1.8p52;
}

// Down and up to an integer, for 0 <= x < 2^51.
static inline Doubles floor_of(Doubles x) {
    const Doubles near = (x + 0x1p52) - 0x1p52;
    return near > x ? near - 1.0 : near;
}
static inline Doubles ceil_of(Doubles x) {
    const Doubles near = rounded(x);
    return near < x ? near + 1.0 : near;
}
