// What is read off each row and kept: its sums, its coins, and what else an Evidence holds.
#include "coins.h"

template <typename To> static void copy(const double *from, int64_t count, To *to, int64_t at) {
    if (to)
        for (int64_t i = 0; i < count; i++) to[at + i] = To(from[i]);
}

template <typename Real> struct RowSums {
    int64_t *prediction;
    Real *top, *odds;
    double *squares, *mass, *mass_squares;
    Real *surprise, *margin;

    void keep(const Block &block, int64_t at, int64_t count) const {
        memcpy(prediction + at, block.prediction, sizeof(int64_t) * size_t(count));
        copy(block.top, count, top, at), copy(block.odds, count, odds, at);
        copy(block.squares, count, squares, at);
        copy(block.mass, count, mass, at), copy(block.mass_squares, count, mass_squares, at);
        copy(block.surprise, count, surprise, at), copy(block.margin, count, margin, at);
    }
};

template <typename Real>
static void row_sums(const Logits &logits, int32_t threads, int64_t *prediction, void *top, void *odds, double *squares,
                     double *mass, double *mass_squares, void *surprise, void *margin) {
    auto real = [](void *p) { return static_cast<Real *>(p); };
    const RowSums<Real> out = {prediction, real(top), real(odds), squares, mass, mass_squares, real(surprise),
                               real(margin)};
    over_blocks(logits, surprise ? MARGINS : 0, threads,
                [&](int64_t at, int64_t count, const Block &block, int32_t) { out.keep(block, at, count); });
}

// Top, odds, surprise and margin are of the dtype in which the sums are taken; the last two may be null.
BOC_EXPORT void boc_row_sums(BOC_LOGITS, int64_t *prediction, void *top, void *odds, double *squares, double *mass,
                             double *mass_squares, void *surprise, void *margin) {
    BOC_DESCRIBED(0);
    auto *run = dtype == 3 ? row_sums<double> : row_sums<float>;
    run(logits, threads, prediction, top, odds, squares, mass, mass_squares, surprise, margin);
}

// The loss of each row in the dtype of its odds, as core/coins.py takes it: for two classes, the gap is then exactly 0.
template <typename Real> static inline Real loss_of(Real odds, double squares, Real rivals) {
    return rivals == Real(1) ? odds / (Real(1) + odds) : (odds - Real(squares)) / rivals;
}

template <typename Real>
static void coins_of(const Logits &logits, int32_t threads, int64_t *prediction, void *odds, void *loss,
                     void *concentration, void *free_gap) {
    auto real = [](void *p) { return static_cast<Real *>(p); };
    const double rivals = double(logits.classes - 1);
    over_blocks(logits, 0, threads, [&](int64_t at, int64_t count, const Block &block, int32_t) {
        Numbers numbers;
        coins_of_block(block, count, rivals, numbers);
        for (int64_t i = 0; i < count; i++)
            real(loss)[at + i] = loss_of(Real(block.odds[i]), block.squares[i], Real(rivals));
        memcpy(prediction + at, block.prediction, sizeof(int64_t) * size_t(count));
        copy(block.odds, count, real(odds), at);
        copy(numbers.concentration, count, real(concentration), at);
        copy(numbers.free_gap, count, real(free_gap), at);
    });
}

// The fields of Coins, in the dtype in which the sums are taken.
BOC_EXPORT void boc_coins_of(BOC_LOGITS, int64_t *prediction, void *odds, void *loss, void *concentration,
                             void *free_gap) {
    BOC_DESCRIBED(0);
    (dtype == 3 ? coins_of<double> : coins_of<float>)(logits, threads, prediction, odds, loss, concentration, free_gap);
}

