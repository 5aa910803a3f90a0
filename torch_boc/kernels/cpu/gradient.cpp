// The gradient of the logits from those of all sums of a row, in one pass: core/row_sums.py has the formulas,
// and says why numbers are scaled by 2^100 and divided by the mass before they are multiplied.
#include "logits.h"
#include "parallel.h"

// What the concentration asks of a row: nothing, or the gradients of R and Q, of R and Q below 2^-100, or of S and T.
enum Kind { SUMS, PLAIN, SHARP, FLAT };

// What is given for one row, as its classes need it.
template <typename Of> struct Pulls {
    typedef typename Of::Real Real;
    typedef typename Of::Vector Vector;
    Real best, top, odds, squares, entropy_sum, margin;
    Real mass = 0, mass_squares = 0, unit = 0, log_mass = 0;
    int64_t place;
    Kind kind = SUMS;

    Pulls(const void **given, int64_t i, int64_t classes) {
        auto real = [&](int k) { return given[k] ? static_cast<const Real *>(given[k])[i] : Real(0); };
        auto wide = [&](int k) { return given[k] ? static_cast<const double *>(given[k])[i] : 0.0; };
        best = real(pull::top), place = static_cast<const int64_t *>(given[pull::prediction])[i];
        top = real(pull::on_top);
        odds = real(pull::on_odds) + (best - best);  // NaN where the top is infinite: such a row has no gradient
        squares = Real(wide(pull::on_squares) * 0x1p-100);
        entropy_sum = real(pull::on_entropy_sum), margin = real(pull::on_margin);
        const double sum = wide(pull::mass);
        // No odds, or no leads: nothing to share.
        if (!(given[pull::on_mass] || given[pull::on_mass_squares]) || sum < 0x1p-1022) return;
        // In float64: each of the gradients may be very large.
        mass = Real(wide(pull::on_mass) * sum), mass_squares = Real(wide(pull::on_mass_squares) * sum * sum);
        if (real(pull::odds) > Real(double(classes - 1) * 0.5)) {
            kind = FLAT, unit = Real(1.0 / sum);
        } else if (sizeof(Real) == 4 && real(pull::odds) < Real(0x1p-100)) {
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
        if (EXTRAS) each -= entropy_sum * (one + larger(Of::all(Of::least), below));
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
    LongSum<Vector> sums;
    for (int64_t j = 0; j < whole; j += lanes) {
        Vector pull = pulls.template on_rivals<KIND, EXTRAS>(Logit::load(row + j) - pulls.best);
        Logit::store(out + j, pull);
        if (j == holder) pull[pulls.place - holder] = 0;
        sums.add(pull);
    }
    if (whole < classes) {  // the last classes, with some that were there before or with what follows a short row
        const int64_t start = classes > lanes ? classes - lanes : 0;
        Vector pull = pulls.template on_rivals<KIND, EXTRAS>(Logit::load(row + start) - pulls.best);
        Logit::store(out + start, pull);
        for (int64_t lane = 0; lane < lanes; lane++) {
            const int64_t place = start + lane;
            if (place < whole || place >= classes || place == pulls.place) pull[lane] = 0;
        }
        sums.add(pull);
    }
    typename Logit::type own[lanes];
    Logit::store(own, Logit::all(pulls.top - sum_of(sums.total())));
    out[pulls.place] = own[0];
}

// The rows from `first` to `last`. A short row is read and written with what follows, where that is ours to touch.
template <typename Logit, bool EXTRAS>
static void some_rows(const Logits &logits, const void **given, void *out, int64_t first, int64_t last) {
    typedef typename Logit::type Type;
    constexpr int64_t lanes = Logit::lanes;
    const int64_t classes = logits.classes, end = logits.start(logits.rows - 1) + classes;
    for (int64_t i = first; i < last; i++) {
        const Pulls<Logit> pulls(given, i, classes);
        auto fill = [&](const Type *row, Type *to) {
            switch (pulls.kind) {
            case SUMS: return one_row<Logit, SUMS, EXTRAS>(row, classes, pulls, to);
            case PLAIN: return one_row<Logit, PLAIN, EXTRAS>(row, classes, pulls, to);
            case SHARP: return one_row<Logit, SHARP, EXTRAS>(row, classes, pulls, to);
            case FLAT: return one_row<Logit, FLAT, EXTRAS>(row, classes, pulls, to);
            }
        };
        const int64_t start = logits.start(i);
        const Type *row = static_cast<const Type *>(logits.data) + start;
        Type *to = static_cast<Type *>(out) + i * classes;
        if (classes >= lanes || (start + lanes <= end && (last - i) * classes >= lanes)) {
            fill(row, to);
        } else {
            Type from[lanes] = {}, alone[lanes];
            memcpy(from, row, sizeof *from * classes);
            fill(from, alone);
            memcpy(to, alone, sizeof *alone * classes);
        }
    }
}

// The classes lie side by side, and so do those of the gradient, row after row. `given` is in the order of BOC_PULLS; any gradient may be null.
BOC_EXPORT int32_t boc_gradient(BOC_LOGITS, const void **given, void *out) {
    BOC_DESCRIBED;
    const bool extras = given[pull::on_entropy_sum] || given[pull::on_margin];
    auto *some = with_type(logits.dtype, [&](auto logit) {
        return extras ? some_rows<decltype(logit), true> : some_rows<decltype(logit), false>;
    });
    over_rows(rows, 1, useful_threads(rows, classes, threads),
              [&](int64_t first, int64_t last, int32_t) { some(logits, given, out, first, last); });
    return 0;
}
