// The sums of rows of few classes: each vector holds one class of several rows.
#pragma once
#include "rows.h"
#include "sums.h"

constexpr int64_t MOST = 128;  // classes of a transposed row
constexpr int64_t SHORT = 16;  // rows of fewer classes are always transposed: they may be shorter than a vector

static inline bool is_tall(const Logits &logits) {
    return logits.classes < SHORT || (logits.classes <= logits.tall && logits.classes <= MOST);
}

// Whether rows are copied with one class of each row after the other.
static inline bool is_turned(const Logits &logits) {
    return is_tall(logits) || (logits.step != 1 && logits.classes <= MOST);
}

// Keeps the sums of a sharp row, which are relative to its second largest logit.
static inline void keep_relative(double second, double sum, double squares, Block &out, int i) {
    const double unit = exp_of_one(second);
    out.mass[i] = unit * sum, out.mass_squares[i] = unit * unit * squares;
    out.relative[i] = sum, out.unit[i] = second;
}

template <typename Vector> static inline void store_wide(double *to, Vector values) {
    constexpr int lanes = int(sizeof(Vector) / sizeof(values[0]));
    for (int i = 0; i < lanes; i++) to[i] = values[i];
}

// The sums for the concentration where some of the rows are flat.
template <typename Logit>
__attribute__((noinline)) static void spread_flat(const typename Logit::type *column, int64_t classes, int64_t step,
                                                  typename Logit::Vector best, Block &out, int at) {
    Spread<Logit> all;
    for (int64_t j = 0; j < classes; j++) all.add_lead(Logit::load(column + j * step) - best);
    for (int i = at; i < at + Logit::lanes; i++) {
        if (!(out.odds[i] > (classes - 1) * FLAT)) continue;
        out.mass[i] = all.mass[i - at], out.mass_squares[i] = double(all.squares[i - at]) * 0x1p-100;
    }
}

// The same where some are sharp.
template <typename Logit>
__attribute__((noinline)) static void spread_sharp(const typename Logit::type *column, int64_t classes, int64_t step,
                                                   typename Logit::Vector best, Block &out, int at) {
    typename Logit::Vector second = Logit::all(Logit::lowest);
    for (int64_t j = 0; j < classes; j++) second = second_of(Logit::load(column + j * step) - best, second);
    Spread<Logit> all;
    for (int64_t j = 0; j < classes; j++) all.add_relative(Logit::load(column + j * step) - best, second);
    for (int i = at; i < at + Logit::lanes; i++) {
        if (!(out.odds[i] < SHARP)) continue;
        keep_relative(second[i - at], all.mass[i - at], all.squares[i - at], out, i);
    }
}

// As many rows as a vector has lanes, from `at` on in the block; classes are `step` apart.
template <typename Logit, bool EXTRAS>
__attribute__((noinline)) static void read_column(const typename Logit::type *column, int64_t classes,
                                                              int64_t step, Block &out, int at) {
    typedef typename Logit::Vector Vector;
    typedef typename Logit::Mask Mask;
    Vector best = Logit::load(column);
    Mask place = {};
    for (int64_t j = 1; j < classes; j++) {
        const Vector z = Logit::load(column + j * step);
        place = z > best ? Logit::index(j) : place;
        best = larger(z, best);
    }
    Sums<Logit, EXTRAS> sums;
    for (int64_t j = 0; j < classes; j++) sums.add_but(place == Logit::index(j), Logit::load(column + j * step) - best);
    const Vector undefined = (best - best) + (sums.odds - sums.odds), odds = sums.odds * Logit::down + undefined;
    store_wide(out.top + at, best + undefined);
    store_wide(out.odds + at, odds), store_wide(out.mass + at, odds);
    store_wide(out.relative + at, odds), store_wide(out.unit + at, Vector{});
    for (int i = 0; i < Logit::lanes; i++) out.prediction[at + i] = place[i];
    for (int i = 0; i < Logit::lanes; i++)
        out.squares[at + i] = out.mass_squares[at + i] = double(sums.squares[i]) * 0x1p-100 + double(undefined[i]);
    if (EXTRAS) {
        store_wide(out.surprise + at, sums.surprise * Logit::down + undefined);
        store_wide(out.margin + at, sums.margin + undefined);
    }
    if (bits_of(undefined != undefined))
        for (int i = 0; i < Logit::lanes; i++)
            if (undefined[i] != undefined[i])
                out.prediction[at + i] = first_nan<Logit>(column + i, classes, step, place[i]);
    if (bits_of(odds > Logit::all((classes - 1) * FLAT))) spread_flat<Logit>(column, classes, step, best, out, at);
    if (bits_of(odds < Logit::all(SHARP))) spread_sharp<Logit>(column, classes, step, best, out, at);
}

