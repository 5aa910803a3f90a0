// The numbers of core/extras.py for a vector of distances at a time.
//
// A `Sweep` calls a function with every vector of a row, or of several rows that lie across, as distances below the top:
// <= 0, and NaN where a lane holds no class. A `Whole` makes one number of all lanes of a row, in every lane; where each
// lane is a row of its own, it does nothing.
#pragma once
#include "exps.h"

constexpr int64_t LARGEST = 100;  // probabilities of the generalized entropy
constexpr double COOL = 0.25, EXPONENT = 0.1;  // 1 / T, and the power of p (1 - p)

static inline int64_t nearest_rivals(int64_t classes) {
    const int64_t few = classes / 2 < 10 ? classes / 2 : 10, many = classes / 5 < 200 ? classes / 5 : 200;
    return few > many ? few : many;
}

// A sum of many numbers: rounding grows with the number of summands, so that some are added up before they join.
template <typename Vector> struct LongSum {
    Vector part = {}, whole = {};
    int added = 0;
    inline void add(Vector x) {
        part += x;
        if (++added == 64) whole += part, part = Vector{}, added = 0;
    }
    inline Vector total() const { return whole + part; }
};

template <typename Of, typename Sweep, typename Whole> struct Extras {
    typedef typename Of::Vector Vector;
    typedef typename Of::Mask Mask;
    typedef typename Of::Real Real;
    const Sweep sweep;
    const Whole whole;

    static inline Vector real(Mask x) { return __builtin_convertvector(x, Vector); }

    // The sum over the rivals of the chance that the top loses at temperature 4; of equal tops, all but one are rivals.
    inline Vector tempered_loss() const {
        LongSum<Vector> sum;
        Mask tops = {};
        sweep([&](Vector below) {
            sum.add(below < Real(0) ? Of::share(Of::scaled_exp(below * Real(COOL))) : Vector{});
            tops -= below == Real(0);
        });
        return whole(sum.total()) + Real(0.5) * (real(whole(tops)) - Real(1));
    }

    // The distance of the class at `place`, nearest first, or any number between it and the next class. The bits of a
    // distance, read as an integer, have the order of the numbers: a search by halves needs one step for each bit.
    inline Vector cut(int64_t place) const {
        const Vector infinity = Of::all(INFINITY);
        Mask low = Of::index(-1), high = (Mask)infinity;  // how many are up to low: fewer; up to high: enough
        while (bits_of(high - low > 1)) {
            const Mask middle = low + ((high - low) >> 1);
            const Vector at = (Vector)middle;
            Mask count = {};
            sweep([&](Vector below) { count -= -below <= at; });
            count = whole(count);
            low = count < Of::index(place) ? middle : count == Of::index(place) ? middle - 1 : low;
            high = count >= Of::index(place) ? middle : high;
        }
        return (Vector)high;
    }

    // The sum of the distances of the nearest rivals; the top itself is one more class, at a distance of 0.
    inline Vector top_margin(int64_t rivals) const {
        const Vector last = cut(rivals + 1);
        LongSum<Vector> sum;
        Mask count = {};
        sweep([&](Vector below) {
            const Mask inside = -below < last;
            sum.add(inside ? -below : Vector{});
            count -= inside;
        });
        const Vector left = real(Of::index(rivals + 1) - whole(count));
        return whole(sum.total()) + (left > Real(0) ? left * last : Vector{});
    }

    // (p (1 - p))^0.1 of rivals so far `below` the top, whose log p is `log_top`; p is at most 1/2.
    // log(1 - p) = -2 atanh(s) with s = p / (2 - p), at most 1/3.
    static inline Vector power(Vector below, Vector log_top) {
        const Vector log_p = below + log_top, p = Of::scaled_exp(log_p) * Of::down, s = p / (Real(2) - p), z = s * s;
        constexpr int terms = sizeof(Real) == 8 ? 16 : 7;
        Vector series = Of::all(Real(1) / Real(2 * terms + 1));
        for (int i = terms - 1; i >= 0; i--) series = series * z + Real(1) / Real(2 * i + 1);
        return Of::scaled_exp(Real(EXPONENT) * (log_p - Real(2) * s * series)) * Of::down;
    }

    // The sum of the powers of the rivals among the largest probabilities.
    inline Vector rival_powers(int64_t classes, Vector log_top) const {
        const int64_t number = classes < LARGEST ? classes : LARGEST;
        const Vector last = classes > LARGEST ? cut(number) : Of::all(INFINITY);
        LongSum<Vector> sum;
        Mask count = {}, tops = {};
        sweep([&](Vector below) {
            const Mask inside = -below < last, top = below == Real(0);
            const Mask rival = inside & ~top;
            if (bits_of(rival)) sum.add(rival ? power(below, log_top) : Vector{});
            count -= inside, tops -= top;
        });
        tops = whole(tops), tops = tops < Of::index(number) ? tops : Of::index(number);
        const Mask left = last > Real(0) ? Of::index(number) - whole(count) : Mask{};
        Vector total = whole(sum.total());
        if (bits_of(tops > 1)) total += tops > 1 ? real(tops - 1) * power(Vector{}, log_top) : Vector{};
        if (bits_of(left > 0)) total += left > 0 ? real(left) * power(-last, log_top) : Vector{};
        return total;
    }
};
