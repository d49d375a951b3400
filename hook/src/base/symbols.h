/* The only place that resolves symbols. Implemented in symbols.c; usable from the first call on. */
#pragma once

#include <stdbool.h>

/* The libraries whose functions we answer for. */
enum symbols_library { SYMBOLS_CUDA, SYMBOLS_NVML };

/* The real driver's function of this exported name (for instance "cuMemAlloc_v2", with _ptsz where
 * meant), never one of our wrappers; NULL where the driver does not have it. Loads libcuda.so.1
 * only when it is loaded already or an application asked us for one of its functions. */
void *symbols_real(const char *exported_name);

/* Likewise for a function of either library: NULL while the library is not loaded. With `load` it
 * is loaded then, for an application that called one of its functions through our exports. */
void *symbols_real_of(enum symbols_library library, const char *exported_name, bool load);

/* A function of the C library by name, never an interposer's; NULL where it has none. */
void *symbols_libc(const char *name);

/* Those of its functions whose place we take. */
enum symbols_function {
    SYMBOLS_DLSYM,
    SYMBOLS_DLOPEN,
    SYMBOLS_DLMOPEN,
    SYMBOLS_FUNCTIONS,
};
/* The C library's own; NULL where it has none. */
void *symbols_libc_function(enum symbols_function function);
/* The one that programs would call without us: the C library's, or that of an interposer behind us.
 */
void *symbols_next_function(enum symbols_function function);

/* The C library's dlsym, never ours. */
void *symbols_libc_dlsym(void *handle, const char *name);