// Fills the places up to a whole vector with the last row.
template <typename Type> static inline void repeat_last(Type *turned, int64_t classes, int64_t count, int64_t full) {
    for (int64_t j = 0; j < classes && count < full; j++)
        for (int64_t i = count; i < full; i++) turned[j * ROWS + i] = turned[j * ROWS + count - 1];
}

// One class of each row after the other. Rows whose classes lie side by side are transposed; where it is the rows that
// lie side by side, as the pixels of a picture do, they are copied as they are.
template <typename Logit>
static inline void turn(const Logits &logits, int64_t first, int64_t count, typename Logit::type *turned) {
    const auto *data = static_cast<const typename Logit::type *>(logits.data);
    const int64_t classes = logits.classes;
    for (int64_t i = 0, some = 1; i < count; i += some) {
        const auto *row = data + logits.start(first + i);
        if (logits.step == 1) {
            for (int64_t j = 0; j < classes; j++) turned[j * ROWS + i] = row[j];
        } else {
            const int64_t left = logits.inner - (first + i) % logits.inner;
            some = left < count - i ? left : count - i;
            for (int64_t j = 0; j < classes; j++)
                memcpy(turned + j * ROWS + i, row + j * logits.step, size_t(some) * sizeof *row);
        }
    }
}

template <typename Logit, bool EXTRAS>
static void read_turned(const Logits &logits, int64_t first, int64_t count, Block &out) {
    alignas(64) typename Logit::type turned[MOST * ROWS];
    const int64_t full = (count + Logit::lanes - 1) / Logit::lanes * Logit::lanes;
    turn<Logit>(logits, first, count, turned);
    repeat_last(turned, logits.classes, count, full);
    for (int at = 0; at < full; at += Logit::lanes)
        read_column<Logit, EXTRAS>(turned + at, logits.classes, ROWS, out, at);
}

// Rows that lie side by side, read where they are: `inner` is at least a vector. A vector that would reach beyond
// begins earlier, by `shift`, and its first rows are dropped; `rows` of it count.
struct Span {
    int64_t shift, rows;
};
template <typename Logit> static inline Span span_of(const Logits &logits, int64_t row, int64_t count) {
    const int64_t left = logits.inner - row % logits.inner, shift = left < Logit::lanes ? Logit::lanes - left : 0;
    return {shift, Logit::lanes - shift < count ? Logit::lanes - shift : count};
}

template <typename Logit, bool EXTRAS>
static void read_in_place(const Logits &logits, int64_t first, int64_t count, Block &out) {
    const auto *data = static_cast<const typename Logit::type *>(logits.data);
    for (int64_t i = 0, some; i < count; i += some) {
        const Span span = span_of<Logit>(logits, first + i, count - i);
        const int64_t shift = span.shift;
        const auto *column = data + logits.start(first + i) - shift;
        some = span.rows;
        if (some == Logit::lanes) {
            read_column<Logit, EXTRAS>(column, logits.classes, logits.step, out, int(i));
            continue;
        }
        Block part = {};
        read_column<Logit, EXTRAS>(column, logits.classes, logits.step, part, 0);
        memcpy(out.prediction + i, part.prediction + shift, sizeof(int64_t) * size_t(some));
        double *to[] = {out.top,      out.odds,   out.squares,  out.mass, out.mass_squares,
                        out.surprise, out.margin, out.relative, out.unit};
        double *from[] = {part.top,      part.odds,   part.squares,  part.mass, part.mass_squares,
                          part.surprise, part.margin, part.relative, part.unit};
        for (int k = 0; k < 9; k++) memcpy(to[k] + i, from[k] + shift, sizeof(double) * size_t(some));
    }
}
