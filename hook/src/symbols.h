/* The only place that resolves symbols. Implemented in symbols.c; usable from the first call on. */
#ifndef GPUSHARE_SYMBOLS_H
#define GPUSHARE_SYMBOLS_H

#pragma GCC visibility push(hidden)

/* The real driver's function of this exported name (for instance "cuMemAlloc_v2", with _ptsz where
 * meant), never one of our wrappers; NULL where the driver does not have it. Loads libcuda.so.1
 * only when it is loaded already or an application asked us for one of its functions. */
void *symbols_real(const char *exported_name);

/* The C library's dlsym, never ours. */
void *symbols_libc_dlsym(void *handle, const char *name);

#pragma GCC visibility pop
#endif
