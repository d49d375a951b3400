/* A GPU program by commands, one a line: "THREAD COMMAND ARGUMENTS". Each thread does its commands
 * in order and answers "THREAD COMMAND RESULT". Streams: "d" is the legacy stream, "p" the
 * thread's own default stream, a digit one that was created. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"

#define THREADS 8
#define STREAMS 10
#define TENSORS 10
#define PIECE_BYTES ((uint64_t)1 << 20)

static struct gpu gpu;
static CUstream streams[STREAMS];
static CUgraphExec graph;
static uint32_t *flag; /* in host memory that the device sees */
static CUdeviceptr flag_there;
static CUdeviceptr words;
static struct tensor {
    CUdeviceptr address;
    uint64_t bytes;
    uint64_t *sum; /* in host memory that the device sees */
} tensors[TENSORS];
static _Atomic int stop;
static _Atomic long looped;                               /* launches of loops so far */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER; /* what a thread opened, others see */

static struct worker {
    pthread_t thread;
    int pipe[2];
    int number;
} workers[THREADS];

static CUstream stream_of(const char *name) {
    if (name == NULL || name[0] == 'd') return NULL;
    if (name[0] == 'p') return CU_STREAM_PER_THREAD;
    return streams[name[0] - '0'];
}

static long open_device(const char *ordinal) {
    gpu = gpu_open(ordinal ? atoi(ordinal) : 0);
    void *memory;
    check(cuMemHostAlloc(&memory, 4, CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
    flag = memory;
    check(cuMemHostGetDevicePointer(&flag_there, flag, 0), "cuMemHostGetDevicePointer");
    return 0;
}

/* A library in a namespace of its own; "driver" stands for the one that this program uses. */
static long open_namespace(const char *library) {
    Dl_info info = {0};
    if (strcmp(library, "driver") == 0) {
        dladdr(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxGetCurrent"), &info);
        library = info.dli_fname;
    }
    return dlmopen(LM_ID_NEWLM, library, RTLD_NOW) != NULL ? 0 : 1;
}

static long create(const char *name, const char *kind) {
    unsigned flags = kind && kind[0] == 'b' ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    return cuStreamCreate(&streams[name[0] - '0'], flags);
}

/* Destroys the stream, and makes new ones until one has its handle. */
static long again(const char *name, const char *kind) {
    const CUstream before = stream_of(name);
    CUresult result = CUDA_SUCCESS;
    do {
        result = cuStreamDestroy(stream_of(name));
        if (result == CUDA_SUCCESS) result = create(name, kind);
    } while (result == CUDA_SUCCESS && stream_of(name) != before);
    return result;
}

static long spin(const char *stream, const char *ns, const char *count) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < (count ? atoi(count) : 1) && result == CUDA_SUCCESS; i++)
        result = gpu_spin(&gpu, stream_of(stream), strtoull(ns, NULL, 10));
    return result;
}

/* Launches until "0 stop". */
static long loop(const char *stream, const char *ns) {
    CUresult result = CUDA_SUCCESS;
    while (!atomic_load(&stop) && result == CUDA_SUCCESS) {
        result = gpu_spin(&gpu, stream_of(stream), strtoull(ns, NULL, 10));
        atomic_fetch_add(&looped, 1);
    }
    return result;
}

/* Two streams that a thread's rings (window.c, find_ring) keep in one place; launches into them in
 * turn until "0 stop". With "apart", two that are kept apart. */
static long twins(const char *ns, const char *apart) {
    CUstream made[64];
    CUstream first = NULL, second = NULL;
    for (int i = 0; i < 64 && second == NULL; i++) {
        if (cuStreamCreate(&made[i], CU_STREAM_NON_BLOCKING)) return -1;
        uintptr_t hash = (uintptr_t)made[i] ^ ((uintptr_t)made[i] >> 4);
        hash = (hash ^ (hash >> 8)) % 16;
        for (int j = 0; j < i && second == NULL; j++) {
            uintptr_t other = (uintptr_t)made[j] ^ ((uintptr_t)made[j] >> 4);
            other = (other ^ (other >> 8)) % 16;
            if ((hash == other) == (apart == NULL)) first = made[j], second = made[i];
        }
    }
    if (second == NULL) return -2;
    CUresult result = CUDA_SUCCESS;
    while (!atomic_load(&stop) && result == CUDA_SUCCESS) {
        result = gpu_spin(&gpu, first, strtoull(ns, NULL, 10));
        if (result == CUDA_SUCCESS) result = gpu_spin(&gpu, second, strtoull(ns, NULL, 10));
    }
    return result;
}

/* Launches into so many streams in turn until "0 stop". */
static long many(const char *ns, const char *count) {
    CUstream made[64];
    const int streams = atoi(count);
    if (streams > 64) return -1;
    for (int i = 0; i < streams; i++)
        if (cuStreamCreate(&made[i], CU_STREAM_NON_BLOCKING)) return -1;
    CUresult result = CUDA_SUCCESS;
    while (!atomic_load(&stop))
        for (int i = 0; i < streams && result == CUDA_SUCCESS; i++)
            result = gpu_spin(&gpu, made[i], strtoull(ns, NULL, 10));
    return result;
}

static long poll_flag(const char *stream) {
    void *arguments[] = {&flag_there};
    return cuLaunchKernel(gpu.poll_flag, 1, 1, 1, 1, 1, 1, 0, stream_of(stream), arguments, NULL);
}

/* Sets the flag from the device, by a gated call. */
static long set_flag(const char *stream) {
    return cuMemsetD32Async(flag_there, 1, 1, stream_of(stream));
}

/* Sets it from the host: what polls ends. */
static long release_flag(void) {
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    return 0;
}

/* So many rounds, in each of which a stream polls the flag, and has so much more to do before the
 * host sets that. Prints how long each took, in nanoseconds. */
static long rounds(const char *stream, const char *count, const char *launches) {
    for (int round = atoi(count); round > 0; round--) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        __atomic_store_n(flag, 0, __ATOMIC_SEQ_CST);
        long result = poll_flag(stream);
        for (int i = atoi(launches); i > 0 && result == 0; i--)
            result = gpu_spin(&gpu, stream_of(stream), 1000);
        release_flag();
        if (result == 0) result = cuStreamSynchronize(stream_of(stream));
        if (result != 0) return result;
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("round %lld\n",
               (to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec);
    }
    return 0;
}

/* ---- tensors: memory whose contents tell where each piece belongs ---- */

static struct tensor *tensor_of(const char *name) {
    return &tensors[name[0] - '0'];
}

/* TENSORS=pooled: stream-ordered memory of the default stream. TENSORS=managed: managed memory.
 * TENSORS=mapped: memory that the program makes and maps itself, by one handle a tensor;
 * TENSORS=given: the same, which can be exported;
 * TENSORS=pieces: by one for each 8 MiB, and for RDMA, as frameworks do. Otherwise plain memory. */
static bool tensors_are(const char *kind) {
    const char *asked = getenv("TENSORS");
    return asked != NULL && strcmp(asked, kind) == 0;
}

static uint64_t mapped_piece_bytes(uint64_t bytes) {
    if (tensors_are("pieces")) return (uint64_t)8 << 20;
    return tensors_are("mapped") || tensors_are("given") ? bytes : 0;
}

static CUresult map_piece(CUdeviceptr address, uint64_t bytes) {
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = tensors_are("given") ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                     : CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
        .allocFlags = {.gpuDirectRDMACapable = tensors_are("pieces")},
    };
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, bytes, &properties, 0);
    if (result != CUDA_SUCCESS) return result;
    result = cuMemMap(address, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) result = cuMemSetAccess(address, bytes, &access, 1);
    const CUresult released = cuMemRelease(handle);
    return result != CUDA_SUCCESS ? result : released;
}

