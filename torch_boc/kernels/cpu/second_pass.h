// What is read off the classes of a row once its top is known: the masses of flat and sharp rows, the numbers of
// core/score_terms.py, and how a given class stands.
// A `Sweep` calls a function with every vector of a row, or of several rows that lie across, less a reference: NaN where
// a lane holds no class. The lanes of one row are joined to one number, in every lane.
#pragma once
#include "logits.h"

constexpr int ROWS = 64;                        // of a block
constexpr int64_t LARGEST = BOC_LARGEST;        // probabilities of the generalized entropy
constexpr double COOL = 1.0 / BOC_TEMPERATURE, EXPONENT = BOC_EXPONENT;
constexpr double FLAT = 0.5, SHARP = 0x1p-100;  // see core/row_sums.py

// Which numbers are asked for, one bit each; some need a second pass over a row.
struct Asked {
    int64_t bits;
    template <typename... Columns> bool any(Columns... which) const { return ((bits >> which & 1) || ...); }
    bool standing() const { return any(column::lost, column::ahead); }
    bool more() const { return any(column::tempered_loss, column::top_margin, column::gen) || standing(); }
};

// The numbers of a few rows, in float64, which holds every float32. The odds are also `relative`
// times exp(unit), which does not underflow. `own` is the logit of the given class.
struct alignas(64) Block {
    int64_t prediction[ROWS], ahead[ROWS];
    double at[column::number][ROWS], relative[ROWS], unit[ROWS], own[ROWS];
};

static inline int64_t nearest_rivals(int64_t classes) {
    auto share = [classes](int64_t of, int64_t most) { return classes / of < most ? classes / of : most; };
    const int64_t few = share(BOC_FEW_SHARE, BOC_FEW), many = share(BOC_MANY_SHARE, BOC_MANY);
    return few > many ? few : many;
}

template <typename Of, bool ACROSS, typename Sweep> struct SecondPass {
    typedef typename Of::Vector Vector;
    typedef typename Of::Mask Mask;
    typedef typename Of::Real Real;
    struct Pair {
        Vector first, second;
    };
    const Sweep &sweep;
    const Vector best;

    static inline Vector real(Mask x) { return __builtin_convertvector(x, Vector); }
    template <typename Any> static inline Any joined(Any v) { return ACROSS ? v : Any{} + sum_of(v); }

    // The leads of the top, S and 2^100 T.
    Pair leads() const {
        LongSum<Vector> mass, squares;
        sweep(best, [&](Vector below) {
            const Vector lead = below == below ? Of::lead(below) : Vector{};
            mass.add(lead), squares.add((lead * Of::up) * (lead / (Real(2) - lead)));
        });
        return {joined(mass.total()), joined(squares.total())};
    }

    // Odds relative to those of the second largest, and their squares; nothing for the top itself, of which a sharp row
    // has one.
    Pair relative(Vector &second) const {
        Vector found = Of::all(Of::lowest);
        LongSum<Vector> sum, squares;
        sweep(best, [&](Vector below) { found = larger(below < Real(0) ? below : found, found); });
        second = ACROSS ? found : Of::all(largest_of(found));
        sweep(best, [&](Vector below) {
            const Vector part = below < Real(0) ? Of::scaled_exp(below - second) * Of::down : Vector{};
            sum.add(part), squares.add(part * part);
        });
        return {joined(sum.total()), joined(squares.total())};
    }

    // The sum over the rivals of the chance that the top loses at temperature 4; of equal tops, all but one are rivals.
    Vector tempered_loss() const {
        LongSum<Vector> sum;
        Mask tops = {};
        sweep(best, [&](Vector below) {
            sum.add(below < Real(0) ? Of::share(Of::scaled_exp(below * Real(COOL))) : Vector{});
            tops -= below == Real(0);
        });
        return joined(sum.total()) + Real(0.5) * (real(joined(tops)) - Real(1));
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
            count = joined(count);
            low = count < Of::index(place) ? middle : count == Of::index(place) ? middle - 1 : low;
            high = count >= Of::index(place) ? middle : high;
        }
        return (Vector)high;
    }

    // The sum of each(below) over the nearest classes.
    template <typename Each> Vector over_nearest(int64_t number, int64_t classes, const Each &each) const {
        const Vector last = number < classes ? cut(number) : Of::all(INFINITY);
        LongSum<Vector> sum;
        Mask count = {};
        sweep(best, [&](Vector below) {
            const Mask inside = -below < last;
            if (bits_of(inside)) sum.add(inside ? each(below) : Vector{});
            count -= inside;
        });
        const Mask left = Of::index(number) - joined(count);  // classes at the last distance
        return joined(sum.total()) + (left > 0 ? real(left) * each(-last) : Vector{});
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

    // The sum of the powers of the rivals among the largest probabilities. A top that has half of the mass or less, and
    // may have equals, is added with the others and then taken away.
    Vector rival_powers(int64_t classes, Vector log_top) const {
        const Mask shared = log_top < Real(-0.69);
        const Vector sum = over_nearest(classes < LARGEST ? classes : LARGEST, classes, [&](Vector below) {
            return shared | (below < Real(0)) ? power(below, log_top) : Vector{};
        });
        return sum - (shared ? power(Vector{}, log_top) : Vector{});
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
        return {joined(sum.total()) + Real(0.5) * (real(joined(equal)) - Real(1)), real(joined(ahead))};
    }
};

// Looks again at `lanes` rows, whose sums are in the block from `at` on: at flat and sharp ones, and for what is wanted.
template <typename Of, bool ACROSS, typename Sweep>
__attribute__((noinline)) static void second_pass(const Sweep &sweep, typename Of::Vector best, int64_t classes,
                                                 Asked asked, Block &out, int at, int lanes) {
    typedef typename Of::Vector Vector;
    const SecondPass<Of, ACROSS, Sweep> pass = {sweep, best};
    double *odds = out.at[column::odds] + at;
    bool flat = false, sharp = false;
    Vector log_top = {}, own = {};
    for (int i = 0; i < lanes; i++) {
        flat |= odds[i] > double(classes - 1) * FLAT, sharp |= odds[i] < SHARP;
        own[i] = typename Of::Real(out.own[at + i]);
        if (asked.any(column::gen)) log_top[i] = typename Of::Real(log_of_one_and(doubles(-odds[i] / (1.0 + odds[i])))[0]);
    }
    if (lanes == 1) own = Vector{} + own[0], log_top = Vector{} + log_top[0];
    if (flat) {
        const auto found = pass.leads();
        for (int i = 0; i < lanes; i++)
            if (odds[i] > double(classes - 1) * FLAT)
                out.at[column::mass][at + i] = found.first[i],
                out.at[column::mass_squares][at + i] = double(found.second[i]) * 0x1p-100;
    }
    if (sharp) {
        Vector second;
        const auto found = pass.relative(second);
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
    if (asked.any(column::tempered_loss)) keep(column::tempered_loss, pass.tempered_loss());
    if (asked.any(column::top_margin)) {  // the top itself is one more class, at a distance of 0
        const int64_t number = nearest_rivals(classes) + 1;
        keep(column::top_margin, pass.over_nearest(number, classes, [](Vector below) { return -below; }));
    }
    if (asked.any(column::gen)) keep(column::gen, pass.rival_powers(classes, log_top));
    if (asked.standing()) {
        const auto found = pass.standing(own);
        for (int i = 0; i < lanes; i++) out.at[column::lost][at + i] = found.first[i], out.ahead[at + i] = int64_t(found.second[i]);
    }
}
