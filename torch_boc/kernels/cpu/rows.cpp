// The sums of each row of logits in one pass through memory; core/rows.py says what they are, and why 2^100.
#include "vectors.h"

constexpr float UP = 0x1p100f, DOWN = 0x1p-100f;
constexpr int64_t ALONE = 32768;  // up to so many logits, one thread is faster than several
constexpr int64_t LONG = 8192;    // from so many classes on, the processor does not prefetch the next row
constexpr int BLOCK = 64;         // vectors added up before they join the sum: rounding grows with the longer of both
constexpr int TALL = 64;          // rows that are transposed together
constexpr int MOST = 128;         // classes of a transposed row

// 2^100 exp(x) for x <= 0, by exp(x) = 2^n exp(r) (Cody and Waite). Adding 1.5 * 2^23 rounds to an integer and leaves
// it in the low bits, from where it becomes the exponent; 227 are the bias and the 100. NaN stays NaN.
static inline Floats scaled_exp(Floats x) {
    constexpr float magic = 12582912.0f + 227.0f;
    x = larger(floats(-156.0f), x);  // u = 2^-225, which is 0 once it is scaled back
    Floats shifted = x * 1.44269504088896341f + magic;
    Floats n = shifted - magic;
#ifdef FP_FAST_FMAF
    Floats r = x - n * 0.69314718055994531f;  // one rounding: the product is exact
#else
    Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
#endif
    // 1 + ... of degree 5 with the least relative error on [-ln(2)/2, ln(2)/2], 9e-8.
    Floats p = r * 8.29031467951e-3f + 4.18979292981e-2f;
    p = p * r + 1.66676361955e-1f;
    p = p * r + 4.99991495307e-1f;
    p = p * r + 9.99999707189e-1f;
    p = p * r + 1.0f;
    return p * (Floats)((Ints)shifted << 23);
}

// What is summed over the rivals: 2^100 times odds, squares and surprise, and the margin itself.
template <bool EXTRAS> struct Sums {
    Floats odds = {}, squares = {}, surprise = {}, margin = {};

    void add(Floats below, Ints top) {
        Floats scaled = top ? floats(0.0f) : scaled_exp(below);
        Floats u = scaled * DOWN;
        odds += scaled;
        squares += scaled * (u / (u + 1.0f));
        if (EXTRAS) {
            margin -= top ? floats(0.0f) : below;
            surprise -= scaled * larger(floats(-156.0f), below);
        }
    }

    void add(const Sums &other) {
        odds += other.odds, squares += other.squares, surprise += other.surprise, margin += other.margin;
    }
};

struct Out {
    int64_t *prediction;
    float *top, *odds;
    double *squares;
    float *surprise, *margin;
};

// The first NaN of a row, which torch.argmax takes for its top; without one, `otherwise`.
template <typename Logit>
static int64_t first_nan(const typename Logit::type *row, int64_t classes, int64_t step, int64_t otherwise) {
    for (int64_t j = 0; j < classes; j++)
        if (Logit::is_nan(row[j * step])) return j;
    return otherwise;
}

// One row, at least LANES long: every class equal to the top is left out, and all of them but one are added again.
// Inlined, because a call would load every constant again for every row.
template <typename Logit, bool EXTRAS>
static inline __attribute__((always_inline)) void one_row(const typename Logit::type *row, int64_t classes,
                                                          const typename Logit::type *next, int64_t i, const Out &out) {
    const int64_t whole = classes / LANES * LANES;
    const int32_t rest = int32_t(classes - whole);
    const Floats none = floats(-INFINITY);
    const Floats last = LANE >= LANES - rest ? Logit::load(row + classes - LANES) : none;  // beyond the whole vectors
    Floats bests[4] = {last, none, none, none};
    int64_t j = 0;
    for (; j + 4 * LANES <= whole; j += 4 * LANES)
        for (int k = 0; k < 4; k++) bests[k] = larger(Logit::load(row + j + k * LANES), bests[k]);
    for (; j < whole; j += LANES) bests[0] = larger(Logit::load(row + j), bests[0]);
    const float best = largest_of(larger(larger(bests[0], bests[1]), larger(bests[2], bests[3])));
    const bool ahead = classes >= LONG;

    Sums<EXTRAS> sums;
    Ints places = ints(int32_t(classes - 1)), ties = {};
    // From the end to the start: the first of several tops remains, and what was read last is still in the cache.
    if (rest) {
        Ints top = last == best;
        places = top ? LANE + int32_t(classes - LANES) : places;
        ties += top;
        Floats below = LANE >= LANES - rest ? last - best : floats(-INFINITY);
        sums.add(below, EXTRAS ? top | (LANE < LANES - rest) : top);
    }
    Ints index = LANE + int32_t(whole);
    for (j = whole; j > 0;) {
        Sums<EXTRAS> part;
        const int64_t end = j > BLOCK * LANES ? j - BLOCK * LANES : 0;
        while (j > end) {
            j -= LANES;
            if (ahead) __builtin_prefetch(next + j, 0, 2);
            index -= LANES;
            Floats z = Logit::load(row + j);
            Ints top = z == best;
            places = top ? index : places;
            ties += top;
            part.add(z - best, top);
        }
        sums.add(part);
    }
    const float odds = sum_of(sums.odds), others = float(-1 - sum_of(ties));
    const float undefined = (best - best) + (odds - odds);  // 0, or NaN where a logit is NaN or the top is infinite
    out.prediction[i] = smallest_of(places);
    if (undefined != undefined) out.prediction[i] = first_nan<Logit>(row, classes, 1, out.prediction[i]);
    out.top[i] = best + undefined;
    out.odds[i] = odds * DOWN + others + undefined;
    out.squares[i] = double(sum_of(sums.squares)) * 0x1p-100 + 0.5 * others + undefined;
    if (EXTRAS) {
        out.surprise[i] = sum_of(sums.surprise) * DOWN + undefined;
        out.margin[i] = sum_of(sums.margin) + undefined;
    }
}