static CUresult drop_mapped(struct tensor *tensor) {
    CUresult result = cuMemUnmap(tensor->address, tensor->bytes);
    if (result == CUDA_SUCCESS) result = cuMemAddressFree(tensor->address, tensor->bytes);
    __atomic_store_n(&tensor->address, 0, __ATOMIC_RELAXED); /* another thread may give it away */
    return result;
}

static CUresult new_mapped(struct tensor *tensor, uint64_t piece_bytes) {
    CUresult result = cuMemAddressReserve(&tensor->address, tensor->bytes, 0, 0, 0);
    for (uint64_t at = 0; at < tensor->bytes && result == CUDA_SUCCESS; at += piece_bytes) {
        const uint64_t left = tensor->bytes - at;
        result = map_piece(tensor->address + at, left < piece_bytes ? left : piece_bytes);
    }
    if (result != CUDA_SUCCESS && tensor->address != 0) drop_mapped(tensor);
    return result;
}

static long new_tensor(const char *name, const char *bytes) {
    struct tensor *tensor = tensor_of(name);
    tensor->bytes = strtoull(bytes, NULL, 10);
    const uint64_t piece_bytes = mapped_piece_bytes(tensor->bytes);
    if (piece_bytes > 0) return new_mapped(tensor, piece_bytes);
    if (tensors_are("pooled")) return cuMemAllocAsync(&tensor->address, tensor->bytes, NULL);
    if (tensors_are("managed"))
        return cuMemAllocManaged(&tensor->address, tensor->bytes, CU_MEM_ATTACH_GLOBAL);
    return cuMemAlloc(&tensor->address, tensor->bytes);
}

