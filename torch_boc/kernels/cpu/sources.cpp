// Says of which sources a library was made, so that Python can refuse one that is older than the code beside it.
#include "parallel.h"

BOC_EXPORT const char *boc_sources(void) { return BOC_SOURCES; }