static inline void store(float *to, Floats values, int64_t count) { memcpy(to, &values, sizeof(float) * count); }

// TALL rows of few classes, transposed, so that each vector holds one class of 16 rows.
template <typename Logit, bool EXTRAS>
static void tall_rows(const typename Logit::type *logits, int64_t rows, int64_t classes, int64_t stride, int64_t i,
                      const Out &out) {
    alignas(64) typename Logit::type turned[MOST * TALL];
    const int64_t real = rows - i < TALL ? rows - i : TALL;
    if (real < TALL) memset(turned, 0, sizeof turned);
    for (int64_t row = 0; row < real; row++)
        for (int64_t j = 0; j < classes; j++) turned[j * TALL + row] = logits[(i + row) * stride + j];
    for (int64_t first = 0; first < real; first += LANES) {
        const typename Logit::type *column = turned + first;
        Floats best = Logit::load(column);
        Ints place = {};
        for (int64_t j = 1; j < classes; j++) {
            Floats z = Logit::load(column + j * TALL);
            place = z > best ? ints(int32_t(j)) : place;
            best = larger(z, best);
        }
        Sums<EXTRAS> sums;
        for (int64_t j = 0; j < classes; j++) sums.add(Logit::load(column + j * TALL) - best, place == int32_t(j));
        const Floats undefined = (best - best) + (sums.odds - sums.odds);
        const int64_t at = i + first, count = real - first < LANES ? real - first : LANES;
        store(out.top + at, best + undefined, count);
        store(out.odds + at, sums.odds * DOWN + undefined, count);
        for (int64_t lane = 0; lane < count; lane++)
            out.prediction[at + lane] = undefined[lane] == undefined[lane]
                                            ? place[lane]
                                            : first_nan<Logit>(column + lane, classes, TALL, place[lane]);
        for (int64_t lane = 0; lane < count; lane++)
            out.squares[at + lane] = double(sums.squares[lane]) * 0x1p-100 + undefined[lane];
        if (EXTRAS) {
            store(out.surprise + at, sums.surprise * DOWN + undefined, count);
            store(out.margin + at, sums.margin + undefined, count);
        }
    }
}

template <typename Logit, bool EXTRAS>
static void all_rows(const void *data, int64_t rows, int64_t classes, int64_t stride, bool tall, const Out &out) {
    const auto *logits = static_cast<const typename Logit::type *>(data);
    if (classes < LANES || (tall && classes <= MOST)) {
#pragma omp parallel for schedule(static) if (rows * classes > ALONE)
        for (int64_t i = 0; i < rows; i += TALL) tall_rows<Logit, EXTRAS>(logits, rows, classes, stride, i, out);
    } else {
#pragma omp parallel for schedule(static) if (rows * classes > ALONE)
        for (int64_t i = 0; i < rows; i++) {
            const auto *row = logits + i * stride;
            one_row<Logit, EXTRAS>(row, classes, i + 1 < rows ? row + stride : row, i, out);
        }
    }
}

template <typename Logit>
static void row_sums(const void *logits, int64_t rows, int64_t classes, int64_t stride, int32_t tall,
                     int64_t *prediction, float *top, float *odds, double *squares, float *surprise, float *margin) {
    const Out out = {prediction, top, odds, squares, surprise, margin};
    if (surprise)
        all_rows<Logit, true>(logits, rows, classes, stride, tall, out);
    else
        all_rows<Logit, false>(logits, rows, classes, stride, tall, out);
}

#define ROW_SUMS(NAME, LOGIT)                                                                                         \
    extern "C" void NAME(const void *logits, int64_t rows, int64_t classes, int64_t stride, int32_t tall,              \
                         int64_t *prediction, float *top, float *odds, double *squares, float *surprise,               \
                         float *margin) {                                                                              \
        row_sums<LOGIT>(logits, rows, classes, stride, tall, prediction, top, odds, squares, surprise, margin);        \
    }
ROW_SUMS(row_sums_float32, Float32)
ROW_SUMS(row_sums_bfloat16, BFloat16)
ROW_SUMS(row_sums_float16, Float16)
