// Says of which sources a library was made, so that Python can refuse one that is older than the code beside it.
extern "C" const char *boc_sources(void) { return BOC_SOURCES; }
