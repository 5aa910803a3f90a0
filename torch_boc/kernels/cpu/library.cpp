// What the library is made of, and whose threads it uses.
#include "parallel.h"

#ifndef BOC_SOURCES
#define BOC_SOURCES ""
#endif

Threads boc_threads = {};

BOC_EXPORT void boc_use_threads(void *gomp_parallel, void *thread_num, void *num_threads) {
    if (!gomp_parallel || !thread_num || !num_threads) {
        boc_threads = {};
        return;
    }
    boc_threads.number = reinterpret_cast<int (*)()>(thread_num);
    boc_threads.count = reinterpret_cast<int (*)()>(num_threads);
    boc_threads.parallel = reinterpret_cast<decltype(boc_threads.parallel)>(gomp_parallel);
}

// The hash of the sources, given by the build: a checkout whose code changed since then must not use this library.
BOC_EXPORT const char *boc_sources(void) { return BOC_SOURCES; }
