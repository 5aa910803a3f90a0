// What is summed over the classes of a row, one vector after the other; core/rows.py and core/spread.py say why.
#pragma once
#include "logits.h"

// 2^100 times odds, squares and surprise, and the margin itself.
template <typename Of, bool EXTRAS> struct Sums {
    typedef typename Of::Vector Vector;
    typedef typename Of::Mask Mask;
    Vector odds = {}, squares = {}, surprise = {}, margin = {};

    // Rivals that are so far `below` the top, and their 2^100 u.
    inline void add(Vector below, Vector scaled) {
        odds += scaled;
        squares += scaled * Of::share(scaled);
        if (EXTRAS) {
            margin -= below;
            surprise -= scaled * larger(Of::all(Of::least), below);
        }
    }
    inline void add(Vector below) { add(below, Of::scaled_exp(below)); }
    // The same, where some lanes hold no rival.
    inline void add_but(Mask without, Vector below) {
        const Vector scaled = Of::scaled_exp(below);
        add(EXTRAS ? (without ? Vector{} : below) : below, without ? Vector{} : scaled);
    }
    inline void add(const Sums &other) {
        odds += other.odds, squares += other.squares, surprise += other.surprise, margin += other.margin;
    }
};

// The sums that the concentration of a flat or a sharp row is taken from.
template <typename Of> struct Spread {
    typedef typename Of::Vector Vector;
    Vector mass = {}, squares = {};

    // The lead of the top, S, and 2^100 T; nothing for the top itself.
    inline void add_lead(Vector below) {
        const Vector lead = Of::lead(below);
        mass += lead;
        squares += (lead * Of::up) * (lead / (2.0f - lead));
    }
    // Odds relative to those of the second largest, and their squares; nothing for the top itself.
    inline void add_relative(Vector below, Vector second) {
        const Vector part = below == 0.0f ? Vector{} : Of::scaled_exp(below - second) * Of::down;
        mass += part;
        squares += part * part;
    }
};

// The second largest of a sharp row, which has one top, so far.
template <typename Vector> static inline Vector second_of(Vector below, Vector second) {
    return larger(below == 0.0f ? second : below, second);
}

// The first NaN of a row, which torch.argmax takes for its top; without one, `otherwise`.
template <typename Logit>
static int64_t first_nan(const typename Logit::type *row, int64_t classes, int64_t step, int64_t otherwise) {
    for (int64_t j = 0; j < classes; j++)
        if (Logit::is_nan(row[j * step])) return j;
    return otherwise;
}

// All vectors of a row: in the last one, lanes that are not the row's hold `outside`.
template <typename Logit, typename Each>
static inline void over_row(const typename Logit::type *row, int64_t classes, typename Logit::Real outside, Each each) {
    typedef typename Logit::Vector Vector;
    constexpr int64_t lanes = Logit::lanes;
    const int64_t rest = classes % lanes;
    for (int64_t j = 0; j + lanes <= classes; j += lanes) each(Logit::load(row + j));
    if (rest) {
        const Vector last = Logit::load(row + classes - lanes);
        each(Logit::lane() >= Logit::index(lanes - rest) ? last : Logit::all(outside));
    }
}

// exp(x) in float64 for one x <= 0.
static inline double exp_of_one(double x) { return (Wide::scaled_exp(doubles(x)) * 0x1p-100)[0]; }
