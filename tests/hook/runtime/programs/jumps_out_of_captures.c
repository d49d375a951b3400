/* A handler of SIGINT that jumps out of the begin of a capture (`begin`: it waits for another
 * thread that records; `refused`: the driver will refuse it) or out of its end (`end`). Then the
 * capture ends, if it goes on, and the thread launches until the next SIGINT. Or (`looks`) another
 * thread begins a capture: is the handler in place meanwhile? */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "gpu.h"

static struct gpu gpu;
static CUstream stream, other;
static sigjmp_buf before;
static volatile bool stops;

static void jump(int number) {
    siglongjmp(before, number);
}

static void say(const char *word) {
    puts(word);
    fflush(stdout);
}

static void hear(void) {
    while (getchar() != '\n')
        continue;
}

static void *launch(void *nothing) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    while (!stops)
        check(gpu_spin(&gpu, other, 1000), "launch");
    return nothing;
}

static void *capture(void *nothing) {
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
    return nothing;
}

static int look(void) {
    pthread_t other;
    struct sigaction action;
    if (pthread_create(&other, NULL, capture, NULL) != 0) return 4;
    hear();
    sigaction(SIGINT, NULL, &action);
    say(action.sa_handler == jump ? "in place" : "gone");
    pthread_join(other, NULL);
    return 0;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    const bool ends = strcmp(arguments[1], "end") == 0;
    const bool waits = strcmp(arguments[1], "begin") == 0;
    pthread_t launcher;
    CUgraph graph;
    gpu = gpu_open(0);
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(gpu_spin(&gpu, stream, 1000), "launch");
    signal(SIGINT, jump);
    if (waits && pthread_create(&launcher, NULL, launch, NULL) != 0) return 4;
    say("launched");
    if (strcmp(arguments[1], "looks") == 0) return look();
    hear();
    if (ends) check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
    if (sigsetjmp(before, 1) == 0) {
        say("calls");
        if (ends)
            cuStreamEndCapture(stream, &graph);
        else
            cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        say("returned");
    }
    say("jumped");
    stops = true;
    if (waits) pthread_join(launcher, NULL);
    CUstreamCaptureStatus status;
    check(cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) cuStreamEndCapture(stream, &graph);
    say("over");
    hear();
    if (sigsetjmp(before, 1) == 0)
        for (;;)
            check(gpu_spin(&gpu, stream, 1000), "launch");
    say("interrupted");
    return 0;
}
