/* A libcuda.so.1 and a libnvidia-ml.so.1 in one, with the functions that hand out memory and
 * contexts: each answers success with a fresh address or handle, and does nothing else.
 * MEMORY_DRIVER_FAIL=NAME makes that one function answer out-of-memory. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long address;

#define DEVICE_BYTES (16ull << 30)
#define FREE_BYTES (10ull << 30)
#define PITCH 512

static address next_address = 0x700000000000;
static int capturing;

static int fails(const char *function) {
    const char *name = getenv("MEMORY_DRIVER_FAIL");
    return name != NULL && strcmp(name, function) == 0 ? 2 : 0;
}

static int hand_out(const char *function, address *to) {
    if (fails(function)) return 2;
    *to = next_address;
    next_address += 1 << 21;
    return 0;
}

#define SUCCEEDS(name)       \
    int name(void) {         \
        return fails(#name); \
    }
#define HANDS_OUT(name, ...)               \
    int name(address *to, ##__VA_ARGS__) { \
        return hand_out(#name, to);        \
    }

SUCCEEDS(cuInit)
SUCCEEDS(cuStreamQuery)
SUCCEEDS(cuStreamGetFlags)
SUCCEEDS(cuEventRecord)
SUCCEEDS(cuEventQuery)
SUCCEEDS(cuEventDestroy_v2)
SUCCEEDS(cuThreadExchangeStreamCaptureMode)
SUCCEEDS(cuGetErrorName)
SUCCEEDS(cuDeviceGetName)
SUCCEEDS(cuCtxPushCurrent_v2)
SUCCEEDS(cuCtxPopCurrent_v2)
SUCCEEDS(cuMemFree_v2)
SUCCEEDS(cuMemFreeAsync)
SUCCEEDS(cuArrayDestroy)
SUCCEEDS(cuMipmappedArrayDestroy)
SUCCEEDS(cuMemRelease)
SUCCEEDS(cuMemMap)
SUCCEEDS(cuMemUnmap)
SUCCEEDS(cuMemSetAccess)
SUCCEEDS(cuMemExportToShareableHandle)
SUCCEEDS(cuMemPoolDestroy)
SUCCEEDS(cuIpcGetMemHandle)
SUCCEEDS(cuIpcCloseMemHandle)
SUCCEEDS(cuCtxDestroy_v2)
SUCCEEDS(cuGreenCtxDestroy)
SUCCEEDS(cuCtxSynchronize)
SUCCEEDS(cuStreamDestroy_v2)

HANDS_OUT(cuMemAlloc_v2)
HANDS_OUT(cuMemAllocManaged)
HANDS_OUT(cuMemAllocAsync)
HANDS_OUT(cuMemAllocFromPoolAsync)
HANDS_OUT(cuMemCreate)
HANDS_OUT(cuArrayCreate_v2)
HANDS_OUT(cuArray3DCreate_v2)
HANDS_OUT(cuMipmappedArrayCreate)
HANDS_OUT(cuMemPoolCreate)
HANDS_OUT(cuEventCreate)
HANDS_OUT(cuStreamCreate)
HANDS_OUT(cuCtxCreate_v2)
HANDS_OUT(cuGreenCtxCreate)

int cuMemAllocPitch_v2(address *to, size_t *pitch) {
    *pitch = PITCH;
    return hand_out("cuMemAllocPitch_v2", to);
}

int cuMemRetainAllocationHandle(address *handle, address mapped_at) {
    (void)mapped_at;
    return hand_out("cuMemRetainAllocationHandle", handle);
}

int cuIpcOpenMemHandle_v2(address *to) {
    return hand_out("cuIpcOpenMemHandle_v2", to);
}

int cuMemGetInfo_v2(size_t *bytes_free, size_t *bytes_total) {
    *bytes_free = FREE_BYTES;
    *bytes_total = DEVICE_BYTES;
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes) {
    *bytes = DEVICE_BYTES;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return getenv("MEMORY_DRIVER_NO_CUDA") != NULL ? 3 : ordinal == 0 ? 0 : 101;
}

int cuDeviceGetUuid_v2(unsigned char *uuid) {
    for (int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)(i * 17);
    return 0;
}

int cuCtxGetDevice(int *device) {
    *device = 0;
    return getenv("MEMORY_DRIVER_NO_CONTEXT") != NULL ? 201 : 0;
}

static void *current_context = (void *)0x1000;

int cuCtxGetCurrent(void **context) {
    *context = current_context;
    return 0;
}

int cuCtxSetCurrent(void *context) {
    current_context = context;
    return 0;
}

int cuCtxFromGreenCtx(void **context, void *green) {
    *context = (char *)green + 8;
    return 0;
}

/* As the driver does, a reset ends the primary context and takes none of its holders away. */
static int primary_references, primary_active;
static unsigned long long primary_id;

int cuDevicePrimaryCtxRetain(void **context) {
    *context = (void *)0x1000;
    primary_references++;
    if (!primary_active) primary_id++;
    primary_active = 1;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(void) {
    if (primary_references == 0) return 201;
    if (--primary_references == 0) primary_active = 0;
    return 0;
}

int cuDevicePrimaryCtxReset_v2(void) {
    primary_active = 0;
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = primary_active;
    return 0;
}

int cuCtxGetId(void *context, unsigned long long *id) {
    *id = context == (void *)0x1000 ? primary_id : (uintptr_t)context;
    return context == (void *)0x1000 && !primary_active ? 709 : 0;
}

int cuStreamGetCtx(void *stream, void **context) {
    (void)stream;
    return cuCtxGetCurrent(context);
}

int cuStreamIsCapturing(void *stream, int *status) {
    (void)stream;
    *status = capturing;
    return 0;
}

int cuStreamBeginCapture_v2(void *stream) {
    (void)stream;
    if (fails("cuStreamBeginCapture_v2")) return 401;
    capturing = 1;
    return 0;
}

int cuStreamEndCapture(void *stream, void **graph) {
    (void)stream;
    *graph = NULL;
    capturing = 0;
    return 0;
}

/* NVML: one device, held by this process, its parent and a stranger. */
struct memory_v1 {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};
struct process {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
    (void)device;
    strncpy(uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff", length);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory_v1 *memory) {
    (void)device;
    *memory = (struct memory_v1){DEVICE_BYTES, FREE_BYTES, DEVICE_BYTES - FREE_BYTES};
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    (void)device;
    *memory = (struct memory_v2){2, DEVICE_BYTES, 1ull << 30, FREE_BYTES, 5ull << 30};
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count,
                                            struct process *processes) {
    (void)device;
    const unsigned int pids[] = {1, (unsigned int)getppid(), (unsigned int)getpid()};
    for (unsigned int i = 0; i < 3; i++)
        processes[i] = (struct process){pids[i], 7ull << 20, 0xffffffff, 0xffffffff};
    *count = 3;
    return 0;
}
