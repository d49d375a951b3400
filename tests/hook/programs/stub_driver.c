/* A library that has functions of the driver's names itself, and looks the driver up at the first
 * call, as XLA's and PyTorch's stubs do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

int cuCtxSynchronize(void) {
    static int depth;
    if (++depth > 1) abort();
    int (*real)(void) = (int (*)(void))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSynchronize");
    int result = real != NULL ? real() : -1;
    depth--;
    return result;
}
