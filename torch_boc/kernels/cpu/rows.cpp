// The sums of rows of many classes: each vector holds several classes of one row.
#include "rows.h"

#include "sums.h"
#include "tall.h"

constexpr int64_t LONG = 8192;  // from so many classes on, the processor does not prefetch the next row
constexpr int64_t PART = 32;    // pairs of vectors added up before they join the sum: rounding grows with the longer

// The sums for the concentration of a flat row.
template <typename Logit>
__attribute__((noinline)) static void read_leads(const typename Logit::type *row, int64_t classes,
                                                 typename Logit::Real best, double *mass, double *squares) {
    Spread<Logit> all;
    over_row<Logit>(row, classes, best, [&](typename Logit::Vector z) { all.add_lead(z - best); });
    *mass = sum_of(all.mass), *squares = double(sum_of(all.squares)) * 0x1p-100;
}

// The same of a sharp row.
template <typename Logit>
__attribute__((noinline)) static void read_relative(const typename Logit::type *row, int64_t classes,
                                                    typename Logit::Real best, Block &out, int i) {
    typedef typename Logit::Vector Vector;
    Vector seconds = Logit::all(Logit::lowest);
    over_row<Logit>(row, classes, best, [&](Vector z) { seconds = second_of(z - best, seconds); });
    const Vector second = Logit::all(largest_of(seconds));
    Spread<Logit> all;
    over_row<Logit>(row, classes, best, [&](Vector z) { all.add_relative(z - best, second); });
    keep_relative(second[0], sum_of(all.mass), sum_of(all.squares), out, i);
}

// One row, at least a vector long: every class equal to the top is left out, and all of them but one are added again.
// Inlined, because a call would load every constant again for every row.
template <typename Logit, bool EXTRAS>
static inline __attribute__((always_inline)) void one_row(const typename Logit::type *row, int64_t classes,
                                                          const typename Logit::type *next, int i, Block &out) {
    typedef typename Logit::Vector Vector;
    typedef typename Logit::Real Real;
    constexpr int64_t lanes = Logit::lanes, pair = 2 * lanes;
    const int64_t whole = classes / pair * pair, left = classes - whole, rest = left % lanes;
    const Vector none = Logit::all(-INFINITY);
    const auto inside = Logit::lane() >= Logit::index(lanes - rest);  // of the last vector, which reaches back
    const Vector last = inside ? Logit::load(row + classes - lanes) : none;
    const Vector single = left >= lanes ? Logit::load(row + whole) : none;
    Vector bests[4] = {last, single, none, none};
    int64_t j = 0;
    for (; j + 2 * pair <= whole; j += 2 * pair) {
        Vector z[4];
        Logit::load_pair(row + j, z[0], z[1]);
        Logit::load_pair(row + j + pair, z[2], z[3]);
        for (int k = 0; k < 4; k++) bests[k] = larger(z[k], bests[k]);
    }
    if (j < whole) {
        Vector a, b;
        Logit::load_pair(row + j, a, b);
        bests[0] = larger(a, bests[0]), bests[1] = larger(b, bests[1]);
    }
    const Real best = largest_of(larger(larger(bests[0], bests[1]), larger(bests[2], bests[3])));
    const Vector top = Logit::all(best);
    const bool ahead = classes >= LONG;

    Sums<Logit, EXTRAS> sums;
    int64_t place = classes - 1, ties = 0;
    // From the end to the start: the first of several tops remains, and what was read last is still in the cache.
    if (rest) {
        const uint32_t bits = equal_bits(last, top);
        if (bits) place = classes - lanes + __builtin_ctz(bits), ties += __builtin_popcount(bits);
        sums.add_but((last == top) | ~inside, last - top);
    }
    if (left >= lanes) {
        const uint32_t bits = equal_bits(single, top);
        if (bits) place = whole + __builtin_ctz(bits), ties += __builtin_popcount(bits);
        sums.add_but(single == top, single - top);
    }
    for (j = whole; j > 0;) {
        Sums<Logit, EXTRAS> part;
        const int64_t end = j > PART * pair ? j - PART * pair : 0;
        while (j > end) {
            j -= pair;
            if (ahead) __builtin_prefetch(next + j, 0, 2), __builtin_prefetch(next + j + lanes, 0, 2);
            Vector a, b;
            Logit::load_pair(row + j, a, b);
            const uint32_t first = equal_bits(a, top), second = equal_bits(b, top);
            if (__builtin_expect(first | second, 0)) {
                place = j + Logit::first_of_pair(first, second);
                ties += __builtin_popcount(first) + __builtin_popcount(second);
                part.add_but(a == top, a - top), part.add_but(b == top, b - top);
            } else {
                part.add(a - top), part.add(b - top);
            }
        }
        sums.add(part);
    }
    const Real total = sum_of(sums.odds), others = Real(ties - 1);
    const Real undefined = (best - best) + (total - total);  // 0, or NaN where a logit is NaN or the top is infinite
    const Real odds = total * Logit::down + others + undefined;
    out.prediction[i] = undefined == undefined ? place : first_nan<Logit>(row, classes, 1, place);
    out.top[i] = best + undefined;
    out.odds[i] = out.mass[i] = out.relative[i] = odds, out.unit[i] = 0.0;
    out.squares[i] = out.mass_squares[i] = double(sum_of(sums.squares)) * 0x1p-100 + 0.5 * others + undefined;
    if (EXTRAS) {
        out.surprise[i] = sum_of(sums.surprise) * Logit::down + undefined;
        out.margin[i] = sum_of(sums.margin) + undefined;
    }
    if (__builtin_expect(odds > (classes - 1) * FLAT, 0))
        read_leads<Logit>(row, classes, best, out.mass + i, out.mass_squares + i);
    else if (__builtin_expect(odds < SHARP, 0))
        read_relative<Logit>(row, classes, best, out, i);
}

