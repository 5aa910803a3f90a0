// Vectors of 64 bytes in the extensions of GCC and Clang: one AVX-512 register, or as many narrower ones as it takes.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int LANES = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
constexpr Ints LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static inline Floats floats(float x) { return Floats{} + x; }
static inline Ints ints(int32_t x) { return Ints{} + x; }
static inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }  // b where a is NaN

// How the logits of each dtype are read: 16 at a time, as float32.
struct Float32 {
    typedef float type;
    static bool is_nan(float x) { return x != x; }
    static Floats load(const float *p) {
        Floats v;
        memcpy(&v, p, 64);
        return v;
    }
};

struct BFloat16 {
    typedef uint16_t type;
    static bool is_nan(uint16_t bits) { return (bits & 0x7fff) > 0x7f80; }
    static Floats load(const uint16_t *p) {
        Halves half;
        memcpy(&half, p, 32);
        return (Floats)(__builtin_convertvector(half, Ints) << 16);
    }
};

struct Float16 {
    typedef uint16_t type;
    static bool is_nan(uint16_t bits) { return (bits & 0x7fff) > 0x7c00; }
    static Floats load(const uint16_t *p) {
        Halves half;
        memcpy(&half, p, 32);
        Ints bits = __builtin_convertvector(half, Ints);
        Ints size = bits & 0x7fff, sign = (bits & 0x8000) << 16;
        // The exponent's bias differs by 112, which a product corrects for subnormal numbers too.
        Floats value = (Floats)(size << 13) * 0x1p112f;
        Ints whole = size >= 0x7c00 ? (size << 13) | 0x7f800000 : (Ints)value;
        return (Floats)(whole | sign);
    }
};

// Folds the lanes of a vector by halves.
template <typename Scalar, typename Combine> static inline Scalar fold(const void *vector, Combine combine) {
    typedef Scalar Eight __attribute__((vector_size(32)));
    typedef Scalar Four __attribute__((vector_size(16)));
    Eight eight[2];
    memcpy(eight, vector, 64);
    Eight of_eight = combine(eight[0], eight[1]);
    Four four[2];
    memcpy(four, &of_eight, 32);
    Four v = combine(four[0], four[1]);
    return combine(combine(v[0], v[1]), combine(v[2], v[3]));
}
static inline float sum_of(Floats v) {
    return fold<float>(&v, [](auto a, auto b) { return a + b; });
}
static inline int32_t sum_of(Ints v) {
    return fold<int32_t>(&v, [](auto a, auto b) { return a + b; });
}
static inline float largest_of(Floats v) {
    return fold<float>(&v, [](auto a, auto b) { return a > b ? a : b; });
}
static inline int32_t smallest_of(Ints v) {
    return fold<int32_t>(&v, [](auto a, auto b) { return a < b ? a : b; });
}
