/* Times launches from C, as a framework does them: functions from cuGetProcAddress, batches of
 * asynchronous launches, the device drained between batches and outside the timed part.
 *
 * usage: launch_loop MODULE.ptx BATCHES LAUNCHES_PER_BATCH
 * For each line on its standard input it prints one line a kind, `KIND BARE_NS FOUND_NS`: median
 * nanoseconds a launch through the driver's own functions and through those that the process finds.
 * Batches of the two alternate in one process, because processes differ from each other by more
 * than a hook adds.
 *
 * usage: launch_loop MODULE.ptx LAUNCHES
 * Some batches of each kind through what the process finds, to be counted. `measured_*` are
 * functions of their own, so that callgrind can count inside them alone. */
#include "../../hook/src/base/elf_lookup.h"

#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP_BATCHES = 5, WARM_UP_LAUNCHES = 48, COUNTED_BATCHES = 6 };

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

struct launches {
    CUresult (*plain)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, CUstream, void **, void **);
    CUresult (*ex)(const CUlaunchConfig *, CUfunction, void **, void **);
    CUresult (*graph)(CUgraphExec, CUstream);
};

static struct launches bare, found;
static const struct launches *measured; /* one of the two */
static CUresult (*synchronise)(CUstream);

static CUfunction function;
static CUstream stream;
static CUgraphExec graph;
static void *parameters[1];
static CUlaunchConfig config;

__attribute__((noinline)) CUresult measured_launch(int count) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < count; i++)
        result |= measured->plain(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    return result;
}

__attribute__((noinline)) CUresult measured_launch_default(int count) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < count; i++)
        result |= measured->plain(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    return result;
}

__attribute__((noinline)) CUresult measured_launch_ex(int count) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < count; i++)
        result |= measured->ex(&config, function, parameters, NULL);
    return result;
}

__attribute__((noinline)) CUresult measured_graph_launch(int count) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < count; i++)
        result |= measured->graph(graph, stream);
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

static const struct kind {
    const char *name;
    CUresult (*batch)(int);
} kinds[] = {
    {"cuLaunchKernel", measured_launch},
    {"cuLaunchKernel/default", measured_launch_default},
    {"cuLaunchKernelEx", measured_launch_ex},
    {"cuGraphLaunch", measured_graph_launch},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static double batch_ns(const struct kind *kind, const struct launches *functions, int launches) {
    measured = functions;
    double start_ns = now_ns();
    CUresult result = kind->batch(launches);
    double end_ns = now_ns();
    check(result, kind->name);
    check(synchronise(stream), "cuStreamSynchronize");
    check(synchronise(NULL), "cuStreamSynchronize");
    return (end_ns - start_ns) / launches;
}

static double median(double *samples, int count) {
    qsort(samples, (size_t)count, sizeof(double), by_value);
    return samples[count / 2];
}

static void compare(const struct kind *kind, int batches, int launches) {
    double *bare_ns = malloc(sizeof(double) * (size_t)batches);
    double *found_ns = malloc(sizeof(double) * (size_t)batches);
    for (int i = 0; i < WARM_UP_BATCHES + batches; i++) {
        int sample = i < WARM_UP_BATCHES ? 0 : i - WARM_UP_BATCHES;
        bare_ns[sample] = batch_ns(kind, &bare, launches);
        found_ns[sample] = batch_ns(kind, &found, launches);
    }
    printf("%s %.2f %.2f\n", kind->name, median(bare_ns, batches), median(found_ns, batches));
    free(bare_ns);
    free(found_ns);
}

/* For count_steps.c: the signals bracket each batch. */
static void count(const struct kind *kind, int launches) {
    bool marks = getenv("LAUNCH_LOOP_MARKS") != NULL;
    for (int i = 0; i < WARM_UP_BATCHES; i++)
        batch_ns(kind, &found, WARM_UP_LAUNCHES);
    for (int i = 0; i < COUNTED_BATCHES; i++) {
        if (marks) raise(SIGUSR1);
        CUresult result = kind->batch(launches);
        if (marks) raise(SIGUSR1);
        check(result, kind->name);
        check(synchronise(stream), "cuStreamSynchronize");
        check(synchronise(NULL), "cuStreamSynchronize");
    }
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

static struct launches launches_of(get_proc_address_fn driver) {
    struct launches functions;
    get_proc_address_fn before = get_proc_address;
    get_proc_address = driver;
    *(void **)&functions.plain = proc("cuLaunchKernel", 4000);
    *(void **)&functions.ex = proc("cuLaunchKernelEx", 11060);
    *(void **)&functions.graph = proc("cuGraphLaunch", 10000);
    get_proc_address = before;
    return functions;
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
    CUgraph captured;
    check(((CUresult (*)(CUstream, CUstreamCaptureMode))proc("cuStreamBeginCapture", 10010))(
              stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "cuStreamBeginCapture");
    check(found.plain(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL), "captured launch");
    check(((CUresult (*)(CUstream, CUgraph *))proc("cuStreamEndCapture", 10000))(stream, &captured),
          "cuStreamEndCapture");
    check(((CUresult (*)(CUgraphExec *, CUgraph, unsigned long long))proc(
              "cuGraphInstantiateWithFlags", 11040))(&graph, captured, 0),
          "cuGraphInstantiateWithFlags");
    /* The first one asks for the turn. */
    check(found.plain(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL), "first launch");
    check(synchronise(stream), "cuStreamSynchronize");
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: launch_loop MODULE.ptx [BATCHES] LAUNCHES_PER_BATCH\n");
        return 2;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "launch_loop: %s\n", dlerror());
        return 2;
    }
    *(void **)&get_proc_address = dlsym(library, "cuGetProcAddress_v2");
    open_device(argv[1]);
    found = launches_of(get_proc_address);
    bare = launches_of((get_proc_address_fn)elf_lookup("libcuda.so.1", "cuGetProcAddress_v2"));
    prepare_launches();
    int launches = atoi(argv[argc - 1]);
    if (argc == 3) {
        for (int i = 0; i < KINDS; i++)
            count(&kinds[i], launches);
        return 0;
    }
    while (getchar() == '\n') {
        for (int i = 0; i < KINDS; i++)
            compare(&kinds[i], atoi(argv[2]), launches);
        fflush(stdout);
    }
    return 0;
}
