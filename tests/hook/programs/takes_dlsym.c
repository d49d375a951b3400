/* A preloaded library that interposes dlsym as well, as profilers and other hooks do. It hands
 * everything on to the next dlsym, which it finds with dlvsym, and counts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif

static int calls;

void *dlsym(void *handle, const char *name) {
    static void *(*next)(void *, const char *);
    if (next == NULL) next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", OLDEST);
    if (++calls > 10000) abort();
    return next(handle, name);
}
