// Exponentials, logarithms and rounding; core/row_sums.py says why odds are summed times 2^100.
#pragma once
#include "simd.h"

// The polynomial in x with these coefficients, that of the highest power first.
template <typename Vector, typename Real, typename... Rest>
static inline Vector polynomial(Vector x, Real highest, Rest... rest) {
    Vector p = Vector{} + highest;
    ((p = p * x + rest), ...);
    return p;
}

// What exp(x) = 2^n exp(r) needs (Cody and Waite): r, and 2^100 2^n.
template <typename Vector> struct Reduced {
    Vector rest, power;
};

// Sums in float32.
struct Narrow {
    typedef float Real;
    typedef Floats Vector;
    typedef Ints Mask;
    static constexpr int lanes = LANES;
    static constexpr float up = 0x1p100f, down = 0x1p-100f, lowest = -3.40282347e38f;
    static inline Floats all(float x) { return Floats{} + x; }
    static inline Ints lane() { return load_as<Ints>(COUNT); }
    static inline Ints index(int64_t i) { return Ints{} + int32_t(i); }

    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits, from where it becomes an exponent; 227 are
    // the bias and the 100.
    static inline Reduced<Floats> reduced(Floats x) {
        constexpr float magic = 12582912.0f + 227.0f;
        x = larger(all(least), x);  // NaN stays NaN
        const Floats shifted = x * 1.44269504088896341f + magic, n = shifted - magic;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
        const Floats rest = x - n * 0.69314718055994531f;  // one rounding: the product is exact
#else
        const Floats rest = (x - n * 0.693359375f) + n * 2.12194440e-4f;
#endif
        return {rest, (Floats)((Ints)shifted << 23)};
    }
    static constexpr float least = -156.0f;  // u = 2^-225, which is 0 once it is scaled back

    // 2^100 exp(x) for x <= 0: 1 + ... of degree 5 with the least relative error on [-ln(2)/2, ln(2)/2], 9e-8.
    static inline Floats scaled_exp(Floats x) {
        const auto by = reduced(x);
        return polynomial(by.rest, 8.29031467951e-3f, 4.18979292981e-2f, 1.66676361955e-1f, 4.99991495307e-1f,
                          9.99999707189e-1f, 1.0f) * by.power;
    }

    // 1 - exp(x) for x <= 0: with e = exp(r) - 1, (1 - 2^n) - 2^n e, in which nothing cancels.
    static inline Floats lead(Floats x) {
        const auto by = reduced(x);
        const Floats r = by.rest, power = by.power * down;
        const Floats p = polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                    1.6666665459e-1f, 5.0000001201e-1f);
        return (1.0f - power) - power * (p * r * r + r);
    }

    // s / (2^100 + s) for 0 <= s <= 2^100.
    static inline Floats share(Floats s) {
        const Floats whole = s + up;
#if defined(__AVX512F__)
        const Floats guess = (Floats)_mm512_rcp14_ps((__m512)whole);  // to 2^-14, and to 2^-28 by a step of Newton's
        return s * (guess + guess * (1.0f - whole * guess));
#else
        return s / whole;
#endif
    }
};

// Sums in float64.
struct Wide {
    typedef double Real;
    typedef Doubles Vector;
    typedef Longs Mask;
    static constexpr int lanes = WIDE;
    static constexpr double up = 0x1p100, down = 0x1p-100, lowest = -1.7976931348623157e308;
    static constexpr double least = -777.0;  // 2^100 exp(-777) is a normal number, exp(-777) is 0
    static inline Doubles all(double x) { return doubles(x); }
    static inline Longs lane() { return load_as<Longs>(WIDE_COUNT); }
    static inline Longs index(int64_t i) { return Longs{} + i; }

    static inline Reduced<Doubles> reduced(Doubles x) {
        constexpr double magic = 0x1.8p52 + 1123.0;
        x = larger(doubles(least), x);
        const Doubles shifted = x * 1.44269504088896338700 + magic, n = shifted - magic;
        const Doubles rest = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
        return {rest, (Doubles)((Longs)shifted << 52)};
    }

    // exp(r) - 1 - r over r^2, for |r| <= ln(2)/2.
    static inline Doubles curve(Doubles r) {
        Doubles p = doubles(1.0 / 6227020800.0);
        constexpr double factorials[] = {479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2};
        for (double factorial : factorials) p = p * r + 1.0 / factorial;
        return p;
    }
    static inline Doubles scaled_exp(Doubles x) {
        const auto by = reduced(x);
        return (curve(by.rest) * by.rest * by.rest + by.rest + 1.0) * by.power;
    }
    static inline Doubles lead(Doubles x) {
        const auto by = reduced(x);
        const Doubles power = by.power * down;
        return (1.0 - power) - power * (curve(by.rest) * by.rest * by.rest + by.rest);
    }
    static inline Doubles share(Doubles s) { return s / (s + up); }
};

// n log(2) + log(1 + f) for 1 + f in [1/sqrt(2), sqrt(2)]: log(1 + f) = 2 atanh(s) with s = f / (2 + f).
static inline Doubles log_of_parts(Doubles n, Doubles f) {
    const Doubles s = f / (f + 2.0), z = s * s, half = 0.5 * f * f;
    const Doubles p = polynomial(z, 1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                                 2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                                 6.666666666666735130e-01);
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

// To the nearest integer, half to even. Not contracted with the product before it, which would round another number:
// the compiler does not know where the number comes from.
static inline Doubles rounded(Doubles x) {
    asm("" : "+m"(x));
    return (x + 0x1.8p52) - 0x1.8p52;
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
