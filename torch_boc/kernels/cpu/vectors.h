// Vectors of 64 bytes in the extensions of GCC and Clang: one AVX-512 register, or as many narrower ones as it takes.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

constexpr int LANES = 16;  // of float32
constexpr int WIDE = 8;    // of float64
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Longs __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
constexpr Ints LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr Longs WIDE_LANE = {0, 1, 2, 3, 4, 5, 6, 7};

static inline Floats floats(float x) { return Floats{} + x; }
static inline Ints ints(int32_t x) { return Ints{} + x; }
static inline Doubles doubles(double x) { return Doubles{} + x; }
static inline Longs longs(int64_t x) { return Longs{} + x; }

// b where a is NaN. Compilers do not find the instruction in a > b ? a : b.
#if defined(__AVX512F__)
static inline Floats larger(Floats a, Floats b) { return (Floats)_mm512_max_ps((__m512)a, (__m512)b); }
static inline Doubles larger(Doubles a, Doubles b) { return (Doubles)_mm512_max_pd((__m512d)a, (__m512d)b); }
#else
static inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }
static inline Doubles larger(Doubles a, Doubles b) { return a > b ? a : b; }
#endif

// One bit for each lane of a comparison, the first lane in the lowest.
#if defined(__AVX512DQ__)
static inline uint32_t bits_of(Ints mask) { return _mm512_movepi32_mask((__m512i)mask); }
static inline uint32_t bits_of(Longs mask) { return _mm512_movepi64_mask((__m512i)mask); }
#elif defined(__SSE2__)
static inline uint32_t bits_of(Ints mask) {
    __m128 part[4];
    memcpy(part, &mask, 64);
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= uint32_t(_mm_movemask_ps(part[i])) << (4 * i);
    return bits;
}
static inline uint32_t bits_of(Longs mask) {
    __m128d part[4];
    memcpy(part, &mask, 64);
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= uint32_t(_mm_movemask_pd(part[i])) << (2 * i);
    return bits;
}
#else
template <typename Mask> static inline uint32_t bits_of(Mask mask) {
    uint32_t bits = 0;
    for (int i = 0; i < int(64 / sizeof(mask[0])); i++) bits |= uint32_t(mask[i] & 1) << i;
    return bits;
}
#endif

// One bit for each lane in which both are equal.
#if defined(__AVX512F__)
static inline uint32_t equal_bits(Floats a, Floats b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ);
}
static inline uint32_t equal_bits(Doubles a, Doubles b) {
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_EQ_OQ);
}
#else
template <typename Vector> static inline uint32_t equal_bits(Vector a, Vector b) { return bits_of(a == b); }
#endif

// Folds the lanes of a vector by halves.
template <typename Scalar, typename Combine> static inline Scalar fold(const void *vector, Combine combine) {
    typedef Scalar Half __attribute__((vector_size(32)));
    typedef Scalar Quarter __attribute__((vector_size(16)));
    Half half[2];
    memcpy(half, vector, 64);
    const Half of_halves = combine(half[0], half[1]);
    Quarter quarter[2];
    memcpy(quarter, &of_halves, 32);
    const Quarter v = combine(quarter[0], quarter[1]);
    if constexpr (sizeof(Scalar) == 8) return combine(v[0], v[1]);
    else return combine(combine(v[0], v[1]), combine(v[2], v[3]));
}
static inline float sum_of(Floats v) {
    return fold<float>(&v, [](auto a, auto b) { return a + b; });
}
static inline double sum_of(Doubles v) {
    return fold<double>(&v, [](auto a, auto b) { return a + b; });
}
static inline int32_t sum_of(Ints v) {
    return fold<int32_t>(&v, [](auto a, auto b) { return a + b; });
}
static inline int64_t sum_of(Longs v) {
    return fold<int64_t>(&v, [](auto a, auto b) { return a + b; });
}
static inline float largest_of(Floats v) {
    return fold<float>(&v, [](auto a, auto b) { return a > b ? a : b; });
}
static inline double largest_of(Doubles v) {
    return fold<double>(&v, [](auto a, auto b) { return a > b ? a : b; });
}
static inline int32_t smallest_of(Ints v) {
    return fold<int32_t>(&v, [](auto a, auto b) { return a < b ? a : b; });
}
