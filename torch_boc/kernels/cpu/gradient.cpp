// The gradient of the logits from those of all sums of a row, in one pass: core/rows.py has the formulas,
// and says why numbers are scaled by 2^100 and divided by the mass before they are multiplied.
#include "logits.h"
#include "parallel.h"

constexpr int GROUP = 64;  // vectors added up before they join the sum: rounding grows with the longer of both

// What the concentration asks of a row: nothing, or the gradients of R and Q, of R and Q below 2^-100, or of S and T.
enum Kind { SUMS, PLAIN, SHARP, FLAT };

// The gradients of the sums of all rows, of which any may be missing, and some of the sums.
template <typename Real> struct Given {
    const int64_t *prediction;
    const Real *top, *odds;
    const double *mass;
    const Real *on_top, *on_odds;
    const double *on_squares, *on_mass, *on_mass_squares;
    const Real *on_surprise, *on_margin;
};

template <typename Real> static inline Real at(const Real *values, int64_t i) { return values ? values[i] : Real(0); }

// The same of one row, as its classes need it.
template <typename Of> struct Pulls {
    typedef typename Of::Real Real;
    typedef typename Of::Vector Vector;
    Real best, top, odds, squares, surprise, margin;
    Real mass = 0, mass_squares = 0, unit = 0, log_mass = 0;
    int64_t place;
    Kind kind = SUMS;

    Pulls(const Given<Real> &given, int64_t i, int64_t classes) {
        best = given.top[i], place = given.prediction[i];
        top = at(given.on_top, i);
        odds = at(given.on_odds, i) + (best - best);  // NaN where the top is infinite: such a row has no gradient
        squares = Real(at(given.on_squares, i) * 0x1p-100);
        surprise = at(given.on_surprise, i), margin = at(given.on_margin, i);
        if (given.on_mass || given.on_mass_squares) add_spread(given, i, classes);
    }

    void add_spread(const Given<Real> &given, int64_t i, int64_t classes) {
        const double sum = given.mass[i];
        if (sum < 0x1p-1022) return;  // no odds, or no leads: nothing to share
        // In float64: each of the gradients may be very large.
        mass = Real(at(given.on_mass, i) * sum), mass_squares = Real(at(given.on_mass_squares, i) * sum * sum);
        if (given.odds[i] > Real(double(classes - 1) * 0.5)) {
            kind = FLAT, unit = Real(1.0 / sum);
        } else if (sizeof(Real) == 4 && given.odds[i] < Real(0x1p-100)) {
            // u over the mass is exp(below - log mass), with the logarithm in two parts.
            const double whole = log(sum);
            kind = SHARP, log_mass = Real(whole), unit = Real(0x1p-100 * (1.0 - (whole - log_mass)));
        } else {
            kind = PLAIN, unit = Real(0x1p-100 / sum);
        }
    }

    // The gradients of a vector of classes, each as if it were a rival.
    template <Kind KIND, bool EXTRAS> inline __attribute__((always_inline)) Vector on_rivals(Vector below) const {
        constexpr Real one = 1, two = 2, up = Of::up, down = Of::down;
        const Vector scaled = Of::scaled_exp(below), u = scaled * down, loses = Of::share(scaled);
        // d(u) = u and d(u^2/(1+u)) = u w (2 - w) with w = u/(1+u).
        Vector each = (loses * squares) * (two * up - loses * up) + odds;
        if (EXTRAS) each -= surprise * (one + larger(Of::all(Of::least), below));
        Vector pull = u * each;
        if (EXTRAS) pull -= margin;
        if (KIND == FLAT) {
            const Vector lead = Of::lead(below), wins = lead / (two - lead);
            pull -= (u * unit) * ((wins * unit) * mass_squares * (two + wins) + mass);
        } else if (KIND != SUMS) {
            const Vector part = (KIND == SHARP ? Of::scaled_exp(below - log_mass) : scaled) * unit;
            pull += part * ((part * (one - loses)) * mass_squares * (two - loses) + mass);
        }
        return pull;
    }
};

