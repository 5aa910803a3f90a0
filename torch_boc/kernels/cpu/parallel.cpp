// Whose threads the library uses: the one thing that it remembers.
#include "parallel.h"

Threads boc_threads = {};

BOC_EXPORT void boc_use_threads(void *gomp_parallel, void *thread_num, void *num_threads) {
    boc_threads = {};
    if (!gomp_parallel || !thread_num || !num_threads) return;
    boc_threads.number = reinterpret_cast<int (*)()>(thread_num);
    boc_threads.count = reinterpret_cast<int (*)()>(num_threads);
    boc_threads.parallel = reinterpret_cast<decltype(boc_threads.parallel)>(gomp_parallel);
}