static long drop_tensor(const char *name) {
    struct tensor *tensor = tensor_of(name);
    if (mapped_piece_bytes(tensor->bytes) > 0) return drop_mapped(tensor);
    if (!tensors_are("pooled")) return cuMemFree(tensor->address);
    const CUresult result = cuMemFreeAsync(tensor->address, NULL);
    return result != CUDA_SUCCESS ? result : cuStreamSynchronize(NULL);
}

/* As a descriptor, which is closed at once. */
static long give(const char *name) {
    CUmemGenericAllocationHandle handle;
    int fd = -1;
    const CUdeviceptr address = __atomic_load_n(&tensor_of(name)->address, __ATOMIC_RELAXED);
    CUresult result = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address);
    if (result != CUDA_SUCCESS) return result;
    result = cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS) close(fd);
    const CUresult released = cuMemRelease(handle);
    return result != CUDA_SUCCESS ? result : released;
}

/* Each MiB is filled with the seed and its own number. */
static long pattern(const char *name, const char *seed) {
    struct tensor *tensor = tensor_of(name);
    uint32_t value = (uint32_t)strtoul(seed, NULL, 10);
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = 0; at < tensor->bytes && result == CUDA_SUCCESS; at += PIECE_BYTES) {
        CUdeviceptr piece = tensor->address + at;
        uint64_t words_left = (tensor->bytes - at) / 4;
        uint64_t count = words_left < PIECE_BYTES / 4 ? words_left : PIECE_BYTES / 4;
        void *arguments[] = {&piece, &value, &count};
        result = cuLaunchKernel(gpu.fill, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
        value++;
    }
    return result;
}

/* Prints the checksum; its result is that of the launch and of the wait for it. */
static long sum(const char *name) {
    struct tensor *tensor = tensor_of(name);
    uint64_t count = tensor->bytes / 4;
    CUdeviceptr out;
    if (tensor->sum == NULL) {
        void *memory;
        check(cuMemHostAlloc(&memory, 8, CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
        tensor->sum = memory;
    }
    check(cuMemHostGetDevicePointer(&out, tensor->sum, 0), "cuMemHostGetDevicePointer");
    void *arguments[] = {&out, &tensor->address, &count};
    CUresult result = cuLaunchKernel(gpu.checksum, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
    if (result == CUDA_SUCCESS) result = cuCtxSynchronize();
    printf("checksum %s %llu\n", name, (unsigned long long)*tensor->sum);
    return result;
}

/* ---- managed tensors: what the host does, and what is said about them; "part" is a half ---- */

static CUmemLocation location_of(const char *place) {
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_HOST};
    if (place != NULL && place[0] != 'h')
        location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, {atoi(place)}};
    return location;
}

static uint64_t part_of(const struct tensor *tensor, const char *part) {
    return part != NULL ? tensor->bytes / 2 : tensor->bytes;
}

/* The host writes the pattern of `pattern`. */
static long write_by_host(const char *name, const char *seed) {
    const struct tensor *tensor = tensor_of(name);
    uint32_t value = (uint32_t)strtoul(seed, NULL, 10);
    uint32_t *words_there = (uint32_t *)(uintptr_t)tensor->address;
    for (uint64_t i = 0; i < tensor->bytes / 4; i++)
        words_there[i] = value + (uint32_t)(i / (PIECE_BYTES / 4));
    return 0;
}

static long advise(const char *name, const char *advice, const char *place) {
    const struct tensor *tensor = tensor_of(name);
    return cuMemAdvise(tensor->address, part_of(tensor, place[1] ? place : NULL),
                       (CUmem_advise)atoi(advice), location_of(place));
}

static long prefetch(const char *name, const char *place, const char *part) {
    const struct tensor *tensor = tensor_of(name);
    return cuMemPrefetchAsync(tensor->address, part_of(tensor, part), location_of(place), 0, NULL);
}

static long range_attribute(const char *name, const char *attribute) {
    const struct tensor *tensor = tensor_of(name);
    int32_t value = -100;
    const CUresult result =
        cuMemRangeGetAttribute(&value, sizeof value, (CUmem_range_attribute)atoi(attribute),
                               tensor->address, tensor->bytes);
    printf("attribute %d\n", value);
    return result;
}

static long attach(const char *name, const char *stream, const char *flags) {
    return cuStreamAttachMemAsync(stream_of(stream), tensor_of(name)->address, 0,
                                  (unsigned)atoi(flags));
}

/* Makes and frees a tensor again and again; the first result that is not 0. */
static long churn(const char *name, const char *bytes, const char *count) {
    long result = 0;
    for (int i = 0; i < atoi(count) && result == 0; i++) {
        result = new_tensor(name, bytes);
        if (result == 0) result = drop_tensor(name);
    }
    return result;
}

/* What the driver tells a child, which has no contexts; -1 where that does not end by itself. */
static long fork_child(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr address;
        _exit(cuMemAlloc(&address, 4) == CUDA_SUCCESS);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

static long fail(const char *stream) {
    return cuLaunchKernel(gpu.assert_fail, 1, 1, 1, 1, 1, 1, 0, stream_of(stream), NULL, NULL);
}

static long capture(const char *stream, const char *mode) {
    CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                   CU_STREAM_CAPTURE_MODE_RELAXED};
    return cuStreamBeginCapture(stream_of(stream), modes[mode ? atoi(mode) : 0]);
}

/* The other name of the thread's own default stream. */
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *captured);

