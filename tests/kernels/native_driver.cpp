// Calls every function of the native library over odd shapes, with buffers that end where they must: to be compiled
// together with it under sanitizers, which stop the program at the first access beyond.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define LOGITS                                                                                                         \
    const void *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int32_t, int32_t, int32_t
#define TRIALS int64_t, int32_t, const double *
#define STATES double, int64_t, int64_t *, double *, int64_t *, int64_t *, double *
extern "C" {
void boc_use_threads(void *, void *, void *);
void boc_row_sums(LOGITS, int64_t *, void *, void *, double *, double *, double *, void *, void *);
void boc_coins_of(LOGITS, int64_t *, void *, void *, void *, void *);
void boc_evidence(LOGITS, const int64_t *, int64_t *, double *, double *, double *, double *, double *, double *,
                  double *, double *, double *, double *, double *, double *);
void boc_columns(LOGITS, TRIALS, void **);
void boc_count_scores(LOGITS, TRIALS, const uint8_t *, int64_t, const int32_t *, const double *, int64_t, int32_t,
                      int64_t *, int64_t *);
int32_t boc_tally(LOGITS, const int64_t *, const int64_t *, TRIALS, STATES);
int32_t boc_tally_evidence(const int64_t *, const double *, const double *, const double *, const double *,
                           const int64_t *, const double *, const uint8_t *, int64_t, int64_t, int32_t, TRIALS, STATES);
int32_t boc_gap_tally(LOGITS, const int64_t *, const int64_t *, int32_t, int64_t, double *, int64_t *, int64_t *);
void boc_coins_float32(const float *, const double *, const double *, const double *, float *, float *, float *,
                       int64_t, double, int32_t);
void boc_log_tails(const double *, const double *, double *, double *, int64_t, TRIALS, int32_t, int32_t);
}

// Threads one after the other: what each of them does is what matters here.
static int number, count;
static void parallel(void (*body)(void *), void *data, unsigned threads, unsigned) {
    count = int(threads);
    for (number = 0; number < count; number++) body(data);
}
static int get_number() { return number; }
static int get_count() { return count; }

static uint64_t state = 1;
static double uniform() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return double(state >> 11) * 0x1p-53;
}

// Memory of exactly so many elements.
template <typename Type> struct Buffer {
    Type *data;
    explicit Buffer(int64_t size) : data(static_cast<Type *>(calloc(size_t(size), sizeof(Type)))) {}
    ~Buffer() { free(data); }
    Buffer(const Buffer &) = delete;
    operator Type *() { return data; }
};

static void put(void *data, int64_t i, int dtype, float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (dtype == 0) static_cast<float *>(data)[i] = x;
    if (dtype == 1) static_cast<uint16_t *>(data)[i] = uint16_t(bits >> 16);
    if (dtype == 2)  // near enough, and NaN and infinity as they are
        static_cast<uint16_t *>(data)[i] =
            std::isfinite(x) ? uint16_t((bits >> 16 & 0x8000) | uint32_t(uniform() * 0x7bff)) : uint16_t(bits >> 16 & 0xfe00);
    if (dtype == 3) static_cast<double *>(data)[i] = x;
}

static void run(int64_t rows, int64_t classes, int dtype, bool first, double scale) {
    const int64_t bytes[] = {4, 2, 2, 8}, trials = 7, ignored = -100, bins = 5;
    Buffer<char> logits(rows * classes * bytes[dtype]);
    for (int64_t i = 0; i < rows * classes; i++) {
        const double chance = uniform();
        const float x = chance < 0.002   ? NAN
                        : chance < 0.004 ? INFINITY
                        : chance < 0.02  ? -INFINITY
                        : chance < 0.05  ? 60.0f
                                         : float(scale * (uniform() - 0.5));
        put(logits.data, i, dtype, x);
    }
    Buffer<int64_t> target(rows), prediction(rows), samples(classes), counts(6), places(601), bin_counts(5 * bins);
    Buffer<uint8_t> flags(rows);
    for (int64_t i = 0; i < rows; i++) target[i] = int64_t(uniform() * double(classes + 2)) - 1, flags[i] = i % 2;
    Buffer<double> a(rows), b(rows), c(rows), d(rows), e(rows), f(rows), g(rows), h(rows);
    Buffer<double> table(trials + 1), sums(13), bin_sums(4 * bins), gaps(classes);
    const double choices[] = {1, 7, 21, 35, 35, 21, 7, 1};
    for (int w = 0; w <= trials; w++) table[w] = std::log(choices[w]);
    int64_t invalid = 0;
    const int64_t stride = first ? 1 : classes, step = first ? rows : 1;
#define GIVEN logits.data, rows, classes, rows, stride, 0, step, dtype, 47, 3
    boc_row_sums(GIVEN, prediction, a, b, c, d, e, f, g);
    boc_row_sums(GIVEN, prediction, a, b, c, d, e, nullptr, nullptr);
    boc_coins_of(GIVEN, prediction, a, b, c, d);
    Buffer<double> more(4 * rows);
    boc_evidence(GIVEN, target, prediction, a, b, c, d, e, f, g, h, more, more + rows, more + 2 * rows, more + 3 * rows);
    boc_tally_evidence(prediction, a, b, c, d, target, h, flags, rows, classes, 3, trials, 8, table, 0.05, bins, counts,
                       sums, places, bin_counts, bin_sums);
    boc_log_tails(b, a, e, f, rows, trials, 8, table, 1, 3);
    boc_tally(GIVEN, target, &ignored, trials, 8, table, 0.05, bins, counts, sums, places, bin_counts, bin_sums);
    boc_tally(GIVEN, nullptr, nullptr, trials, 8, table, 0.05, bins, counts, sums, places, bin_counts, bin_sums);
    for (int part = 0; part < 3; part++) {
        boc_gap_tally(GIVEN, target, &ignored, part, classes, gaps, samples, &invalid);
        boc_gap_tally(GIVEN, nullptr, nullptr, part, 1, gaps, samples, &invalid);
    }
    Buffer<double> all(19 * rows);
    void *columns[19];
    for (int k = 0; k < 19; k++) columns[k] = all.data + k * rows;
    boc_columns(GIVEN, trials, 8, table, columns);
    const int32_t names[] = {1, 9, 18};
    const double signs[] = {-1, 1, 1};
    Buffer<int64_t> histogram(2 * 3 * 256);
    boc_count_scores(GIVEN, trials, 8, table, flags, 1, names, signs, 3, 8, histogram, &invalid);
    Buffer<float> odds(rows), x(rows), y(rows), z(rows);
    boc_coins_float32(odds, c, d, e, x, y, z, rows, double(classes - 1), 3);
}

int main() {
    boc_use_threads(reinterpret_cast<void *>(parallel), reinterpret_cast<void *>(get_number),
                    reinterpret_cast<void *>(get_count));
    const int64_t sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 200}, classes[] = {2, 3, 7, 15, 16, 17, 31, 32, 33, 47,
                                                                            48, 63, 64, 65, 127, 128, 129, 300, 1025};
    const double scales[] = {1e-5, 6.0, 400.0};
    for (int dtype = 0; dtype < 4; dtype++)
        for (int64_t c : classes)
            for (int64_t rows : sizes)
                for (double scale : scales) {
                    run(rows, c, dtype, false, scale);
                    if (rows >= 16) run(rows, c, dtype, true, scale);
                }
    run(12000, 10, 0, false, 8.0);
    run(100, 50257, 1, false, 8.0);
    puts("done");
}
