// The sums of a few rows at a time; core/row_sums.py says what they are.
#pragma once
#include <utility>

#include "second_pass.h"
#include "parallel.h"

constexpr int64_t LONG = 8192;  // from so many classes on, the processor does not prefetch the next row
constexpr int64_t PART = 32;    // pairs of vectors added up before they join the sum: rounding grows with the longer

// 2^100 times odds, squares and entropy_sum, and the margin itself.
template <typename Of, bool MORE> struct Sums {
    typedef typename Of::Vector Vector;
    typedef typename Of::Mask Mask;
    Vector odds = {}, squares = {}, entropy_sum = {}, margin = {};

    // Rivals that are so far `below` the top, and their 2^100 u.
    inline void add(Vector below, Vector scaled) {
        odds += scaled;
        squares += scaled * Of::share(scaled);
        if (MORE) {
            margin -= below;
            entropy_sum -= scaled * larger(Of::all(Of::least), below);
        }
    }
    inline void add(Vector below) { add(below, Of::scaled_exp(below)); }
    // The same, where some lanes hold no rival.
    inline void add_but(Mask without, Vector below) {
        const Vector scaled = Of::scaled_exp(below);
        add(MORE ? (without ? Vector{} : below) : below, without ? Vector{} : scaled);
    }
    inline void add(const Sums &other) {
        odds += other.odds, squares += other.squares, entropy_sum += other.entropy_sum, margin += other.margin;
    }
};

// The first NaN of a row, which torch.argmax takes for its top; without one, `otherwise`.
template <typename Logit>
static int64_t first_nan(const typename Logit::type *row, int64_t classes, int64_t step, int64_t otherwise) {
    for (int64_t j = 0; j < classes; j++)
        if (std::isnan(Logit::value(row[j * step]))) return j;
    return otherwise;
}

// Keeps the sums of a row; `undefined` is NaN where a logit is NaN or the top is infinite, otherwise 0.
static inline void keep_sums(Block &out, int i, double top, double odds, double squares, double entropy_sum, double margin,
                             double undefined) {
    out.at[column::top][i] = top + undefined;
    out.at[column::entropy_sum][i] = entropy_sum + undefined, out.at[column::margin][i] = margin + undefined;
    out.at[column::odds][i] = out.at[column::mass][i] = out.relative[i] = odds + undefined, out.unit[i] = 0.0;
    out.at[column::squares][i] = out.at[column::mass_squares][i] = squares + undefined;
}
static inline bool is_unusual(double odds, int64_t classes) { return odds > double(classes - 1) * FLAT || odds < SHARP; }