static long capture_by_null(void) {
    return cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static long end_capture(const char *stream) {
    CUgraph captured;
    CUresult result = stream == NULL ? cuStreamEndCapture_ptsz(NULL, &captured)
                                     : cuStreamEndCapture(stream_of(stream), &captured);
    return result ? result : (long)cuGraphInstantiateWithFlags(&graph, captured, 0);
}

/* The first stream waits for what the second one has, by an event. */
static long join(const char *waiting, const char *awaited) {
    CUevent event;
    CUresult result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = cuEventRecord(event, stream_of(awaited));
    return result ? result : (long)cuStreamWaitEvent(stream_of(waiting), event, 0);
}

/* A node that fills the tensor. It names its context, so none has to be current. */
static long add_node(const char *name) {
    CUgraph fills;
    CUgraphNode node;
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = tensor_of(name)->address, .elementSize = 4, .width = 1, .height = 1};
    check(cuGraphCreate(&fills, 0), "cuGraphCreate");
    return cuGraphAddMemsetNode(&node, fills, NULL, 0, &fill, gpu.context);
}

/* A function of the driver that no header has. */
static long call_new_function(void) {
    long (*function)(void) = (long (*)(void))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuBrandNew");
    return function != NULL ? function() : -1;
}

/* gpushare_NAME, as the Python side of a kernel finds it. */
static long hook(const char *name) {
    char symbol[64];
    snprintf(symbol, sizeof(symbol), "gpushare_%s", name);
    int (*function)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, symbol);
    return function ? function() : -1;
}

static long keep_by_hand(const char *hold_ms) {
    void (*function)(uint32_t) = (void (*)(uint32_t))dlsym(RTLD_DEFAULT, "gpushare_hold");
    if (function == NULL) return -1;
    function((uint32_t)strtoul(hold_ms, NULL, 10));
    return 0;
}

static long describe(void) {
    int (*function)(char *, size_t) =
        (int (*)(char *, size_t))dlsym(RTLD_DEFAULT, "gpushare_describe");
    char text[4096];
    if (function == NULL) return -1;
    function(text, sizeof(text));
    printf("description %s\n", text);
    return 0;
}

