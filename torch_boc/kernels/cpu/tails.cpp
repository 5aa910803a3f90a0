// Binomial log tails of given numbers.
#include "tails.h"

#include "coins.h"

template <bool SLOPE>
static void fill(const double *given, const double *odds, double *log, double *slope, int64_t first, int64_t last,
                 const Trials &of, bool expected) {
    for (int64_t i = first; i < last; i += WIDE) {
        const size_t bytes = sizeof(double) * size_t(last - i < WIDE ? last - i : WIDE);
        Doubles wins = {}, against = {};
        memcpy(&wins, given + i, bytes);
        memcpy(&against, odds + i, bytes);
        wins = expected ? expected_wins(wins, of) : ceil_of(wins);  // whole wins are rounded up
        const Tails tails = log_tail<SLOPE>(wins, against, of);
        memcpy(log + i, &tails.log, bytes);
        if (SLOPE) memcpy(slope + i, &tails.slope, bytes);
    }
}

// `given` are the wins or, with `expected`, the losses 1 - q, from which the wins follow. No slope where it is null.
BOC_EXPORT void boc_log_tails(const double *given, const double *odds, double *log, double *slope, int64_t size,
                              int64_t trials, int32_t half, const double *log_choices, int32_t expected,
                              int32_t threads) {
    const Trials of = {double(trials), half, log_choices};
    over_rows(size, WIDE, useful_threads(size, TAIL, threads), [&](int64_t first, int64_t last, int32_t) {
        if (slope)
            fill<true>(given, odds, log, slope, first, last, of, expected);
        else
            fill<false>(given, odds, log, slope, first, last, of, expected);
    });
}
