// What is read off the classes of a row once its top is known: the masses of flat and sharp rows, the numbers of
// core/extras.py, and how a given class stands.
//
// A `Sweep` calls a function with every vector of a row, or of several rows that lie across, less a reference: NaN where
// a lane holds no class. `Lanes` joins the lanes: those of one row become one number, in every lane; where each lane is
// a row of its own, nothing happens.
#pragma once
#include "logits.h"

constexpr int ROWS = 64;                        // of a block
constexpr int64_t LARGEST = 100;                // probabilities of the generalized entropy
constexpr double COOL = 0.25, EXPONENT = 0.1;   // 1 / T, and the power of p (1 - p)
constexpr double FLAT = 0.5, SHARP = 0x1p-100;  // see core/rows.py

// What is wanted of a row beside the sums that are always read.
enum Wanted { MARGINS = 1, TEMPERED = 2, NEAREST = 4, POWERS = 8, STANDING = 16, EXTRAS = TEMPERED | NEAREST | POWERS | STANDING };

// The numbers of a few rows, in float64, which holds what was summed in float32 as it is. The odds are also `relative`
// times exp(unit), which does not underflow. `own` is the logit of the given class.
struct alignas(64) Block {
    int64_t prediction[ROWS], ahead[ROWS];
    double at[column::number][ROWS], relative[ROWS], unit[ROWS], own[ROWS];
};

static inline int64_t nearest_rivals(int64_t classes) {
    const int64_t few = classes / 2 < 10 ? classes / 2 : 10, many = classes / 5 < 200 ? classes / 5 : 200;
    return few > many ? few : many;
}

struct OneRow {
    template <typename Vector> static inline Vector sum(Vector v) { return Vector{} + sum_of(v); }
    template <typename Vector> static inline Vector largest(Vector v) { return Vector{} + largest_of(v); }
};
struct ManyRows {
    template <typename Vector> static inline Vector sum(Vector v) { return v; }
    template <typename Vector> static inline Vector largest(Vector v) { return v; }
};

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

