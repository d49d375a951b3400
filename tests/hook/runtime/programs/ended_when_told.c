/* A thread asks again and again whether a stream still captures. As soon as it does not, the thread
 * destroys the stream, or (`begin`) captures in it anew before that, while the thread that has
 * ended the capture may still be on its way out of that call. Another capture goes on all the time.
 * Says "right" when all captures have ended as they do alone, and waits for a word. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "gpu.h"

#define ROUNDS 400

static struct gpu gpu;
static bool begins;
static _Atomic(CUstream) captures;
static _Atomic int gone;

static void end(CUstream stream) {
    CUgraph graph;
    check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
}

static void *look(void *unused) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    for (int round = 0; round < ROUNDS; round++) {
        CUstream stream;
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        while ((stream = atomic_exchange(&captures, NULL)) == NULL)
            continue;
        while (status != CU_STREAM_CAPTURE_STATUS_NONE)
            check(cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
        if (begins) {
            check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "begin again");
            end(stream);
        }
        check(cuStreamDestroy(stream), "cuStreamDestroy");
        atomic_fetch_add(&gone, 1);
    }
    return unused;
}

int main(int count, char **arguments) {
    pthread_t looker;
    CUstream always;
    begins = count == 2 && strcmp(arguments[1], "begin") == 0;
    gpu = gpu_open(0);
    check(gpu_spin(&gpu, NULL, 1000), "spin");
    check(cuStreamCreate(&always, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuStreamBeginCapture(always, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    if (pthread_create(&looker, NULL, look, NULL) != 0) return 4;
    for (int round = 0; round < ROUNDS; round++) {
        CUstream stream;
        check(cuStreamCreate(&stream, CU_STREAM_DEFAULT), "cuStreamCreate");
        check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
        atomic_store(&captures, stream);
        end(stream);
        while (atomic_load(&gone) <= round)
            continue;
    }
    pthread_join(looker, NULL);
    end(always);
    puts("right");
    fflush(stdout);
    getchar();
    return 0;
}
