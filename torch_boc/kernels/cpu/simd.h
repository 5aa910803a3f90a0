// Vectors in the extensions of GCC and Clang, as wide as the registers of the processor that is compiled for: of wider
// ones, compilers compare and choose one number after the other.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX2__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif
constexpr int LANES = BYTES / 4;  // of float32
constexpr int WIDE = BYTES / 8;   // of float64
typedef float Floats __attribute__((vector_size(BYTES)));
typedef int32_t Ints __attribute__((vector_size(BYTES)));
typedef double Doubles __attribute__((vector_size(BYTES)));
typedef int64_t Longs __attribute__((vector_size(BYTES)));
typedef uint64_t Patterns __attribute__((vector_size(BYTES)));
typedef uint16_t Halves __attribute__((vector_size(BYTES / 2)));
typedef uint8_t Bytes __attribute__((vector_size(BYTES / 8)));
constexpr int32_t COUNT[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr int64_t WIDE_COUNT[] = {0, 1, 2, 3, 4, 5, 6, 7};

template <typename Vector, typename Scalar> static inline Vector load_as(const Scalar *p) {
    Vector v;
    memcpy(&v, p, sizeof v);
    return v;
}
template <typename Scalar, typename Vector> static inline void store_as(Scalar *p, Vector v) { memcpy(p, &v, sizeof v); }
static inline Doubles doubles(double x) { return Doubles{} + x; }
static inline Doubles at_least_0(Doubles x) { return x < 0.0 ? doubles(0.0) : x; }

// b where a is NaN. Compilers do not find the instruction in a > b ? a : b.
#if defined(__AVX512F__)
static inline Floats larger(Floats a, Floats b) { return (Floats)_mm512_max_ps((__m512)a, (__m512)b); }
static inline Doubles larger(Doubles a, Doubles b) { return (Doubles)_mm512_max_pd((__m512d)a, (__m512d)b); }
#elif defined(__AVX2__)
static inline Floats larger(Floats a, Floats b) { return (Floats)_mm256_max_ps((__m256)a, (__m256)b); }
static inline Doubles larger(Doubles a, Doubles b) { return (Doubles)_mm256_max_pd((__m256d)a, (__m256d)b); }
#else
template <typename Vector> static inline Vector larger(Vector a, Vector b) { return a > b ? a : b; }
#endif

// One bit for each lane of a comparison, the first lane in the lowest.
#if defined(__AVX512DQ__)
static inline uint32_t bits_of(Ints mask) { return _mm512_movepi32_mask((__m512i)mask); }
static inline uint32_t bits_of(Longs mask) { return _mm512_movepi64_mask((__m512i)mask); }
#elif defined(__AVX2__)
static inline uint32_t bits_of(Ints mask) { return uint32_t(_mm256_movemask_ps((__m256)mask)); }
static inline uint32_t bits_of(Longs mask) { return uint32_t(_mm256_movemask_pd((__m256d)mask)); }
#elif defined(__SSE2__)
static inline uint32_t bits_of(Ints mask) { return uint32_t(_mm_movemask_ps((__m128)mask)); }
static inline uint32_t bits_of(Longs mask) { return uint32_t(_mm_movemask_pd((__m128d)mask)); }
#else
template <typename Mask> static inline uint32_t bits_of(Mask mask) {
    uint32_t bits = 0;
    for (int i = 0; i < int(sizeof mask / sizeof mask[0]); i++) bits |= uint32_t(mask[i] & 1) << i;
    return bits;
}
#endif

// Folds the lanes of a vector by halves, to a number.
template <typename Vector, typename Combine> static inline auto fold(Vector v, Combine combine) {
    for (int half = sizeof v / sizeof v[0] / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) v[i] = combine(v[i], v[i + half]);
    return v[0];
}
template <typename Vector> static inline auto sum_of(Vector v) {
    return fold(v, [](auto a, auto b) { return a + b; });
}
template <typename Vector> static inline auto largest_of(Vector v) {
    return fold(v, [](auto a, auto b) { return a > b ? a : b; });
}

constexpr int64_t SOME = 64;  // summands that are added up before they join a sum: rounding grows with their number

// A sum of many numbers, in three steps.
template <typename Vector> struct LongSum {
    Vector part = {}, block = {}, whole = {};
    int64_t added = 0;
    inline void add(Vector x) {
        part += x;
        if (++added % SOME == 0) block += part, part = Vector{};
        if (added % (SOME * SOME) == 0) whole += block, block = Vector{};
    }
    inline Vector total() const { return whole + block + part; }
};
