/* Streams that capture, while others take their places in the thread's window. Says how many
 * captures did not end well. */
#include "gpu.h"

#define CAPTURING 16
#define OTHERS 40

int main(void) {
    struct gpu gpu = gpu_open(0);
    CUstream capturing[CAPTURING], others[OTHERS];
    for (int i = 0; i < CAPTURING; i++)
        check(cuStreamCreate(&capturing[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (int i = 0; i < OTHERS; i++)
        check(cuStreamCreate(&others[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (int i = 0; i < CAPTURING; i++)
        check(gpu_spin(&gpu, capturing[i], 1000), "spin");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    for (int i = 0; i < CAPTURING; i++)
        check(cuStreamBeginCapture(capturing[i], CU_STREAM_CAPTURE_MODE_RELAXED),
              "cuStreamBeginCapture");
    for (int i = 0; i < OTHERS; i++)
        check(gpu_spin(&gpu, others[i], 1000), "spin");
    int broken = 0;
    for (int i = 0; i < CAPTURING; i++) {
        CUgraph graph;
        broken += cuStreamEndCapture(capturing[i], &graph) != CUDA_SUCCESS;
    }
    printf("broken %d\n", broken);
    return 0;
}
