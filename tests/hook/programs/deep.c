/* A library that looks for functions, and other libraries, by itself (see opens_deep.c). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

void *by_name(void) {
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
}

int finds(const char *library) {
    return dlopen(library, RTLD_NOW) != NULL;
}
