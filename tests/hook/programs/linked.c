/* Linked to libcuda, as Triton's and CuPy's modules are. Prints what two calls returned. */
#include <stdio.h>

int cuLaunchKernel(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, void *stream, void **parameters, void **extra);
int cuCtxGetCurrent(void **context);

int main(void) {
    void *context = NULL;
    printf("%d ", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    printf("%d\n", cuCtxGetCurrent(&context));
    return 0;
}
