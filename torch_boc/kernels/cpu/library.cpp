// Of which sources and of which contract the library was made, and whose threads it uses: the one thing it remembers.
#include "contract.h"
#include "parallel.h"

#define BOC_TEXT(name) " " #name
#define BOC_TYPED(name, kind) " " #name ":" #kind
#define BOC_QUOTED(number) " " #number
#define BOC_NUMBER(number) BOC_QUOTED(number)

BOC_EXPORT const char *boc_sources(void) { return BOC_SOURCES; }

BOC_EXPORT const char *boc_contract(void) {
    return "logits" BOC_LOGIT_TYPES(BOC_TEXT) "\ncolumns" BOC_COLUMNS(BOC_TYPED) "\ncounts" BOC_COUNTS(BOC_TEXT)
        "\nsums" BOC_SUMS(BOC_TEXT) "\ngap_histogram" BOC_NUMBER(BOC_GAP_BINS) BOC_NUMBER(BOC_LOWEST_DECADE)
        BOC_NUMBER(BOC_BINS_PER_DECADE) "\nbin_counts" BOC_BIN_COUNTS(BOC_TEXT) "\nbin_sums" BOC_BIN_SUMS(BOC_TEXT) "\n";
}

Threads boc_threads = {};

BOC_EXPORT void boc_use_threads(void *gomp_parallel, void *thread_num, void *num_threads) {
    boc_threads.number = reinterpret_cast<int (*)()>(thread_num);
    boc_threads.count = reinterpret_cast<int (*)()>(num_threads);
    boc_threads.parallel = reinterpret_cast<decltype(boc_threads.parallel)>(gomp_parallel);
}
