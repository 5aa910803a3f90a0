// How gradients of each dtype are written: rounded to the nearest, and of two equally near to the even one.
#pragma once
#include "logits.h"

template <typename Scalar, typename Vector> static inline void store_as(Scalar *p, Vector v) { memcpy(p, &v, sizeof v); }

// All bits where a < b, for numbers whose difference fits.
static inline Ints below_bits(Ints a, int32_t b) { return (a - b) >> 31; }
static inline Ints choose(Ints bits, Ints a, Ints b) { return (bits & a) | (~bits & b); }

struct Float32Gradient : Float32 {
    static inline void store(float *p, Floats v) { store_as(p, v); }
};

struct Float64Gradient : Float64 {
    static inline void store(double *p, Doubles v) { store_as(p, v); }
};

struct BFloat16Gradient : BFloat16 {
    static inline void store(uint16_t *p, Floats v) {
        const Ints bits = (Ints)v, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        const Ints number = below_bits(bits & 0x7fffffff, 0x7f800001);
        store_as(p, __builtin_convertvector(choose(number, rounded, ints(0x7fc0)), Halves));
    }
};

struct Float16Gradient : Float16 {
#if defined(__AVX512F__)
    static inline void store(uint16_t *p, Floats v) {
        store_as(p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
#elif defined(__AVX2__) && defined(__F16C__)
    static inline void store(uint16_t *p, Floats v) {
        store_as(p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
    }
#else
    static inline void store(uint16_t *p, Floats v) {
        const Ints sign = ((Ints)v >> 16) & 0x8000, size = (Ints)v & 0x7fffffff;
        // The last place of a subnormal number is that of 0.5 in float32: a sum with 0.5 rounds it there.
        const Ints tiny = (Ints)((Floats)size + 0.5f) - 0x3f000000;
        const Ints usual = (size - (112 << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
        const Ints finite = choose(below_bits(size, 113 << 23), tiny, usual);
        const Ints large = choose(below_bits(size, 0x7f800001), ints(0x7c00), ints(0x7e00));
        const Ints half = choose(below_bits(size, 0x477ff000), finite, large);  // 65520 is infinity
        store_as(p, __builtin_convertvector(half | sign, Halves));
    }
#endif
};
