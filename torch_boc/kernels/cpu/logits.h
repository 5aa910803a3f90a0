// Logits of each dtype: how they are read and written, a vector at a time, and where their rows lie.
#pragma once
#include "schema.h"
#include "vector_math.h"

// All bits where a < b, for numbers whose difference fits.
static inline Ints below_bits(Ints a, int32_t b) { return (a - b) >> 31; }
static inline Ints choose(Ints bits, Ints a, Ints b) { return (bits & a) | (~bits & b); }

// What the dtypes have in common; bfloat16 reads pairs in its own way.
template <typename Self, typename Of> struct Dtype : Of {
    typedef typename Of::Vector Vector;
    template <typename Type> static inline double value(Type logit) {
        Type all[Of::lanes] = {logit};
        return Self::load(all)[0];
    }
    // Two vectors of logits, in any order.
    template <typename Type> static inline void load_pair(const Type *p, Vector &a, Vector &b) {
        a = Self::load(p), b = Self::load(p + Of::lanes);
    }
    // The first of the logits of a pair whose bits are set.
    static inline int64_t first_of_pair(uint32_t a, uint32_t b) {
        return a ? __builtin_ctz(a) : Of::lanes + __builtin_ctz(b);
    }
};

struct Float32 : Dtype<Float32, Narrow> {
    typedef float type;
    static inline Floats load(const float *p) { return load_as<Floats>(p); }
    static inline void store(float *p, Floats v) { store_as(p, v); }
};

struct Float64 : Dtype<Float64, Wide> {
    typedef double type;
    static inline Doubles load(const double *p) { return load_as<Doubles>(p); }
    static inline void store(double *p, Doubles v) { store_as(p, v); }
};

struct BFloat16 : Dtype<BFloat16, Narrow> {
    typedef uint16_t type;
    static inline Floats load(const uint16_t *p) {
        return (Floats)(__builtin_convertvector(load_as<Halves>(p), Ints) << 16);
    }
    // To the nearest, and of two equally near to the even one.
    static inline void store(uint16_t *p, Floats v) {
        const Ints bits = (Ints)v, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        const Ints number = below_bits(bits & 0x7fffffff, 0x7f800001);
        store_as(p, __builtin_convertvector(choose(number, rounded, Ints{} + 0x7fc0), Halves));
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

struct Float16 : Dtype<Float16, Narrow> {
    typedef uint16_t type;
#if defined(__AVX512F__)
    static inline Floats load(const uint16_t *p) {
        return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    }
    static inline void store(uint16_t *p, Floats v) {
        store_as(p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
#elif defined(__AVX2__) && defined(__F16C__)
    static inline Floats load(const uint16_t *p) {
        return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    static inline void store(uint16_t *p, Floats v) {
        store_as(p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
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
    static inline void store(uint16_t *p, Floats v) {
        const Ints sign = ((Ints)v >> 16) & 0x8000, size = (Ints)v & 0x7fffffff;
        // The last place of a subnormal number is that of 0.5 in float32: a sum with 0.5 rounds it there.
        const Ints tiny = (Ints)((Floats)size + 0.5f) - 0x3f000000;
        const Ints usual = (size - (112 << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
        const Ints finite = choose(below_bits(size, 113 << 23), tiny, usual);
        const Ints large = choose(below_bits(size, 0x7f800001), Ints{} + 0x7c00, Ints{} + 0x7e00);
        const Ints half = choose(below_bits(size, 0x477ff000), finite, large);  // 65520 is infinity
        store_as(p, __builtin_convertvector(half | sign, Halves));
    }
#endif
};

// Up to so many classes, rows are transposed, so that a vector holds one class of many rows: this was timed as faster.
constexpr int64_t MAX_TRANSPOSED = BYTES == 64 ? 200 : 72, MAX_TRANSPOSED_WIDE = BYTES == 64 ? 64 : 47;  // of float64

// A tensor of logits as rows: row i begins at i / inner * outer + i % inner * stride, and its classes are `step` apart.
struct Logits {
    const void *data;
    int64_t rows, classes, inner, stride, outer, step;
    Type dtype;
    int64_t start(int64_t row) const {
        return inner >= rows ? row * stride : row / inner * outer + row % inner * stride;
    }
    // Whether rows are copied with one class of each row after the other: short rows, which may be shorter than a
    // vector, and rows that lie side by side.
    bool is_transposed() const { return classes <= (dtype == Type::float64 ? MAX_TRANSPOSED_WIDE : MAX_TRANSPOSED) || step != 1; }
};

// Calls `body` with the type of the logits.
template <typename Body> static inline auto with_type(Type dtype, const Body &body) {
    switch (dtype) {
    case Type::float32: return body(Float32{});
    case Type::bfloat16: return body(BFloat16{});
    case Type::float16: return body(Float16{});
    default: return body(Float64{});
    }
}

// What every function that reads logits is given; BOC_DESCRIBED makes `logits` of it.
#define BOC_LOGITS                                                                                                     \
    const void *data, int64_t rows, int64_t classes, int64_t inner, int64_t stride, int64_t outer, int64_t step,       \
        int32_t dtype, int32_t threads
#define BOC_DESCRIBED const Logits logits = {data, rows, classes, inner, stride, outer, step, Type(dtype)}
