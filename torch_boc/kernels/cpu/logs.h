// Logarithms, exponentials and rounding in float64, a vector at a time.
#pragma once
#include "exps.h"

// n log(2) + log(1 + f) for 1 + f in [1/sqrt(2), sqrt(2)]: log(1 + f) = 2 atanh(s) with s = f / (2 + f).
static inline Doubles log_of_parts(Doubles n, Doubles f) {
    const Doubles s = f / (f + 2.0), z = s * s, half = 0.5 * f * f;
    Doubles p = z * 1.479819860511658591e-01 + 1.531383769920937332e-01;
    p = p * z + 1.818357216161805012e-01;
    p = p * z + 2.222219843214978396e-01;
    p = p * z + 2.857142874366239149e-01;
    p = p * z + 3.999999999940941908e-01;
    p = p * z + 6.666666666666735130e-01;
    const Doubles low = s * (half + z * p) + n * 1.90821492927058770002e-10;
    return n * 6.93147180369123816490e-01 - ((half - low) - f);
}

// x = 2^n (1 + f) for a normal x > 0, with 1 + f in [1/sqrt(2), sqrt(2)).
struct Parts {
    Doubles n, f;
};
static inline Parts parts_of(Doubles x) {
    // n + 1023, in the low bits of 2^52; many processors shift without a sign only.
    const Patterns shifted = ((Patterns)x + (0x3ff0000000000000ULL - 0x3fe6a09e667f3bcdULL)) >> 52;
    const Doubles n = (Doubles)(shifted | 0x4330000000000000ULL) - (0x1p52 + 1023.0);
    return {n, (Doubles)((Patterns)x - ((shifted - 1023) << 52)) - 1.0};
}

// log(x) for x >= 0.
static inline Doubles log_of(Doubles x) {
    const Parts parts = parts_of(x);
    const Doubles value = log_of_parts(parts.n, parts.f);
    return x == 0.0 ? doubles(-INFINITY) : x < INFINITY ? value : x;
}

// log(1 + x) for -1 <= x <= 0: near 0, where rounding 1 + x costs digits, x itself is f.
static inline Doubles log_of_one_and(Doubles x) {
    const Parts parts = parts_of(1.0 + x);
    const Longs near = x > -0.25;
    const Doubles value = log_of_parts(near ? doubles(0.0) : parts.n, near ? x : parts.f);
    return x == -1.0 ? doubles(-INFINITY) : value;
}

// exp(x) for x <= 0.
static inline Doubles exp_of(Doubles x) { return Wide::scaled_exp(x) * 0x1p-100; }

// The same number, of which the compiler does not know where it comes from.
static inline Doubles opaque(Doubles x) {
#if defined(__AVX512F__)
    asm("" : "+v"(x));
#elif defined(__SSE2__)
    asm("" : "+x"(x));
#elif defined(__aarch64__)
    asm("" : "+w"(x));
#else
    volatile Doubles kept = x;
    x = kept;
#endif
    return x;
}

// To the nearest integer, half to even. Not contracted with the product before it: that would round another number.
static inline Doubles rounded(Doubles x) { return (opaque(x) + 0x1.8p52) - 0x1.8p52; }

// Down and up to an integer, for 0 <= x < 2^51.
static inline Doubles floor_of(Doubles x) {
    const Doubles near = (x + 0x1p52) - 0x1p52;
    return near > x ? near - 1.0 : near;
}
static inline Doubles ceil_of(Doubles x) {
    const Doubles near = rounded(x);
    return near < x ? near + 1.0 : near;
}
