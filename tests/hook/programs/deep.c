/* A library that looks for functions, and other libraries, by itself (see opens_deep.c and
 * finder.c). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

void *by_name(void) {
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
}

void *by_default(const char *name) {
    return dlsym(RTLD_DEFAULT, name);
}

int finds(const char *library) {
    return dlopen(library, RTLD_NOW) != NULL;
}
