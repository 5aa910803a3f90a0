// Binomial log tails of given numbers.
#include "tails.h"

#include "coins.h"

template <bool SLOPE>
static void fill(const double *given, const double *odds, double *log, double *slope, int64_t first, int64_t last,
                 const Trials &of, bool expected) {
    for (int64_t at = first; at < last; at += MANY * WIDE) {
        const int64_t count = last - at < MANY * WIDE ? last - at : MANY * WIDE, bytes = count * 8;
        const int vectors = int((count + WIDE - 1) / WIDE);
        Doubles wins[MANY] = {}, against[MANY] = {};
        Chance chances[MANY];
        Tails tails[MANY];
        memcpy(wins, given + at, size_t(bytes)), memcpy(against, odds + at, size_t(bytes));
        for (int v = 0; v < vectors; v++) {
            wins[v] = expected ? expected_wins(wins[v], of) : ceil_of(wins[v]);  // whole wins are rounded up
            chances[v] = chance_of(against[v]);
        }
        log_tails<SLOPE>(vectors, wins, against, chances, of, tails);
        for (int64_t i = 0; i < count; i++) log[at + i] = tails[i / WIDE].log[i % WIDE];
        for (int64_t i = 0; SLOPE && i < count; i++) slope[at + i] = tails[i / WIDE].slope[i % WIDE];
    }
}

// `given` are the wins or, with `expected`, the losses 1 - q, from which the wins follow. No slope where it is null.
BOC_EXPORT void boc_log_tails(const double *given, const double *odds, double *log, double *slope, int64_t size,
                              int64_t trials, int32_t half, const double *log_choices, int32_t expected,
                              int32_t threads) {
    const Trials of = {double(trials), half, log_choices};
    over_rows(size, MANY * WIDE, useful_threads(size, TAIL, threads), [&](int64_t first, int64_t last, int32_t) {
        if (slope)
            fill<true>(given, odds, log, slope, first, last, of, expected);
        else
            fill<false>(given, odds, log, slope, first, last, of, expected);
    });
}
