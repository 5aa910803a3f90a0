// The functions that Python calls: columns, tally and log tails. Each returns 1 if there is no memory left, else 0.
#include "columns.h"
#include "tally.h"

constexpr int64_t TAIL = 64;  // logits that could be read in the time of a tail
constexpr int BLOCK = MANY * WIDE;
static_assert(BLOCK == ROWS, "a block of rows is a block of tails");

#define BOC_KIND(name, kind) Kind::kind,
enum class Kind { index, real, wide };
constexpr Kind KINDS[] = {BOC_COLUMNS(BOC_KIND)};

// `columns` has a place for each number, in the order of the contract; null for those that are not asked for. Real ones
// are in the dtype of the sums if `narrow`. For two classes, the loss follows from the odds in that dtype, so that the
// gap is exactly 0.
BOC_EXPORT int32_t boc_columns(BOC_LOGITS, const int64_t *index, int32_t narrow, void **columns) {
    BOC_DESCRIBED;
    Asked asked = {0};
    for (int which = 0; which < column::number; which++) asked.bits |= int64_t(columns[which] != nullptr) << which;
    threads = useful_threads(rows, classes * (asked.wanted() & EXTRAS ? 9 : 1), threads);
    return over_blocks(logits, asked, index, threads, [&](const Block &block, int64_t at, int64_t count, int32_t) {
        for (int which = 0; which < column::number; which++) {
            if (!columns[which]) continue;
            if (KINDS[which] == Kind::real && narrow && logits.dtype != Type::float64) {
                float *to = static_cast<float *>(columns[which]) + at;
                for (int64_t i = 0; i < count; i++) {
                    const float odds = float(block.at[column::odds][i]);
                    to[i] = classes == 2 && which == column::loss ? odds / (1.0f + odds) : float(block.at[which][i]);
                }
                continue;
            }
            const void *from = which == column::prediction ? static_cast<const void *>(block.prediction)
                               : which == column::ahead    ? static_cast<const void *>(block.ahead)
                                                           : block.at[which];
            memcpy(static_cast<char *>(columns[which]) + at * 8, from, size_t(count) * 8);
        }
    });
}

// What is asked of a tally beside its samples, and the tensors of the Tally.
#define BOC_TALLY                                                                                                      \
    int64_t trials, int32_t half, const double *log_choices, double alpha, int64_t bins, void **states

// Adds the rows of logits to the tensors of a Tally. Target and `counted` may be null.
BOC_EXPORT int32_t boc_tally_logits(BOC_LOGITS, const int64_t *target, const uint8_t *counted, BOC_TALLY) {
    BOC_DESCRIBED;
    const Asked asked = {int64_t(1) << column::loss | int64_t(target != nullptr) << column::distance};
    threads = useful_threads(rows, classes + TAIL, threads);
    return with_partials(bins, threads, states, [&](auto partial) {
        return over_blocks(logits, asked, target, threads, [&](const Block &block, int64_t at, int64_t count, int32_t thread) {
            const Samples samples = {double(classes - 1), alpha, bins, {double(trials), half, log_choices},
                                     target ? target + at : nullptr, counted ? counted + at : nullptr, block.prediction,
                                     block.at[column::odds], block.at[column::loss], block.at[column::concentration],
                                     block.at[column::free_gap], block.at[column::distance]};
            partial(thread)->add(samples, 0, count);
        });
    });
}

// Adds samples: target and `counted`, which may be null, prediction, odds, loss, concentration and free gap, and the
// distance, which is null without a target.
BOC_EXPORT int32_t boc_tally(const void **given, int64_t size, int64_t classes, int32_t threads, BOC_TALLY) {
    auto whole = [&](int i) { return static_cast<const int64_t *>(given[i]); };
    auto real = [&](int i) { return static_cast<const double *>(given[i]); };
    const Samples samples = {double(classes - 1), alpha, bins, {double(trials), half, log_choices}, whole(0),
                             static_cast<const uint8_t *>(given[1]), whole(2), real(3), real(4), real(5), real(6), real(7)};
    threads = useful_threads(size, TAIL, threads);
    return with_partials(bins, threads, states, [&](auto partial) {
        over_rows(size, BLOCK, threads, [&](int64_t first, int64_t last, int32_t thread) {
            for (int64_t at = first; at < last; at += BLOCK)
                partial(thread)->add(samples, at, last - at < BLOCK ? last - at : BLOCK);
        });
        return 0;
    });
}

BOC_EXPORT int32_t boc_log_tails(const double *wins, const double *odds, double *log, double *slope, int64_t size,
                                 int32_t threads, int64_t trials, int32_t half, const double *log_choices) {
    const Trials of = {double(trials), half, log_choices};
    over_rows(size, BLOCK, useful_threads(size, TAIL, threads), [&](int64_t first, int64_t last, int32_t) {
        for (int64_t at = first; at < last; at += BLOCK) {
            const int64_t count = last - at < BLOCK ? last - at : BLOCK;
            Doubles given[MANY] = {}, against[MANY] = {};
            Chance chances[MANY];
            Tails tails[MANY];
            memcpy(given, wins + at, size_t(count) * 8), memcpy(against, odds + at, size_t(count) * 8);
            const int vectors = int((count + WIDE - 1) / WIDE);
            for (int v = 0; v < vectors; v++) chances[v] = chance_of(against[v]);
            log_tails<true>(vectors, given, against, chances, of, tails);
            for (int64_t i = 0; i < count; i++)
                log[at + i] = tails[i / WIDE].log[i % WIDE], slope[at + i] = tails[i / WIDE].slope[i % WIDE];
        }
    });
    return 0;
}