static long run(const char *command, const char *a, const char *b, const char *c) {
    if (strcmp(command, "open") == 0) return open_device(a);
    if (strcmp(command, "reset") == 0) return cuDevicePrimaryCtxReset(0);
    if (strcmp(command, "current") == 0) return cuCtxSetCurrent(gpu.context);
    if (strcmp(command, "create") == 0) return create(a, b);
    if (strcmp(command, "again") == 0) return again(a, b);
    if (strcmp(command, "destroy") == 0) return cuStreamDestroy(stream_of(a));
    if (strcmp(command, "spin") == 0) return spin(a, b, c);
    if (strcmp(command, "loop") == 0) return loop(a, b);
    if (strcmp(command, "looped") == 0) return atomic_load(&looped);
    if (strcmp(command, "twins") == 0) return twins(a, b);
    if (strcmp(command, "many") == 0) return many(a, b);
    if (strcmp(command, "poll") == 0) return poll_flag(a);
    if (strcmp(command, "rounds") == 0) return rounds(a, b, c);
    if (strcmp(command, "set") == 0) return set_flag(a);
    if (strcmp(command, "release") == 0) return release_flag();
    if (strcmp(command, "assert") == 0) return fail(a);
    if (strcmp(command, "capture") == 0) return capture(a, b);
    if (strcmp(command, "capture_by_null") == 0) return capture_by_null();
    if (strcmp(command, "join") == 0) return join(a, b);
    if (strcmp(command, "end_capture") == 0) return end_capture(a);
    if (strcmp(command, "node") == 0) return add_node(a);
    if (strcmp(command, "new_function") == 0) return call_new_function();
    if (strcmp(command, "replay") == 0) return cuGraphLaunch(graph, stream_of(a));
    if (strcmp(command, "alloc") == 0) return cuMemAlloc(&words, strtoull(a, NULL, 10));
    if (strcmp(command, "free") == 0) return cuMemFree(words);
    if (strcmp(command, "new") == 0) return new_tensor(a, b);
    if (strcmp(command, "drop") == 0) return drop_tensor(a);
    if (strcmp(command, "give") == 0) return give(a);
    if (strcmp(command, "pattern") == 0) return pattern(a, b);
    if (strcmp(command, "churn") == 0) return churn(a, b, c);
    if (strcmp(command, "fork") == 0) return fork_child();
    if (strcmp(command, "sum") == 0) return sum(a);
    if (strcmp(command, "write") == 0) return write_by_host(a, b);
    if (strcmp(command, "advise") == 0) return advise(a, b, c);
    if (strcmp(command, "prefetch") == 0) return prefetch(a, b, c);
    if (strcmp(command, "attribute") == 0) return range_attribute(a, b);
    if (strcmp(command, "attach") == 0) return attach(a, b, c);
    if (strcmp(command, "sync") == 0) return cuCtxSynchronize();
    if (strcmp(command, "hook") == 0) return hook(a);
    if (strcmp(command, "hold") == 0) return keep_by_hand(a);
    if (strcmp(command, "describe") == 0) return describe();
    if (strcmp(command, "namespace") == 0) return open_namespace(a);
    if (strcmp(command, "load") == 0) return dlopen(a, RTLD_NOW) == NULL;
    if (strcmp(command, "echo") == 0 || strcmp(command, "leave") == 0) return 0;
    return -1;
}

static void *work(void *pointer) {
    struct worker *self = pointer;
    FILE *commands = fdopen(self->pipe[0], "r");
    char line[256];
    while (fgets(line, sizeof(line), commands)) {
        char *rest;
        const char *command = strtok_r(line, " \n", &rest);
        const char *a = strtok_r(NULL, " \n", &rest);
        const char *b = strtok_r(NULL, " \n", &rest);
        const char *c = strtok_r(NULL, " \n", &rest);
        bool opens = strcmp(command, "open") == 0 || strcmp(command, "create") == 0;
        pthread_mutex_lock(&order);
        if (!opens) pthread_mutex_unlock(&order);
        long result = run(command, a, b, c);
        if (opens) pthread_mutex_unlock(&order);
        printf("%d %s %ld\n", self->number, command, result);
        fflush(stdout);
        if (strcmp(command, "leave") == 0) return NULL;
    }
    return NULL;
}

int main(void) {
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        if (pipe(workers[i].pipe) != 0) return 5;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    char line[256];
    while (fgets(line, sizeof(line), stdin)) {
        int number = line[0] - '0';
        if (strncmp(line + 2, "stop", 4) == 0) {
            atomic_store(&stop, 1);
        } else if (number >= 0 && number < THREADS) {
            if (write(workers[number].pipe[1], line + 2, strlen(line + 2)) < 0) return 6;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        close(workers[i].pipe[1]);
        pthread_join(workers[i].thread, NULL);
    }
    return 0;
}
