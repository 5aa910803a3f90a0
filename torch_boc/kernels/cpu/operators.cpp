// What Python calls, but the gradient. Functions return 1 if there is no memory left, else 0. core/row_numbers.py,
// core/coins.py, core/tally.py and core/tails.py have the formulas.
#include <cfloat>

#include "rows.h"
#include "tally.h"

constexpr int64_t TAIL = 64;  // logits that could be read in the time of a tail
constexpr int BLOCK = MANY * WIDE;
static_assert(BLOCK == ROWS, "a block of rows is a block of tails");

// Loss, gap, concentration and free gap of a vector of rows.
static inline void coins_of(Block &block, int64_t i, double rivals) {
    auto given = [&](int which) { return load_as<Doubles>(block.at[which] + i); };
    auto put = [&](int which, Doubles values) { memcpy(block.at[which] + i, &values, sizeof values); };
    const Doubles odds = given(column::odds), mass = given(column::mass);
    if (rivals == 1.0) {
        put(column::loss, odds / (1.0 + odds)), put(column::gap, odds * 0.0);
        put(column::concentration, odds * 0.0), put(column::free_gap, odds * 0.0);
        return;
    }
    const Longs flat = odds > rivals * FLAT;
    const Doubles base = flat ? doubles(2.0) : doubles(1.0), sign = flat ? doubles(-1.0) : doubles(1.0);
    const Doubles whole = floor_of(mass), rest = mass - whole;
    const Doubles even = mass * mass / (rivals * base + sign * mass);
    // The base and the sign are 1 and 1, or 2 and -1: whole / (base + sign) without a division.
    const Doubles room = whole * (flat ? doubles(1.0) : doubles(0.5)) + rest * rest / (base + sign * rest) - even;
    const Longs empty = room <= 4.0 * DBL_EPSILON * even;
    Doubles share = (given(column::mass_squares) - even) / (empty ? doubles(1.0) : room);
    share = empty | (share < 0.0) ? doubles(0.0) : share > 1.0 ? doubles(1.0) : share;
    const Doubles loss = (odds - given(column::squares)) / rivals;
    put(column::loss, loss), put(column::gap, at_least_0(odds / (1.0 + odds) - loss)), put(column::concentration, share);
    put(column::free_gap, share * room * (flat ? doubles(0.25 / rivals) : doubles(1.0 / rivals)));
}

// -log R of a vector of rows, and the top's part of the generalized entropy: p (1 - p) = R / (1 + R)^2.
static inline void logs_of(Block &block, int64_t i, double rivals) {
    const Doubles odds = load_as<Doubles>(block.at[column::odds] + i), mass = load_as<Doubles>(block.at[column::mass] + i);
    const Doubles log_rest = load_as<Doubles>(block.unit + i) + log_of(load_as<Doubles>(block.relative + i));
    // The lead of one rival near the top has more digits than its odds.
    const Doubles log_odds = -(rivals == 1.0 ? (odds > FLAT ? log_of_one_and(-mass) : log_rest) : log_rest);
    const Doubles log_top = log_of_one_and(-odds / (1.0 + odds));
    const Doubles gen = load_as<Doubles>(block.at[column::gen] + i) + exp_of(EXPONENT * (2.0 * log_top - log_odds));
    memcpy(block.at[column::log_odds] + i, &log_odds, sizeof log_odds), memcpy(block.at[column::gen] + i, &gen, sizeof gen);
}

// The block's numbers from those that were read: coins, logarithms, and what is about the given class.
static void complete(Block &block, const Logits &logits, int64_t at, int64_t count, Asked asked, const int64_t *index) {
    const double rivals = double(logits.classes - 1);
    if (asked.any(column::loss, column::gap, column::concentration, column::free_gap))
        for (int64_t i = 0; i < count; i += WIDE) coins_of(block, i, rivals);
    if (asked.any(column::log_odds, column::gen))
        for (int64_t i = 0; i < count; i += WIDE) logs_of(block, i, rivals);
    for (int64_t i = 0; asked.any(column::tempered_loss) && i < count; i++) block.at[column::tempered_loss][i] /= rivals;
    for (int64_t i = 0; asked.any(column::distance) && i < count; i++) {
        const bool is_class = 0 <= index[at + i] && index[at + i] < logits.classes;
        double top = block.at[column::top][i];
        if (top != top) top = logit_at(logits, at + i, block.prediction[i]);  // infinite, or NaN
        block.at[column::distance][i] = top - (is_class ? logit_at(logits, at + i, index[at + i]) : top);
    }
}