// One row; what pulls on the rivals pushes the top. A row that is shorter than a vector needs as much room as one.
template <typename Logit, Kind KIND, bool EXTRAS>
static inline __attribute__((always_inline)) void one_row(const typename Logit::type *row, int64_t classes,
                                                          const Pulls<Logit> &pulls, typename Logit::type *out) {
    typedef typename Logit::Vector Vector;
    constexpr int64_t lanes = Logit::lanes;
    const int64_t whole = classes / lanes * lanes, holder = pulls.place / lanes * lanes;
    Vector sums = {};
    for (int64_t j = 0; j < whole;) {
        Vector part = {};
        const int64_t end = whole - j > GROUP * lanes ? j + GROUP * lanes : whole;
        for (; j < end; j += lanes) {
            Vector pull = pulls.template on_rivals<KIND, EXTRAS>(Logit::load(row + j) - pulls.best);
            Logit::store(out + j, pull);
            if (j == holder) pull[pulls.place - holder] = 0;
            part += pull;
        }
        sums += part;
    }
    if (whole < classes) {  // the last classes, with some that were there before or with what follows a short row
        const int64_t start = classes > lanes ? classes - lanes : 0;
        Vector pull = pulls.template on_rivals<KIND, EXTRAS>(Logit::load(row + start) - pulls.best);
        Logit::store(out + start, pull);
        for (int64_t lane = 0; lane < lanes; lane++) {
            const int64_t place = start + lane;
            if (place < whole || place >= classes || place == pulls.place) pull[lane] = 0;
        }
        sums += pull;
    }
    typename Logit::type own[lanes];
    Logit::store(own, Logit::all(pulls.top - sum_of(sums)));
    out[pulls.place] = own[0];
}

template <typename Logit, bool EXTRAS>
static inline void any_row(const typename Logit::type *row, int64_t classes, const Pulls<Logit> &pulls,
                           typename Logit::type *out) {
    switch (pulls.kind) {
    case SUMS: return one_row<Logit, SUMS, EXTRAS>(row, classes, pulls, out);
    case PLAIN: return one_row<Logit, PLAIN, EXTRAS>(row, classes, pulls, out);
    case SHARP: return one_row<Logit, SHARP, EXTRAS>(row, classes, pulls, out);
    case FLAT: return one_row<Logit, FLAT, EXTRAS>(row, classes, pulls, out);
    }
}

// The rows from `first` to `last`. A short row is read and written with what follows, where that is ours to touch.
template <typename Logit, bool EXTRAS>
static void some_rows(const Logits &logits, const Given<typename Logit::Real> &given, void *out, int64_t first,
                      int64_t last) {
    typedef typename Logit::type Type;
    constexpr int64_t lanes = Logit::lanes;
    const int64_t classes = logits.classes, end = logits.start(logits.rows - 1) + classes;
    for (int64_t i = first; i < last; i++) {
        const Pulls<Logit> pulls(given, i, classes);
        const int64_t start = logits.start(i);
        const Type *row = static_cast<const Type *>(logits.data) + start;
        Type *to = static_cast<Type *>(out) + i * classes;
        if (classes >= lanes || (start + lanes <= end && (last - i) * classes >= lanes)) {
            any_row<Logit, EXTRAS>(row, classes, pulls, to);
        } else {
            Type from[lanes] = {}, alone[lanes];
            memcpy(from, row, sizeof *from * classes);
            any_row<Logit, EXTRAS>(from, classes, pulls, alone);
            memcpy(to, alone, sizeof *alone * classes);
        }
    }
}

// The classes lie side by side, and so do those of the gradient, row after row. `given` are prediction, top, odds and
// mass, then the gradients of all sums but the prediction, in the order of the contract; any of these may be null.
BOC_EXPORT int32_t boc_gradient(BOC_LOGITS, const void **given, void *out) {
    BOC_DESCRIBED;
    with_type(logits.dtype, [&](auto logit) {
        typedef decltype(logit) Logit;
        auto real = [&](int i) { return static_cast<const typename Logit::Real *>(given[i]); };
        auto wide = [&](int i) { return static_cast<const double *>(given[i]); };
        const Given<typename Logit::Real> all = {static_cast<const int64_t *>(given[0]), real(1), real(2), wide(3),
                                                 real(4), real(5), wide(6), wide(7), wide(8), real(9), real(10)};
        over_rows(rows, 1, useful_threads(rows, classes, threads), [&](int64_t first, int64_t last, int32_t) {
            if (all.on_surprise || all.on_margin)
                some_rows<Logit, true>(logits, all, out, first, last);
            else
                some_rows<Logit, false>(logits, all, out, first, last);
        });
    });
    return 0;
}
