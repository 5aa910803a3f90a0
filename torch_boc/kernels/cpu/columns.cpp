// Columns of numbers for each row, and histograms of scores; functional/columns.py and functional/registry.py have the
// formulas, functional/separation.py the bins.
#include "coins.h"
#include "extras.h"
#include "tails.h"

// In the order of QUANTITIES in calls.py; the prediction comes first there and is no double.
enum Quantity {
    PREDICTION, ODDS, LOSS, CONCENTRATION, FREE_GAP, CONFIDENCE, DOMINANCE, GAP, FORCED_GAP, LOG_P_VALUE, P_VALUE, TOP,
    ENERGY, LOGIT_GAP, ENTROPY, LOG_ODDS, TEMPERED_LOSS, LOGIT_GAP_TOP, GEN, QUANTITIES
};

static inline bool is_asked(int64_t asked, Quantity which) { return asked >> which & 1; }

static inline bool needs_tails(int64_t asked) { return is_asked(asked, LOG_P_VALUE) || is_asked(asked, P_VALUE); }
static inline int wanted_for(int64_t asked) {
    const bool sums = is_asked(asked, LOGIT_GAP) || is_asked(asked, ENTROPY);
    return (sums ? MARGINS : 0) | (is_asked(asked, TEMPERED_LOSS) ? TEMPERED : 0) |
           (is_asked(asked, LOGIT_GAP_TOP) ? NEAREST : 0) | (is_asked(asked, GEN) ? POWERS : 0);
}

// A block of each quantity that is asked for; one bit of `asked` for each.
struct alignas(64) Columns {
    double of[QUANTITIES][ROWS];
};

// The quantities of a block that are asked for.
static void fill(Columns &out, int64_t count, const Block &block, double rivals, const Trials &trials, int64_t asked) {
    const int vectors = int((count + WIDE - 1) / WIDE);
    Doubles wins[MANY], against[MANY];
    Chance chances[MANY];
    for (int v = 0; v < vectors; v++) {
        auto given = [&](const double *values) { return load_as<Doubles>(values + v * WIDE); };
        auto put = [&](Quantity which, Doubles values) { memcpy(out.of[which] + v * WIDE, &values, sizeof values); };
        const Doubles odds = given(block.odds), top = given(block.top);
        const Coins coins = coins_of(odds, given(block.squares), given(block.mass), given(block.mass_squares), rivals);
        const Doubles gap = odds / (1.0 + odds) - coins.loss;
        put(ODDS, odds), put(LOSS, coins.loss), put(CONCENTRATION, coins.concentration), put(FREE_GAP, coins.free_gap);
        put(CONFIDENCE, 1.0 / (1.0 + odds)), put(DOMINANCE, 1.0 - coins.loss);
        put(GAP, gap), put(FORCED_GAP, gap - coins.free_gap);
        put(TOP, top), put(LOGIT_GAP, given(block.margin) / rivals);
        if (!(asked >> LOG_P_VALUE)) continue;  // the quantities from there on need a logarithm
        chances[v] = chance_of(odds), against[v] = odds, wins[v] = expected_wins(coins.loss, trials);
        put(ENERGY, top - chances[v].log_win);
        put(ENTROPY, chances[v].log_win - given(block.surprise) / (1.0 + odds));
        if (!(asked >> LOG_ODDS)) continue;
        const Doubles logs = log_odds_of(odds, given(block.mass), given(block.relative), given(block.unit), rivals);
        put(LOG_ODDS, logs), put(GEN, gen_of(given(block.powers), odds, logs));
        put(TEMPERED_LOSS, given(block.tempered) / rivals);
        put(LOGIT_GAP_TOP, given(block.nearest) / double(nearest_rivals(int64_t(rivals) + 1)));
    }
    if (!needs_tails(asked)) return;
    Tails tails[MANY];
    log_tails<false>(vectors, wins, against, chances, trials, tails);
    for (int v = 0; v < vectors; v++) {
        const Doubles p = exp_of(tails[v].log);
        memcpy(out.of[LOG_P_VALUE] + v * WIDE, &tails[v].log, sizeof p), memcpy(out.of[P_VALUE] + v * WIDE, &p, sizeof p);
    }
}

static inline int64_t work_of(int64_t asked, int64_t classes) {
    return (needs_tails(asked) ? TAIL : 0) + work_of_extras(wanted_for(asked), classes);
}

// `columns` has a place for each quantity, in the order above; null for those that are not asked for.
BOC_EXPORT void boc_columns(BOC_LOGITS, int64_t trials, int32_t half, const double *log_choices, void **columns) {
    const Trials of = {double(trials), half, log_choices};
    int64_t asked = 0;
    for (int which = 0; which < QUANTITIES; which++) asked |= int64_t(columns[which] != nullptr) << which;
    BOC_DESCRIBED(work_of(asked, classes));
    over_blocks(logits, wanted_for(asked), threads, [&](int64_t at, int64_t count, const Block &block, int32_t) {
        Columns found;
        fill(found, count, block, double(classes - 1), of, asked);
        memcpy(found.of[PREDICTION], block.prediction, sizeof block.prediction);
        for (int which = 0; which < QUANTITIES; which++)
            if (columns[which])
                memcpy(static_cast<double *>(columns[which]) + at, found.of[which], sizeof(double) * size_t(count));
    });
}

// As functional.separation.score_bin: the leading bits of the score as float32, in the order of the numbers.
static inline int64_t bin_of(double score, int32_t bits) {
    const float number = score == 0.0 ? 0.0f : float(score);
    int32_t pattern;
    memcpy(&pattern, &number, 4);
    const int32_t ordered = pattern < 0 ? pattern ^ 0x7fffffff : pattern;
    return (ordered >> (32 - bits)) + (int64_t(1) << (bits - 1));
}

// Adds to `histogram`, of shape (2, scores, 2^bits), one for each score of each row, those with a flag in the second
// half, and to `invalid` the rows with NaN among their scores. A score is a quantity and a sign. Threads share the
// histogram, which is too large to have several.
BOC_EXPORT void boc_count_scores(BOC_LOGITS, int64_t trials, int32_t half, const double *log_choices,
                                 const uint8_t *flags, int64_t flag_step, const int32_t *names, const double *signs,
                                 int64_t scores, int32_t bits, int64_t *histogram, int64_t *invalid) {
    const Trials of = {double(trials), half, log_choices};
    int64_t asked = 0;
    for (int64_t k = 0; k < scores; k++) asked |= int64_t(1) << names[k];
    BOC_DESCRIBED(work_of(asked, classes));
    over_blocks(logits, wanted_for(asked), threads, [&](int64_t at, int64_t count, const Block &block, int32_t) {
        Columns found;
        int64_t undefined = 0;
        fill(found, count, block, double(classes - 1), of, asked);
        for (int64_t i = 0; i < count; i++) {
            bool is_nan = false;
            for (int64_t k = 0; k < scores; k++) is_nan |= found.of[names[k]][i] != found.of[names[k]][i];
            undefined += is_nan;
            int64_t *own = histogram + (flags[(at + i) * flag_step] ? scores << bits : 0);
            for (int64_t k = 0; k < scores && !is_nan; k++)
                __atomic_fetch_add(own + (k << bits) + bin_of(signs[k] * found.of[names[k]][i], bits), 1,
                                   __ATOMIC_RELAXED);
        }
        __atomic_fetch_add(invalid, undefined, __ATOMIC_RELAXED);
    });
}
