/* Times launches from C, as a framework does them: functions from cuGetProcAddress, batches of
 * asynchronous launches, the device drained between batches and outside the timed part.
 *
 * usage: launch_loop MODULE.ptx BATCHES LAUNCHES_PER_BATCH
 * prints one line a kind: `KIND median_ns_per_launch`.
 * `measured_*` are functions of their own, so that callgrind can count inside them alone. */
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef CUresult (*get_proc_address_fn)(const char *, void **, int, cuuint64_t, void *);

static get_proc_address_fn get_proc_address;

static void *proc(const char *name, int version) {
    void *function = NULL;
    if (get_proc_address(name, &function, version, 0, NULL) != CUDA_SUCCESS || function == NULL) {
        fprintf(stderr, "launch_loop: the driver has no %s\n", name);
        exit(2);
    }
    return function;
}

static void check(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return;
    fprintf(stderr, "launch_loop: %s failed with CUresult %d\n", what, (int)result);
    exit(2);
}

static CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, CUstream, void **, void **);
static CUresult (*launch_ex)(const CUlaunchConfig *, CUfunction, void **, void **);
static CUresult (*graph_launch)(CUgraphExec, CUstream);
static CUresult (*synchronise)(CUstream);

static CUfunction function;
static CUstream stream;
static CUgraphExec graph;
static void *parameters[1];
static CUlaunchConfig config;

__attribute__((noinline)) CUresult measured_launch(int count) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < count; i++)
        result |= launch(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    return result;
}

__attribute__((noinline)) CUresult measured_launch_default(int count) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < count; i++)
        result |= launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    return result;
}

__attribute__((noinline)) CUresult measured_launch_ex(int count) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < count; i++)
        result |= launch_ex(&config, function, parameters, NULL);
    return result;
}

__attribute__((noinline)) CUresult measured_graph_launch(int count) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < count; i++)
        result |= graph_launch(graph, stream);
    return result;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* For count_steps.c, where it is asked for: brackets the last batch, which is to be counted. */
static void mark(bool last_batch) {
    static int wanted = -1;
    if (wanted < 0) wanted = getenv("LAUNCH_LOOP_MARKS") != NULL;
    if (wanted && last_batch) raise(SIGUSR1);
}

static void run(const char *kind, CUresult (*measured)(int), int batches, int launches) {
    double *samples = malloc(sizeof(double) * (size_t)batches);
    for (int i = -5; i < batches; i++) { /* the first five warm up */
        double start_ns = now_ns();
        mark(i == batches - 1);
        CUresult result = measured(launches);
        mark(i == batches - 1);
        double end_ns = now_ns();
        check(result, kind);
        check(synchronise(stream), "cuStreamSynchronize");
        check(synchronise(NULL), "cuStreamSynchronize");
        if (i >= 0) samples[i] = (end_ns - start_ns) / launches;
    }
    qsort(samples, (size_t)batches, sizeof(double), by_value);
    printf("%s %.2f\n", kind, samples[batches / 2]);
    free(samples);
}

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)size + 1);
    if (fread(text, 1, (size_t)size, file) != (size_t)size) exit(2);
    fclose(file);
    return text;
}

static void open_device(const char *module_path) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    check(((CUresult (*)(unsigned))proc("cuInit", 2000))(0), "cuInit");
    check(((CUresult (*)(CUdevice *, int))proc("cuDeviceGet", 2000))(&device, 0), "cuDeviceGet");
    check(((CUresult (*)(CUcontext *, CUdevice))proc("cuDevicePrimaryCtxRetain", 7000))(&context,
                                                                                        device),
          "cuDevicePrimaryCtxRetain");
    check(((CUresult (*)(CUcontext))proc("cuCtxSetCurrent", 4000))(context), "cuCtxSetCurrent");
    check(((CUresult (*)(CUmodule *, const void *))proc("cuModuleLoadData", 2010))(
              &module, read_text(module_path)),
          "cuModuleLoadData");
    check(((CUresult (*)(CUfunction *, CUmodule, const char *))proc("cuModuleGetFunction", 2000))(
              &function, module, "spin"),
          "cuModuleGetFunction");
    check(((CUresult (*)(CUstream *, unsigned))proc("cuStreamCreate", 2000))(
              &stream, CU_STREAM_NON_BLOCKING),
          "cuStreamCreate");
    synchronise = (CUresult (*)(CUstream))proc("cuStreamSynchronize", 2000);
}

static void prepare_launches(void) {
    static unsigned long long nanoseconds = 0;
    parameters[0] = &nanoseconds;
    config = (CUlaunchConfig){.gridDimX = 1,
                              .gridDimY = 1,
                              .gridDimZ = 1,
                              .blockDimX = 1,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .hStream = stream};
    *(void **)&launch = proc("cuLaunchKernel", 4000);
    *(void **)&launch_ex = proc("cuLaunchKernelEx", 11060);
    *(void **)&graph_launch = proc("cuGraphLaunch", 10000);
    CUgraph captured;
    check(((CUresult (*)(CUstream, CUstreamCaptureMode))proc("cuStreamBeginCapture", 10010))(
              stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "cuStreamBeginCapture");
    check(launch(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL), "captured launch");
    check(((CUresult (*)(CUstream, CUgraph *))proc("cuStreamEndCapture", 10000))(stream, &captured),
          "cuStreamEndCapture");
    check(((CUresult (*)(CUgraphExec *, CUgraph, unsigned long long))proc(
              "cuGraphInstantiateWithFlags", 11040))(&graph, captured, 0),
          "cuGraphInstantiateWithFlags");
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: launch_loop MODULE.ptx BATCHES LAUNCHES_PER_BATCH\n");
        return 2;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "launch_loop: %s\n", dlerror());
        return 2;
    }
    *(void **)&get_proc_address = dlsym(library, "cuGetProcAddress_v2");
    int batches = atoi(argv[2]), launches = atoi(argv[3]);
    open_device(argv[1]);
    prepare_launches();
    run("cuLaunchKernel", measured_launch, batches, launches);
    run("cuLaunchKernel/default", measured_launch_default, batches, launches);
    run("cuLaunchKernelEx", measured_launch_ex, batches, launches);
    run("cuGraphLaunch", measured_graph_launch, batches, launches);
    return 0;
}