static void keep_log_odds(const Block &block, int64_t count, double rivals, double *log_odds, double *gen, int64_t at) {
    double found[2][ROWS];
    for (int64_t i = 0; i < count; i += WIDE) {
        auto given = [&](const double *values) { return load_as<Doubles>(values + i); };
        const Doubles odds = given(block.odds);
        const Doubles logs = log_odds_of(odds, given(block.mass), given(block.relative), given(block.unit), rivals);
        const Doubles sums = gen_of(given(block.powers), odds, logs);
        memcpy(found[0] + i, &logs, sizeof logs), memcpy(found[1] + i, &sums, sizeof sums);
    }
    copy(found[0], count, log_odds, at), copy(found[1], count, gen, at);
}

// The fields of an Evidence in float64; target, and all from surprise on, may be null.
BOC_EXPORT void boc_evidence(BOC_LOGITS, const int64_t *target, int64_t *prediction, double *odds, double *loss,
                             double *concentration, double *free_gap, double *top, double *surprise, double *margin,
                             double *distance, double *log_odds, double *tempered_loss, double *top_margin,
                             double *gen) {
    const int wanted = (surprise ? MARGINS : 0) | (tempered_loss ? TEMPERED : 0) | (top_margin ? NEAREST : 0) |
                       (gen ? POWERS : 0);
    BOC_DESCRIBED(work_of_extras(wanted, classes));
    const double rivals = double(classes - 1);
    over_blocks(logits, wanted, threads, [&](int64_t at, int64_t count, const Block &block, int32_t) {
        Numbers numbers;
        coins_of_block(block, count, rivals, numbers);
        memcpy(prediction + at, block.prediction, sizeof(int64_t) * size_t(count));
        copy(block.odds, count, odds, at), copy(block.top, count, top, at);
        copy(numbers.loss, count, loss, at), copy(numbers.concentration, count, concentration, at);
        copy(numbers.free_gap, count, free_gap, at);
        copy(block.surprise, count, surprise, at), copy(block.margin, count, margin, at);
        copy(block.tempered, count, tempered_loss, at), copy(block.nearest, count, top_margin, at);
        for (int64_t i = 0; tempered_loss && i < count; i++) tempered_loss[at + i] /= rivals;
        if (log_odds || gen) keep_log_odds(block, count, rivals, log_odds, gen, at);
        for (int64_t i = 0; distance && i < count; i++)
            distance[at + i] = distance_below(logits, at + i, logit_at(logits, at + i, block.prediction[i]), target[at + i]);
    });
}

// Loss, concentration and free gap from sums that are there.
template <typename Real>
static void coins_from(const Real *odds, const double *squares, const double *mass, const double *mass_squares,
                       Real *loss, Real *concentration, Real *free_gap, int64_t size, double rivals, int32_t threads) {
    over_rows(size, ROWS, useful_threads(size, WIDE, threads), [&](int64_t first, int64_t last, int32_t) {
        Block block = {};
        Numbers numbers;
        for (int64_t at = first; at < last; at += ROWS) {
            const int64_t count = last - at < ROWS ? last - at : ROWS;
            for (int64_t i = 0; i < count; i++) block.odds[i] = odds[at + i];
            memcpy(block.mass, mass + at, sizeof(double) * size_t(count));
            memcpy(block.mass_squares, mass_squares + at, sizeof(double) * size_t(count));
            coins_of_block(block, count, rivals, numbers);
            for (int64_t i = 0; i < count; i++) loss[at + i] = loss_of(odds[at + i], squares[at + i], Real(rivals));
            copy(numbers.concentration, count, concentration, at), copy(numbers.free_gap, count, free_gap, at);
        }
    });
}

BOC_EXPORT void boc_coins_float32(const float *odds, const double *squares, const double *mass,
                                  const double *mass_squares, float *loss, float *concentration, float *free_gap,
                                  int64_t size, double rivals, int32_t threads) {
    coins_from(odds, squares, mass, mass_squares, loss, concentration, free_gap, size, rivals, threads);
}
BOC_EXPORT void boc_coins_float64(const double *odds, const double *squares, const double *mass,
                                  const double *mass_squares, double *loss, double *concentration, double *free_gap,
                                  int64_t size, double rivals, int32_t threads) {
    coins_from(odds, squares, mass, mass_squares, loss, concentration, free_gap, size, rivals, threads);
}
