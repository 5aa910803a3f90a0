// Ranges of rows in several threads, those of the OpenMP that torch has loaded. This library links none itself: two
// OpenMPs in one process would each keep their own threads.
#pragma once
#include <cstdint>
#include <cstdlib>

#define BOC_EXPORT extern "C" __attribute__((visibility("default")))

// What an OpenMP gives to every program that GCC compiles; all null until `boc_use_threads` has been called.
struct Threads {
    void (*parallel)(void (*body)(void *), void *data, unsigned threads, unsigned flags);  // GOMP_parallel
    int (*number)();                                                                       // omp_get_thread_num
    int (*count)();                                                                        // omp_get_num_threads
};
extern Threads boc_threads __attribute__((visibility("hidden")));

constexpr int64_t ONE_THREAD = 131072;  // up to so many logits, waking another thread costs more than it brings

// How many threads work on `rows` rows of `each` logits, or of work like it; at least 1.
static inline int32_t useful_threads(int64_t rows, int64_t each, int32_t threads) {
    if (!boc_threads.parallel || threads <= 1 || rows <= 1 || rows <= ONE_THREAD / each) return 1;
    return rows < threads ? int32_t(rows) : threads;
}

// body(first, last, thread) for ranges that cover `rows`, in at most `threads` threads; `thread` is below that number.
// Ranges begin at multiples of `grain`.
template <typename Body> static void over_rows(int64_t rows, int64_t grain, int32_t threads, const Body &body) {
    if (threads <= 1) return body(int64_t(0), rows, 0);
    struct Task {
        int64_t rows, grain;
        const Body *body;
    } task = {rows, grain, &body};
    boc_threads.parallel(
        [](void *data) {
            const Task &task = *static_cast<Task *>(data);
            // As many as there are: within a thread of another parallel region, there may be one only.
            const int64_t number = boc_threads.number(), count = boc_threads.count();
            const int64_t grains = (task.rows + task.grain - 1) / task.grain;
            const int64_t first = grains * number / count * task.grain;
            const int64_t end = grains * (number + 1) / count * task.grain;
            const int64_t last = end < task.rows ? end : task.rows;
            if (first < last) (*task.body)(first, last, int32_t(number));
        },
        &task, unsigned(threads), 0);
}

// Zeroed memory for each thread, which begins at a multiple of 64 bytes.
class Scratch {
    char *whole;
    size_t each;

  public:
    Scratch(size_t bytes, int32_t threads) : each((bytes + 63) / 64 * 64) {
        whole = static_cast<char *>(calloc(size_t(threads) * each + 64, 1));
    }
    ~Scratch() { free(whole); }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    bool is_missing() const { return !whole; }  // there was no memory left
    void *of(int32_t thread) const {
        return whole + (64 - reinterpret_cast<uintptr_t>(whole) % 64) + size_t(thread) * each;
    }
};