// One row, at least a vector long: every class equal to the top is left out, and all of them but one are added again.
// Inlined, because a call would load every constant again for every row.
template <typename Logit, bool MORE>
static inline __attribute__((always_inline)) void one_row(const typename Logit::type *row, int64_t classes, Asked asked,
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

    Sums<Logit, MORE> sums;
    int64_t place = classes - 1, ties = 0;
    // From the end to the start: the first of several tops remains, and what was read last is still in the cache.
    auto take = [&](Vector z, auto without, int64_t at) {
        const uint32_t bits = bits_of(z == top);
        if (bits) place = at + __builtin_ctz(bits), ties += __builtin_popcount(bits);
        sums.add_but(without, z - top);
    };
    if (rest) take(last, (last == top) | ~inside, classes - lanes);
    if (left >= lanes) take(single, single == top, whole);
    for (j = whole; j > 0;) {
        Sums<Logit, MORE> part;
        const int64_t end = j > PART * pair ? j - PART * pair : 0;
        while (j > end) {
            j -= pair;
            if (ahead) __builtin_prefetch(next + j, 0, 2), __builtin_prefetch(next + j + lanes, 0, 2);
            Vector a, b;
            Logit::load_pair(row + j, a, b);
            const uint32_t first = bits_of(a == top), second = bits_of(b == top);
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
    const Real undefined = (best - best) + (total - total), odds = total * Logit::down + others;
    out.prediction[i] = undefined == undefined ? place : first_nan<Logit>(row, classes, 1, place);
    keep_sums(out, i, best, odds, double(sum_of(sums.squares)) * 0x1p-100 + 0.5 * others,
              sum_of(sums.entropy_sum) * Logit::down, sum_of(sums.margin), undefined);
    if (__builtin_expect(is_unusual(out.at[column::odds][i], classes) || asked.more(), 0)) {
        auto sweep = [row, classes, inside, rest](Vector from, auto each) {
            for (int64_t k = 0; k + lanes <= classes; k += lanes) each(Logit::load(row + k) - from);
            if (rest) each(inside ? Logit::load(row + classes - lanes) - from : Logit::all(NAN));
        };
        second_pass<Logit, false>(sweep, top, classes, asked, out, i, 1);
    }
}

// As many rows as a vector has lanes, from `at` on in the block; their classes are `width` apart.
template <typename Logit, bool MORE>
__attribute__((noinline)) static void many_rows(const typename Logit::type *transposed, int64_t width, int64_t classes,
                                                Asked asked, Block &out, int at) {
    typedef typename Logit::Vector Vector;
    typedef typename Logit::Mask Mask;
    Vector best = Logit::load(transposed);
    Mask place = {};
    for (int64_t j = 1; j < classes; j++) {
        const Vector z = Logit::load(transposed + j * width);
        place = z > best ? Logit::index(j) : place;
        best = larger(z, best);
    }
    Sums<Logit, MORE> sums;
    for (int64_t i = 0; i < classes; i += SOME * SOME) {
        Sums<Logit, MORE> block;
        for (int64_t j = i; j < classes && j < i + SOME * SOME; j += SOME) {
            Sums<Logit, MORE> part;
            for (int64_t k = j; k < classes && k < j + SOME; k++)
                part.add_but(place == Logit::index(k), Logit::load(transposed + k * width) - best);
            block.add(part);
        }
        sums.add(block);
    }
    const Vector undefined = (best - best) + (sums.odds - sums.odds), odds = sums.odds * Logit::down;
    for (int i = 0; i < Logit::lanes; i++) {
        keep_sums(out, at + i, best[i], odds[i], double(sums.squares[i]) * 0x1p-100, sums.entropy_sum[i] * Logit::down,
                  sums.margin[i], undefined[i]);
        out.prediction[at + i] = place[i];
    }
    for (uint32_t left = bits_of(undefined != undefined); left; left &= left - 1) {
        const int i = __builtin_ctz(left);
        out.prediction[at + i] = first_nan<Logit>(transposed + i, classes, width, place[i]);
    }
    const Mask unusual = (odds > Logit::all((classes - 1) * FLAT)) | (odds < Logit::all(SHARP));
    if (bits_of(unusual) || asked.more()) {
        auto sweep = [transposed, width, classes](Vector from, auto each) {
            for (int64_t j = 0; j < classes; j++) each(Logit::load(transposed + j * width) - from);
        };
        second_pass<Logit, true>(sweep, best, classes, asked, out, at, Logit::lanes);
    }
}

// Of two rows of a square of numbers, each with its blocks of HALF columns in turns: the first block of both, or the second.
template <int HALF, bool SECOND, typename Vector, int... I>
static inline Vector blocks_of(Vector a, Vector b, std::integer_sequence<int, I...>) {
    constexpr int lanes = sizeof...(I);
#if defined(__clang__)
    return __builtin_shufflevector(a, b, (I & HALF ? lanes + I - (SECOND ? 0 : HALF) : I + (SECOND ? HALF : 0))...);
#else  // GCC has the other name from version 12 on
    typedef decltype(a < b) Places;
    return __builtin_shuffle(a, b, Places{(I & HALF ? lanes + I - (SECOND ? 0 : HALF) : I + (SECOND ? HALF : 0))...});
#endif
}

// Exchanges the rows and columns of a square: the blocks next to the diagonal, and then within each block.
template <int HALF, typename Vector> static inline void transpose(Vector *rows) {
    constexpr int lanes = sizeof(Vector) / sizeof(Vector{}[0]);
    constexpr auto all = std::make_integer_sequence<int, lanes>{};
    for (int i = 0; i < lanes; i++) {
        if (i & HALF) continue;
        const Vector a = rows[i], b = rows[i + HALF];
        rows[i] = blocks_of<HALF, false>(a, b, all), rows[i + HALF] = blocks_of<HALF, true>(a, b, all);
    }
    if constexpr (HALF > 1) transpose<HALF / 2>(rows);
}

// How many rows are transposed at a time: a vector of them, which stays in the first cache; a block of rows that lie side
// by side, or are shorter than a vector.
static inline int64_t rows_transposed(const Logits &logits) {
    const int64_t lanes = logits.dtype == Type::float64 ? WIDE : LANES;
    return logits.step != 1 || logits.classes < lanes ? ROWS : lanes;
}

// Squares of rows from `first` on, at least as many classes as a vector has lanes; the last square reaches back.
template <typename Logit>
static inline void transpose_squares(const Logits &logits, int64_t first, int64_t count, typename Logit::type *transposed) {
    const auto *data = static_cast<const typename Logit::type *>(logits.data);
    constexpr int64_t lanes = Logit::lanes;
    const int64_t width = rows_transposed(logits);
    for (int64_t i = 0; i < count; i += lanes) {
        const typename Logit::type *rows[lanes];
        for (int64_t k = 0; k < lanes; k++) rows[k] = data + logits.start(first + (i + k < count ? i + k : count - 1));
        for (int64_t at = 0; at < logits.classes; at += lanes) {
            const int64_t j = at + lanes <= logits.classes ? at : logits.classes - lanes;
            typename Logit::Vector square[lanes];
            for (int64_t k = 0; k < lanes; k++) {
                __builtin_prefetch(rows[k] + j + width * logits.stride);  // the rows after these
                square[k] = Logit::load(rows[k] + j);
            }
            transpose<lanes / 2>(square);
            for (int64_t k = 0; k < lanes; k++) Logit::store(transposed + (j + k) * width + i, square[k]);
        }
    }
}

// One class of each row after the other. Rows whose classes lie side by side are transposed; where it is the rows that
// lie side by side, as the pixels of a picture do, they are copied row by row. The last row fills the last vector.
template <typename Logit>
static inline void transpose_rows(const Logits &logits, int64_t first, int64_t count, typename Logit::type *transposed) {
    const auto *data = static_cast<const typename Logit::type *>(logits.data);
    const int64_t full = (count + Logit::lanes - 1) / Logit::lanes * Logit::lanes;
    const int64_t classes = logits.classes, width = rows_transposed(logits);
    if (logits.step == 1 && classes >= Logit::lanes) return transpose_squares<Logit>(logits, first, count, transposed);
    for (int64_t i = 0, some = 1; i < count; i += some) {
        const auto *row = data + logits.start(first + i);
        if (logits.step == 1) {
            for (int64_t j = 0; j < classes; j++) transposed[j * width + i] = row[j];
        } else {
            const int64_t left = logits.inner - (first + i) % logits.inner;
            some = logits.stride == 1 && left < count - i ? left : logits.stride == 1 ? count - i : 1;
            for (int64_t j = 0; j < classes; j++)
                memcpy(transposed + j * width + i, row + j * logits.step, size_t(some) * sizeof *row);
        }
    }
    for (int64_t j = 0; j < classes && count < full; j++)
        for (int64_t i = count; i < full; i++) transposed[j * width + i] = transposed[j * width + count - 1];
}

template <typename Logit, bool MORE>
static void read_rows(const Logits &logits, int64_t first, int64_t count, Asked asked, void *scratch, Block &out) {
    const auto *data = static_cast<const typename Logit::type *>(logits.data);
    if (logits.is_transposed()) {
        auto *transposed = static_cast<typename Logit::type *>(scratch);
        const int64_t width = rows_transposed(logits);
        for (int64_t part = 0; part < count; part += width) {
            const int64_t some = count - part < width ? count - part : width;
            transpose_rows<Logit>(logits, first + part, some, transposed);
            for (int64_t at = 0; at < some; at += Logit::lanes)
                many_rows<Logit, MORE>(transposed + at, width, logits.classes, asked, out, int(part + at));
        }
        return;
    }
    const auto *row = data + logits.start(first);
    for (int64_t i = 0; i < count; i++) {
        const auto *next = first + i + 1 < logits.rows ? data + logits.start(first + i + 1) : row;
        one_row<Logit, MORE>(row, logits.classes, asked, next, int(i), out);
        row = next;
    }
}

// The logit of a class, in float64.
static inline double logit_at(const Logits &logits, int64_t row, int64_t place) {
    const int64_t at = logits.start(row) + place * logits.step;
    return with_type(logits.dtype, [&](auto logit) {
        return decltype(logit)::value(static_cast<const typename decltype(logit)::type *>(logits.data)[at]);
    });
}
