/* A thread begins to capture as soon as the device tells it that the work is done, while the thread
 * that put the work there may still be on its way out of its last call. `own`: in the stream of the
 * work; `legacy`: in a stream that keeps order with the legacy one, where the work was. Says
 * "right" when all captures have ended as they do alone. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "gpu.h"

#define ROUNDS 400

static struct gpu gpu;
static bool is_legacy;
static _Atomic(CUstream) done;
static _Atomic int captured;

static void CUDA_CB tell(void *stream) {
    atomic_store(&done, (CUstream)stream);
}

static void *capture(void *unused) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    for (int round = 0; round < ROUNDS; round++) {
        CUstream stream;
        CUgraph graph;
        size_t nodes = 0;
        while ((stream = atomic_exchange(&done, NULL)) == NULL)
            continue;
        check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
        check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
        check(cuGraphGetNodes(graph, NULL, &nodes), "cuGraphGetNodes");
        if (nodes != 0) printf("nodes %zu\n", nodes);
        check(cuGraphDestroy(graph), "cuGraphDestroy");
        check(cuStreamDestroy(stream), "cuStreamDestroy");
        atomic_fetch_add(&captured, 1);
    }
    return unused;
}

int main(int count, char **arguments) {
    pthread_t capturer;
    is_legacy = count == 2 && strcmp(arguments[1], "legacy") == 0;
    gpu = gpu_open(0);
    if (pthread_create(&capturer, NULL, capture, NULL) != 0) return 4;
    for (int round = 0; round < ROUNDS; round++) {
        CUstream stream;
        const unsigned flags = is_legacy ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
        check(cuStreamCreate(&stream, flags), "cuStreamCreate");
        check(cuLaunchHostFunc(is_legacy ? NULL : stream, tell, stream), "cuLaunchHostFunc");
        while (atomic_load(&captured) <= round)
            continue;
    }
    pthread_join(capturer, NULL);
    puts("right");
    return 0;
}
