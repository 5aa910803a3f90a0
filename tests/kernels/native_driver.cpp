// Calls every function of the native library over odd shapes, with buffers that end where they must: to be compiled
// together with it under sanitizers, which stop the program at the first access beyond.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "schema.h"

#define LOGITS                                                                                                         \
    const void *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int32_t, int32_t
#define TRIALS int64_t, int32_t, const double *
#define TALLY TRIALS, double, int64_t, void **
extern "C" {
void boc_use_threads(void *, void *, void *);
int32_t boc_columns(LOGITS, const int64_t *, int32_t, void **);
int32_t boc_gradient(LOGITS, const void **, void *);
int32_t boc_tally(const void **, int64_t, int64_t, int32_t, TALLY);
int32_t boc_tally_logits(LOGITS, const int64_t *, const uint8_t *, TALLY);
int32_t boc_log_tails(const double *, const double *, double *, double *, int64_t, int32_t, TRIALS);
}

// Threads one after the other: what each of them does is what matters here.
static int thread, all_threads;
static void parallel(void (*body)(void *), void *data, unsigned threads, unsigned) {
    all_threads = int(threads);
    for (thread = 0; thread < all_threads; thread++) body(data);
}
static int get_number() { return thread; }
static int get_count() { return all_threads; }

static uint64_t random_state = 1;
static double uniform() {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return double(random_state >> 11) * 0x1p-53;
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
    if (dtype == 2)  // near enough, and NaN and infinity exactly
        static_cast<uint16_t *>(data)[i] =
            std::isfinite(x) ? uint16_t((bits >> 16 & 0x8000) | uint32_t(uniform() * 0x7bff)) : uint16_t(bits >> 16 & 0xfe00);
    if (dtype == 3) static_cast<double *>(data)[i] = x;
}

static void run(int64_t rows, int64_t classes, int dtype, bool first, double scale) {
    const int64_t bytes[] = {4, 2, 2, 8}, trials = 7, bins = 5;
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
    Buffer<int64_t> target(rows), counts(count::number), places(BOC_GAP_BINS), bin_counts(bin_count::number * bins);
    Buffer<uint8_t> flags(rows);
    for (int64_t i = 0; i < rows; i++) target[i] = int64_t(uniform() * double(classes + 2)) - 1, flags[i] = i % 2;
    Buffer<double> table(trials + 1), sums(sum::number), bin_sums(bin_sum::number * bins), log(rows), slope(rows);
    const double choices[] = {1, 7, 21, 35, 35, 21, 7, 1};
    for (int w = 0; w <= trials; w++) table[w] = std::log(choices[w]);
    const int64_t stride = first ? 1 : classes, step = first ? rows : 1;
#define GIVEN logits.data, rows, classes, rows, stride, 0, step, dtype, 3
    Buffer<double> all(column::number * rows);
    void *columns[column::number], *few[column::number] = {};
    for (int k = 0; k < column::number; k++) columns[k] = all.data + k * rows;
    Buffer<char> narrow(rows * (dtype == 3 ? 8 : 4));
    few[column::odds] = narrow.data, few[column::prediction] = columns[column::prediction];
    boc_columns(GIVEN, nullptr, 1, few);
    boc_columns(GIVEN, target, 0, columns);
    const double *odds = all.data + column::odds * rows;
    boc_log_tails(all.data + column::loss * rows, odds, log, slope, rows, 3, trials, 8, table);
    void *states[] = {counts.data, sums.data, places.data, bin_counts.data, bin_sums.data};
#define TALLIED trials, 8, table, 0.05, bins, states
    boc_tally_logits(GIVEN, target, flags, TALLIED);
    boc_tally_logits(GIVEN, nullptr, nullptr, TALLIED);
    const void *samples[] = {target.data, flags.data, columns[column::prediction], odds, columns[column::loss],
                             columns[column::concentration], columns[column::free_gap], columns[column::distance]};
    boc_tally(samples, rows, classes, 3, TALLIED);
    samples[0] = samples[1] = samples[7] = nullptr;
    boc_tally(samples, rows, classes, 3, TALLIED);
    if (first) return;
    // The sums in the dtype of the accumulator, as the gradient takes them.
    Buffer<double> real(2 * rows);
    few[column::odds] = real.data, few[column::top] = real.data + rows, few[column::mass] = columns[column::mass];
    boc_columns(GIVEN, nullptr, 1, few);
    const void *given[11] = {few[column::prediction], few[column::top], few[column::odds], few[column::mass], real.data,
                             real.data, odds, odds, odds, real.data, real.data};
    Buffer<char> gradient(rows * classes * bytes[dtype]);
    boc_gradient(GIVEN, given, gradient.data);
    for (int k = 7; k < 11; k++) given[k] = nullptr;
    boc_gradient(GIVEN, given, gradient.data);
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