// Calls each(block, first row, number of rows, thread) for all rows, with the numbers that are asked for in the block.
template <typename Each>
static int32_t over_blocks(const Logits &logits, Asked asked, const int64_t *index, int32_t threads, const Each &each) {
    const bool transposed = logits.is_transposed();
    const size_t size = logits.dtype == Type::float64 ? 8 : logits.dtype == Type::float32 ? 4 : 2;
    const Scratch scratch(transposed ? size_t(logits.classes * rows_transposed(logits)) * size : 0, threads);
    if (scratch.is_missing()) return 1;
    auto *read = with_type(logits.dtype, [&](auto logit) {
        const bool margins = asked.any(column::entropy_sum, column::margin);
        return margins ? read_rows<decltype(logit), true> : read_rows<decltype(logit), false>;
    });
    over_rows(logits.rows, transposed ? ROWS : 1, threads, [&](int64_t first, int64_t last, int32_t thread) {
        Block block = {};
        for (int64_t at = first; at < last; at += ROWS) {
            const int64_t count = last - at < ROWS ? last - at : ROWS, end = logits.classes - 1;
            for (int64_t i = 0; asked.standing() && i < count; i++) {
                const int64_t place = index[at + i] < 0 ? 0 : index[at + i] < end ? index[at + i] : end;
                block.own[i] = logit_at(logits, at + i, place);
            }
            read(logits, at, count, asked, scratch.of(thread), block);
            complete(block, logits, at, count, asked, index);
            each(block, at, count, thread);
        }
    });
    return 0;
}

#define BOC_KIND(name, kind) Kind::kind,
enum class Kind { index, real, wide };
constexpr Kind KINDS[] = {BOC_COLUMNS(BOC_KIND)};

// `columns` has a place for each number, or null. Real ones are in the dtype of the sums if `keep_dtype`; the loss of two
// classes follows from the odds in that dtype, so that the gap is exactly 0.
BOC_EXPORT int32_t boc_columns(BOC_LOGITS, const int64_t *index, int32_t keep_dtype, void **columns) {
    BOC_DESCRIBED;
    Asked asked = {0};
    for (int which = 0; which < column::number; which++) asked.bits |= int64_t(columns[which] != nullptr) << which;
    threads = useful_threads(rows, classes * (asked.more() ? 9 : 1), threads);
    return over_blocks(logits, asked, index, threads, [&](const Block &block, int64_t at, int64_t count, int32_t) {
        for (int which = 0; which < column::number; which++) {
            if (!columns[which]) continue;
            if (KINDS[which] == Kind::real && keep_dtype && logits.dtype != Type::float64) {
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

// The options of a tally, and the tensors of the Tally.
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

// Adds samples, given in the order of BOC_SAMPLES: target and `counted` may be null, the distance is without a target.
BOC_EXPORT int32_t boc_tally(const void **given, int64_t size, int64_t classes, int32_t threads, BOC_TALLY) {
    auto whole = [&](int i) { return static_cast<const int64_t *>(given[i]); };
    auto real = [&](int i) { return static_cast<const double *>(given[i]); };
    const Samples samples = {double(classes - 1), alpha, bins, {double(trials), half, log_choices}, whole(sample::target),
                             static_cast<const uint8_t *>(given[sample::counted]), whole(sample::prediction),
                             real(sample::odds), real(sample::loss), real(sample::concentration), real(sample::free_gap),
                             real(sample::distance)};
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

// Of which sources and of which schema the library was made, and whose threads it uses: the one thing it remembers.
#define BOC_TEXT(name) " " #name
#define BOC_TYPED(name, kind) " " #name ":" #kind
#define BOC_QUOTED(number) " " #number
#define BOC_NUMBER(number) BOC_QUOTED(number)

BOC_EXPORT const char *boc_sources(void) { return BOC_SOURCES; }

BOC_EXPORT const char *boc_schema(void) {
    return "logits" BOC_LOGIT_TYPES(BOC_TEXT) "\ncolumns" BOC_COLUMNS(BOC_TYPED) "\ncounts" BOC_COUNTS(BOC_TEXT)
        "\nsums" BOC_SUMS(BOC_TEXT) "\ngap_histogram" BOC_NUMBER(BOC_GAP_BINS) BOC_NUMBER(BOC_LOWEST_DECADE)
        BOC_NUMBER(BOC_BINS_PER_DECADE) "\nbin_counts" BOC_BIN_COUNTS(BOC_TEXT) "\nbin_sums" BOC_BIN_SUMS(BOC_TEXT)
        "\npulls" BOC_PULLS(BOC_TEXT) "\nsamples" BOC_SAMPLES(BOC_TEXT) "\nstates" BOC_STATES(BOC_TEXT)
        "\nscores" BOC_NUMBER(BOC_TEMPERATURE) BOC_NUMBER(BOC_EXPONENT) BOC_NUMBER(BOC_LARGEST) BOC_NUMBER(BOC_FEW_SHARE)
        BOC_NUMBER(BOC_FEW) BOC_NUMBER(BOC_MANY_SHARE) BOC_NUMBER(BOC_MANY) "\n";
}

Threads boc_threads = {};

BOC_EXPORT void boc_use_threads(void *gomp_parallel, void *thread_num, void *num_threads) {
    boc_threads.number = reinterpret_cast<int (*)()>(thread_num);
    boc_threads.count = reinterpret_cast<int (*)()>(num_threads);
    boc_threads.parallel = reinterpret_cast<decltype(boc_threads.parallel)>(gomp_parallel);
}
