// Logits of each dtype: how they are read, a vector at a time, and where their rows lie.
#pragma once
#include "exps.h"
#include "vectors.h"

template <typename Vector, typename Scalar> static inline Vector load_as(const Scalar *p) {
    Vector v;
    memcpy(&v, p, sizeof v);
    return v;
}

// What the dtypes have in common that are read in the order of the classes.
template <typename Self, typename Of> struct InOrder : Of {
    typedef typename Of::Vector Vector;
    // Two vectors of logits, in any order.
    template <typename Type> static inline void load_pair(const Type *p, Vector &a, Vector &b) {
        a = Self::load(p), b = Self::load(p + Of::lanes);
    }
    // The first of the logits of a pair whose bits are set.
    static inline int64_t first_of_pair(uint32_t a, uint32_t b) {
        return a ? __builtin_ctz(a) : Of::lanes + __builtin_ctz(b);
    }
};

struct Float32 : InOrder<Float32, Narrow> {
    typedef float type;
    static inline bool is_nan(float x) { return x != x; }
    static inline double value(float x) { return x; }
    static inline Floats load(const float *p) { return load_as<Floats>(p); }
};

struct Float64 : InOrder<Float64, Wide> {
    typedef double type;
    static inline bool is_nan(double x) { return x != x; }
    static inline double value(double x) { return x; }
    static inline Doubles load(const double *p) { return load_as<Doubles>(p); }
};

struct BFloat16 : Narrow {
    typedef uint16_t type;
    static inline bool is_nan(uint16_t bits) { return (bits & 0x7fff) > 0x7f80; }
    static inline double value(uint16_t bits) {
        const uint32_t wide = uint32_t(bits) << 16;
        float x;
        memcpy(&x, &wide, 4);
        return x;
    }
    static inline Floats load(const uint16_t *p) {
        return (Floats)(__builtin_convertvector(load_as<Halves>(p), Ints) << 16);
    }
    // Each 32 bits hold two logits: the even ones, in the low halves, and the odd ones need one operation each.
    static inline void load_pair(const uint16_t *p, Floats &a, Floats &b) {
        const Ints both = load_as<Ints>(p);
        a = (Floats)(both << 16), b = (Floats)(both & int32_t(0xffff0000));
    }
    static inline int64_t first_of_pair(uint32_t a, uint32_t b) {
        const int even = a ? 2 * __builtin_ctz(a) : 2 * LANES, odd = b ? 2 * __builtin_ctz(b) + 1 : 2 * LANES;
        return even < odd ? even : odd;
    }
};

struct Float16 : InOrder<Float16, Narrow> {
    typedef uint16_t type;
    static inline bool is_nan(uint16_t bits) { return (bits & 0x7fff) > 0x7c00; }
    static inline double value(uint16_t bits) {
        uint16_t all[LANES] = {bits};
        return load(all)[0];
    }
#if defined(__AVX512F__)
    static inline Floats load(const uint16_t *p) {
        return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    }
#elif defined(__AVX2__) && defined(__F16C__)
    static inline Floats load(const uint16_t *p) {
        return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
#else
    static inline Floats load(const uint16_t *p) {
        const Ints bits = __builtin_convertvector(load_as<Halves>(p), Ints);
        const Ints size = bits & 0x7fff, sign = (bits & 0x8000) << 16;
        // The exponent's bias differs by 112, which a product corrects for subnormal numbers too.
        const Floats value = (Floats)(size << 13) * 0x1p112f;
        const Ints whole = size >= 0x7c00 ? (size << 13) | 0x7f800000 : (Ints)value;
        return (Floats)(whole | sign);
    }
#endif
};

// A tensor of logits as rows: row i begins at i / inner * outer + i % inner * stride, and its classes are `step` apart.
struct Logits {
    const void *data;
    int64_t rows, classes, inner, stride, outer, step;
    int32_t dtype;    // 0 to 3: float32, bfloat16, float16, float64
    int32_t tall;     // up to so many classes, rows are transposed
    int64_t start(int64_t row) const {
        return inner >= rows ? row * stride : row / inner * outer + row % inner * stride;
    }
};