template <typename Of, typename Lanes, typename Sweep> struct Look {
    typedef typename Of::Vector Vector;
    typedef typename Of::Mask Mask;
    typedef typename Of::Real Real;
    struct Pair {
        Vector first, second;
    };
    const Sweep &sweep;
    const Vector best;

    static inline Vector real(Mask x) { return __builtin_convertvector(x, Vector); }

    // The leads of the top, S and 2^100 T.
    Pair leads() const {
        LongSum<Vector> mass, squares;
        sweep(best, [&](Vector below) {
            const Vector lead = below == below ? Of::lead(below) : Vector{};
            mass.add(lead), squares.add((lead * Of::up) * (lead / (Real(2) - lead)));
        });
        return {Lanes::sum(mass.total()), Lanes::sum(squares.total())};
    }

    // The second largest of a sharp row, which has one top.
    Vector second() const {
        Vector found = Of::all(Of::lowest);
        sweep(best, [&](Vector below) { found = larger(below < Real(0) ? below : found, found); });
        return Lanes::largest(found);
    }

    // Odds relative to those of the second largest, and their squares; nothing for the top itself.
    Pair relative(Vector second) const {
        Vector sum = {}, squares = {};
        sweep(best, [&](Vector below) {
            const Vector part = below < Real(0) ? Of::scaled_exp(below - second) * Of::down : Vector{};
            sum += part, squares += part * part;
        });
        return {Lanes::sum(sum), Lanes::sum(squares)};
    }

    // The sum over the rivals of the chance that the top loses at temperature 4; of equal tops, all but one are rivals.
    Vector tempered_loss() const {
        LongSum<Vector> sum;
        Mask tops = {};
        sweep(best, [&](Vector below) {
            sum.add(below < Real(0) ? Of::share(Of::scaled_exp(below * Real(COOL))) : Vector{});
            tops -= below == Real(0);
        });
        return Lanes::sum(sum.total()) + Real(0.5) * (real(Lanes::sum(tops)) - Real(1));
    }

    // The distance of the class at `place`, nearest first, or any number between it and the next class. The bits of a
    // distance, read as an integer, have the order of the numbers: a search by halves needs one step for each bit.
    Vector cut(int64_t place) const {
        const Vector infinity = Of::all(INFINITY);
        Mask low = Of::index(-1), high = (Mask)infinity;  // how many are up to low: fewer; up to high: enough
        while (bits_of(high - low > 1)) {
            const Mask middle = low + ((high - low) >> 1);
            const Vector at = (Vector)middle;
            Mask count = {};
            sweep(best, [&](Vector below) { count -= -below <= at; });
            count = Lanes::sum(count);
            low = count < Of::index(place) ? middle : count == Of::index(place) ? middle - 1 : low;
            high = count >= Of::index(place) ? middle : high;
        }
        return (Vector)high;
    }

    // The sum of the distances of the nearest rivals; the top itself is one more class, at a distance of 0.
    Vector top_margin(int64_t rivals) const {
        const Vector last = cut(rivals + 1);
        LongSum<Vector> sum;
        Mask count = {};
        sweep(best, [&](Vector below) {
            const Mask inside = -below < last;
            sum.add(inside ? -below : Vector{});
            count -= inside;
        });
        const Vector left = real(Of::index(rivals + 1) - Lanes::sum(count));
        return Lanes::sum(sum.total()) + (left > Real(0) ? left * last : Vector{});
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
    Vector rival_powers(int64_t classes, Vector log_top) const {
        const int64_t number = classes < LARGEST ? classes : LARGEST;
        const Vector last = classes > LARGEST ? cut(number) : Of::all(INFINITY);
        LongSum<Vector> sum;
        Mask count = {}, tops = {};
        sweep(best, [&](Vector below) {
            const Mask inside = -below < last, top = below == Real(0);
            const Mask rival = inside & ~top;
            if (bits_of(rival)) sum.add(rival ? power(below, log_top) : Vector{});
            count -= inside, tops -= top;
        });
        tops = Lanes::sum(tops), tops = tops < Of::index(number) ? tops : Of::index(number);
        const Mask left = last > Real(0) ? Of::index(number) - Lanes::sum(count) : Mask{};
        Vector total = Lanes::sum(sum.total());
        if (bits_of(tops > 1)) total += tops > 1 ? real(tops - 1) * power(Vector{}, log_top) : Vector{};
        if (bits_of(left > 0)) total += left > 0 ? real(left) * power(-last, log_top) : Vector{};
        return total;
    }

    // How many coins a class with the logit `own` is expected to lose, and how many logits are larger. Equal ones are
    // counted, because its own coin must not be among the small ones that are added up.
    Pair standing(Vector own) const {
        LongSum<Vector> sum;
        Mask equal = {}, ahead = {};
        sweep(own, [&](Vector above) {
            const Vector loses = Of::share(Of::scaled_exp(above > Real(0) ? -above : above));
            const Mask wins = above > Real(0);
            sum.add(wins ? Real(1) - loses : above < Real(0) ? loses : Vector{});
            equal -= above == Real(0), ahead -= wins;
        });
        return {Lanes::sum(sum.total()) + Real(0.5) * (real(Lanes::sum(equal)) - Real(1)), real(Lanes::sum(ahead))};
    }
};

// Looks again at `lanes` rows, whose sums are in the block from `at` on: at flat and sharp ones, and for what is wanted.
template <typename Of, typename Lanes, typename Sweep>
__attribute__((noinline)) static void look_again(const Sweep &sweep, typename Of::Vector best, int64_t classes,
                                                 int wanted, Block &out, int at, int lanes) {
    typedef typename Of::Vector Vector;
    const Look<Of, Lanes, Sweep> look = {sweep, best};
    double *odds = out.at[column::odds] + at;
    bool flat = false, sharp = false;
    Vector log_top = {}, own = {};
    for (int i = 0; i < lanes; i++) {
        flat |= odds[i] > double(classes - 1) * FLAT, sharp |= odds[i] < SHARP;
        own[i] = typename Of::Real(out.own[at + i]);
        if (wanted & POWERS) log_top[i] = typename Of::Real(log_of_one_and(doubles(-odds[i] / (1.0 + odds[i])))[0]);
    }
    if (lanes == 1) own = Vector{} + own[0], log_top = Vector{} + log_top[0];
    if (flat) {
        const auto found = look.leads();
        for (int i = 0; i < lanes; i++)
            if (odds[i] > double(classes - 1) * FLAT)
                out.at[column::mass][at + i] = found.first[i],
                out.at[column::mass_squares][at + i] = double(found.second[i]) * 0x1p-100;
    }
    if (sharp) {
        const Vector second = look.second();
        const auto found = look.relative(second);
        for (int i = 0; i < lanes; i++)
            if (odds[i] < SHARP) {
                const double unit = exp_of(doubles(second[i]))[0];
                out.at[column::mass][at + i] = unit * found.first[i];
                out.at[column::mass_squares][at + i] = unit * unit * found.second[i];
                out.relative[at + i] = found.first[i], out.unit[at + i] = second[i];
            }
    }
    auto keep = [&](int which, Vector values) {  // NaN where the row is undefined
        for (int i = 0; i < lanes; i++) out.at[which][at + i] = values[i] + (odds[i] - odds[i]);
    };
    if (wanted & TEMPERED) keep(column::tempered_loss, look.tempered_loss());
    if (wanted & NEAREST) keep(column::top_margin, look.top_margin(nearest_rivals(classes)));
    if (wanted & POWERS) keep(column::gen, look.rival_powers(classes, log_top));
    if (wanted & STANDING) {
        const auto found = look.standing(own);
        for (int i = 0; i < lanes; i++) out.at[column::lost][at + i] = found.first[i], out.ahead[at + i] = int64_t(found.second[i]);
    }
}
