/* A graph that allocates is launched anew, waits for the turn, and a handler of SIGINT jumps out of
 * that. Then the graph is destroyed, and its memory trimmed. */
#include <setjmp.h>
#include <signal.h>

#include "gpu.h"

static sigjmp_buf before;

static void jumps(int number) {
    siglongjmp(before, number);
}

static void say(const char *what, CUresult result) {
    printf("%s %d\n", what, (int)result);
    fflush(stdout);
}

static CUgraphExec graph_in(CUstream stream) {
    CUdeviceptr address;
    CUgraph graph;
    CUgraphExec executable;
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
    check(cuMemAllocAsync(&address, 256u << 20, stream), "allocate");
    check(cuMemFreeAsync(address, stream), "free");
    check(cuStreamEndCapture(stream, &graph), "end");
    check(cuGraphInstantiateWithFlags(&executable, graph, 0), "instantiate");
    return executable;
}

static void wait_for_a_line(void) {
    char line[16];
    if (fgets(line, sizeof line, stdin) == NULL) exit(3);
}

int main(void) {
    CUstream stream;
    struct gpu gpu = gpu_open(0);
    (void)gpu;
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
    CUgraphExec graph = graph_in(stream);
    say("launched", cuGraphLaunch(graph, stream));
    say("waited", cuStreamSynchronize(stream));
    wait_for_a_line();
    signal(SIGINT, jumps);
    if (sigsetjmp(before, 1) == 0)
        say("not interrupted", cuGraphLaunch(graph, stream));
    else
        say("jumped", 0);
    wait_for_a_line();
    say("destroyed", cuGraphExecDestroy(graph));
    say("trimmed", cuDeviceGraphMemTrim(0));
    say("waited", cuCtxSynchronize());
    wait_for_a_line();
    return 0;
}
