// The numbers of core/extras.py for the rows of a block, which were read just before.
#include "extras.h"

#include "logs.h"
#include "tall.h"

// log(1 / (1 + R)) of each row.
static inline Doubles log_of_top(Doubles odds) { return log_of_one_and(-odds / (1.0 + odds)); }

// Writes `lanes` numbers of what is wanted, from those of the vector that begin at `from`.
template <typename Vector> static inline void keep(double *to, Vector values, int from, int64_t lanes) {
    for (int64_t i = 0; i < lanes; i++) to[i] = values[from + i];
}

template <typename Logit, typename Each>
static inline void compute(const Each &each, int64_t classes, typename Logit::Vector log_top, int wanted, Block &out,
                           int64_t at, int from, int64_t lanes) {
    if (wanted & TEMPERED) keep(out.tempered + at, each.tempered_loss(), from, lanes);
    if (wanted & NEAREST) keep(out.nearest + at, each.top_margin(nearest_rivals(classes)), from, lanes);
    if (wanted & POWERS) keep(out.powers + at, each.rival_powers(classes, log_top), from, lanes);
}

// One row whose classes lie side by side, at least a vector of them.
template <typename Logit>
static void extras_of_row(const typename Logit::type *row, int64_t classes, int wanted, double log_top, Block &out,
                          int64_t at) {
    typedef typename Logit::Vector Vector;
    const typename Logit::Real best = typename Logit::Real(out.top[at]);
    auto sweep = [&](auto each) {
        over_row<Logit>(row, classes, typename Logit::Real(NAN), [&](Vector z) { each(z - best); });
    };
    auto whole = [](auto values) { return decltype(values){} + sum_of(values); };
    const Extras<Logit, decltype(sweep), decltype(whole)> each = {sweep, whole};
    compute<Logit>(each, classes, Logit::all(typename Logit::Real(log_top)), wanted, out, at, 0, 1);
}

// As many rows as a vector has lanes, of which `lanes` count, from lane `from` on; their classes are `step` apart.
template <typename Logit>
static void extras_of_column(const typename Logit::type *column, int64_t classes, int64_t step, int wanted,
                             const double *log_tops, Block &out, int64_t at, int from, int64_t lanes) {
    typedef typename Logit::Vector Vector;
    Vector best = Logit::all(NAN), log_top = Logit::all(0);
    for (int64_t i = 0; i < lanes; i++)
        best[from + i] = typename Logit::Real(out.top[at + i]), log_top[from + i] = typename Logit::Real(log_tops[at + i]);
    auto sweep = [&](auto each) {
        for (int64_t j = 0; j < classes; j++) each(Logit::load(column + j * step) - best);
    };
    auto whole = [](auto values) { return values; };
    const Extras<Logit, decltype(sweep), decltype(whole)> each = {sweep, whole};
    compute<Logit>(each, classes, log_top, wanted, out, at, from, lanes);
}

template <typename Logit>
static void extras_of_rows(const Logits &logits, int64_t first, int64_t count, int wanted, const double *log_tops,
                           Block &out) {
    const auto *data = static_cast<const typename Logit::type *>(logits.data);
    const int64_t classes = logits.classes, lanes = Logit::lanes;
    if (is_turned(logits)) {
        alignas(64) typename Logit::type turned[MOST * ROWS];
        turn<Logit>(logits, first, count, turned);
        repeat_last(turned, classes, count, (count + lanes - 1) / lanes * lanes);
        for (int64_t at = 0; at < count; at += lanes)
            extras_of_column<Logit>(turned + at, classes, ROWS, wanted, log_tops, out, at, 0,
                                    count - at < lanes ? count - at : lanes);
        return;
    }
    for (int64_t i = 0, some = 1; i < count; i += some) {
        const auto *row = data + logits.start(first + i);
        if (logits.step == 1) {
            extras_of_row<Logit>(row, classes, wanted, log_tops[i], out, i);
            continue;
        }
        const Span span = span_of<Logit>(logits, first + i, count - i);
        some = span.rows;
        extras_of_column<Logit>(row - span.shift, classes, logits.step, wanted, log_tops, out, i, int(span.shift), some);
    }
}

void read_extras(const Logits &logits, int64_t first, int64_t count, int wanted, Block &out) {
    double log_tops[ROWS];
    for (int64_t i = 0; i < count; i += WIDE) {
        const Doubles logs = log_of_top(load_as<Doubles>(out.odds + i));
        memcpy(log_tops + i, &logs, sizeof logs);
    }
    switch (logits.dtype) {
    case 0: extras_of_rows<Float32>(logits, first, count, wanted, log_tops, out); break;
    case 1: extras_of_rows<BFloat16>(logits, first, count, wanted, log_tops, out); break;
    case 2: extras_of_rows<Float16>(logits, first, count, wanted, log_tops, out); break;
    default: extras_of_rows<Float64>(logits, first, count, wanted, log_tops, out);
    }
    for (int64_t i = 0; i < count; i++) {
        const double undefined = out.top[i] - out.top[i];  // NaN where the row is undefined
        out.tempered[i] += undefined, out.nearest[i] += undefined, out.powers[i] += undefined;
    }
}
