/* A framework in small that is written in C: it launches, and raises an exception of its own where
 * the driver refuses. Called by ctypes.PyDLL, so the interpreter's lock is held while it waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

typedef int (*launch_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, void *, void **, void **);

void held_lock_launch(void *function, uint64_t nanoseconds, int ways);

/* `ways`: so many it tries, one after the other, before it gives up. */
void held_lock_launch(void *function, uint64_t nanoseconds, int ways) {
    launch_function launch = (launch_function)dlsym(RTLD_DEFAULT, "cuLaunchKernel");
    void (*set)(void *, const char *) =
        (void (*)(void *, const char *))dlsym(RTLD_DEFAULT, "PyErr_SetString");
    void **runtime_error = dlsym(RTLD_DEFAULT, "PyExc_RuntimeError");
    void *arguments[] = {&nanoseconds};
    int result = launch(function, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0);
    while (result != 0 && --ways > 0)
        result = launch(function, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0);
    if (result == 800) set(*runtime_error, "CUDA error: operation not permitted");
    if (result != 0 && result != 800) set(*runtime_error, "CUDA error: another");
}