template <typename Logit, bool EXTRAS>
static void read_rows(const Logits &logits, int64_t first, int64_t count, Block &out) {
    const auto *data = static_cast<const typename Logit::type *>(logits.data);
    if (is_turned(logits))
        return read_turned<Logit, EXTRAS>(logits, first, count, out);
    if (logits.step != 1) return read_in_place<Logit, EXTRAS>(logits, first, count, out);
    const auto *row = data + logits.start(first);
    for (int64_t i = 0; i < count; i++) {
        const auto *next = first + i + 1 < logits.rows ? data + logits.start(first + i + 1) : row;
        one_row<Logit, EXTRAS>(row, logits.classes, next, int(i), out);
        row = next;
    }
}

template <bool EXTRAS> static void read_dtype(const Logits &logits, int64_t first, int64_t count, Block &out) {
    switch (logits.dtype) {
    case 0: return read_rows<Float32, EXTRAS>(logits, first, count, out);
    case 1: return read_rows<BFloat16, EXTRAS>(logits, first, count, out);
    case 2: return read_rows<Float16, EXTRAS>(logits, first, count, out);
    default: return read_rows<Float64, EXTRAS>(logits, first, count, out);
    }
}

void read_block(const Logits &logits, int64_t first, int64_t count, int wanted, Block &block) {
    wanted & MARGINS ? read_dtype<true>(logits, first, count, block) : read_dtype<false>(logits, first, count, block);
    if (wanted & ~MARGINS) read_extras(logits, first, count, wanted, block);
}

template <typename Logit> static double value_at(const void *data, int64_t place) {
    return Logit::value(static_cast<const typename Logit::type *>(data)[place]);
}

double logit_at(const Logits &logits, int64_t row, int64_t place) {
    const int64_t at = logits.start(row) + place * logits.step;
    switch (logits.dtype) {
    case 0: return value_at<Float32>(logits.data, at);
    case 1: return value_at<BFloat16>(logits.data, at);
    case 2: return value_at<Float16>(logits.data, at);
    default: return value_at<Float64>(logits.data, at);
    }
}

int64_t grain_of(const Logits &logits) { return is_tall(logits) || logits.step != 1 ? ROWS : 1; }
