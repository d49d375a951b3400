/* A program that holds device memory, by commands, one a line; the answer is the command's name,
 * its CUresult, and what it found out. Commands are done in order by one thread, but for those that
 * begin with "!": they are done at once, whatever that thread waits for.
 *
 * What an allocation holds is known from a seed: each block of 2 MiB has a value of its own, so
 * that the checksum of it all, taken by a launch on the device, tells any block that is wrong,
 * stale or elsewhere. tests/support/memory_tenants.py computes the same sum without a device. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 16384
#define BLOCK_BYTES ((uint64_t)2 << 20)
#define ARGUMENTS_MAX 12

static struct {
    CUdevice device;
    CUcontext context;
    bool primary;
    CUfunction fill, checksum, spin, assert_fail;
    uint64_t *sum; /* pinned: a checksum needs no device memory of its own */
    CUdeviceptr sum_address;
} gpu;

static struct {
    CUdeviceptr address;
    uint64_t bytes;
    CUmemGenericAllocationHandle handle; /* mapped by ourselves; 0: not so */
    bool pooled;                         /* allocated in a stream */
    bool attached;                       /* another process's */
    CUarray array;
    CUgraphExec graph; /* that has allocated it */
} slots[SLOTS];

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) exit(4);
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(1, bytes + 1);
    if (text == NULL || fread(text, 1, bytes, file) != bytes) exit(4);
    fclose(file);
    return text;
}

static CUresult load(void) {
    CUmodule module;
    char *text = read_text(BUILTINS_PTX);
    CUresult result = cuModuleLoadData(&module, text);
    free(text);
    if (!result) result = cuModuleGetFunction(&gpu.fill, module, "fill");
    if (!result) result = cuModuleGetFunction(&gpu.checksum, module, "checksum");
    if (!result) result = cuModuleGetFunction(&gpu.spin, module, "spin");
    if (!result) result = cuModuleGetFunction(&gpu.assert_fail, module, "assert_fail");
    void *host = NULL;
    if (!result) result = cuMemHostAlloc(&host, sizeof *gpu.sum, CU_MEMHOSTALLOC_DEVICEMAP);
    gpu.sum = host;
    if (!result) result = cuMemHostGetDevicePointer(&gpu.sum_address, host, 0);
    return result;
}

/* `own`: a context beside the primary one. */
static CUresult open_device(int ordinal, bool own) {
    gpu.primary = !own;
    CUresult result = cuInit(0);
    if (!result) result = cuDeviceGet(&gpu.device, ordinal);
    if (!result && own) result = cuCtxCreate(&gpu.context, NULL, 0, gpu.device);
    if (!result && !own) result = cuDevicePrimaryCtxRetain(&gpu.context, gpu.device);
    if (!result) result = cuCtxSetCurrent(gpu.context);
    return result ? result : load();
}

static CUstream created_stream; /* a context's, made at its first use */

/* Plain memory goes with the context. Memory of the other kinds belongs to the device. */
static CUresult close_context(bool reset) {
    created_stream = NULL;
    for (int slot = 0; slot < SLOTS; slot++)
        if (slots[slot].handle == 0 && !slots[slot].pooled) slots[slot].bytes = 0;
    if (reset) return cuDevicePrimaryCtxReset(gpu.device);
    return gpu.primary ? cuDevicePrimaryCtxRelease(gpu.device) : cuCtxDestroy(gpu.context);
}

static uint32_t block_value(uint64_t seed, uint64_t block) {
    return ((uint32_t)seed * 2654435761u) ^ ((uint32_t)block * 2246822519u);
}

static CUresult fill_array(int slot, uint64_t seed);
static CUresult checksum_array(int slot, uint64_t *sum);

static CUresult fill(int slot, uint64_t seed) {
    if (slots[slot].array != NULL) return fill_array(slot, seed);
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = 0; at < slots[slot].bytes && !result; at += BLOCK_BYTES) {
        CUdeviceptr address = slots[slot].address + at;
        uint64_t left = slots[slot].bytes - at;
        uint32_t value = block_value(seed, at / BLOCK_BYTES);
        uint64_t words = (left < BLOCK_BYTES ? left : BLOCK_BYTES) / 4;
        void *arguments[] = {&address, &value, &words};
        result = cuLaunchKernel(gpu.fill, 64, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL);
    }
    return result ? result : cuCtxSynchronize();
}

static CUresult checksum(int slot, uint64_t *sum) {
    if (slots[slot].array != NULL) return checksum_array(slot, sum);
    uint64_t words = slots[slot].bytes / 4;
    void *arguments[] = {&gpu.sum_address, &slots[slot].address, &words};
    CUresult result = cuLaunchKernel(gpu.checksum, 1, 1, 1, 1024, 1, 1, 0, NULL, arguments, NULL);
    if (!result) result = cuCtxSynchronize();
    *sum = *gpu.sum;
    return result;
}

static CUresult spin(uint64_t nanoseconds) {
    void *arguments[] = {&nanoseconds};
    return cuLaunchKernel(gpu.spin, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

static CUresult allocate_plain(int slot, uint64_t bytes) {
    CUresult result = cuMemAlloc(&slots[slot].address, bytes);
    slots[slot].bytes = result ? 0 : bytes;
    return result;
}

/* ---- memory that is allocated in a stream ---- */

static CUstream stream_of(int slot) {
    if (slot % 2 == 0) return NULL;
    if (created_stream == NULL &&
        cuStreamCreate(&created_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return NULL;
    return created_stream;
}

static CUresult allocate_pooled(int slot, uint64_t bytes) {
    CUresult result = cuMemAllocAsync(&slots[slot].address, bytes, stream_of(slot));
    if (!result) result = cuStreamSynchronize(stream_of(slot));
    slots[slot].bytes = result ? 0 : bytes;
    slots[slot].pooled = !result;
    return result;
}

static CUresult release_pooled(int slot) {
    slots[slot].bytes = 0;
    slots[slot].pooled = false;
    return cuMemFreeAsync(slots[slot].address, stream_of(slot));
}

static CUresult allocate_managed(int slot, uint64_t bytes) {
    CUresult result = cuMemAllocManaged(&slots[slot].address, bytes, CU_MEM_ATTACH_GLOBAL);
    slots[slot].bytes = result ? 0 : bytes;
    return result;
}

/* ---- memory that the program makes and maps itself ---- */

#define MAPPED_UNIT ((uint64_t)2 << 20)

static uint64_t mapped_bytes(uint64_t bytes) {
    return (bytes + MAPPED_UNIT - 1) / MAPPED_UNIT * MAPPED_UNIT;
}

static CUmemAllocationProp mapped_properties(void) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.device},
    };
}

/* On failure nothing is left of it. */
static CUresult map_at_fresh_addresses(CUdeviceptr *address, uint64_t bytes,
                                       CUmemGenericAllocationHandle handle) {
    const CUmemAccessDesc access = {mapped_properties().location,
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr fresh;
    CUresult result = cuMemAddressReserve(&fresh, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    result = cuMemMap(fresh, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) {
        result = cuMemSetAccess(fresh, bytes, &access, 1);
        if (result == CUDA_SUCCESS) {
            *address = fresh;
            return result;
        }
        cuMemUnmap(fresh, bytes);
    }
    cuMemAddressFree(fresh, bytes);
    return result;
}

static CUresult allocate_mapped(int slot, uint64_t bytes) {
    const CUmemAllocationProp properties = mapped_properties();
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, mapped_bytes(bytes), &properties, 0);
    if (result != CUDA_SUCCESS) return result;
    result = map_at_fresh_addresses(&slots[slot].address, mapped_bytes(bytes), handle);
    if (result != CUDA_SUCCESS) {
        cuMemRelease(handle);
        return result;
    }
    slots[slot].bytes = bytes;
    slots[slot].handle = handle;
    return result;
}

static CUresult unmap(CUdeviceptr address, uint64_t bytes) {
    const CUresult result = cuMemUnmap(address, mapped_bytes(bytes));
    return result != CUDA_SUCCESS ? result : cuMemAddressFree(address, mapped_bytes(bytes));
}

/* To other addresses, where it is for a while at both. */
static CUresult move_mapped(int slot) {
    const CUdeviceptr before = slots[slot].address;
    const CUresult result = map_at_fresh_addresses(
        &slots[slot].address, mapped_bytes(slots[slot].bytes), slots[slot].handle);
    return result != CUDA_SUCCESS ? result : unmap(before, slots[slot].bytes);
}

static CUresult release_mapped(int slot) {
    const CUmemGenericAllocationHandle handle = slots[slot].handle;
    const CUresult result = unmap(slots[slot].address, slots[slot].bytes);
    slots[slot].bytes = 0;
    slots[slot].handle = 0;
    return result != CUDA_SUCCESS ? result : cuMemRelease(handle);
}

/* Nobody gets it: from its export on the memory may be anybody's. */
static CUresult export_mapped(int slot) {
    int descriptor = -1;
    const CUresult result = cuMemExportToShareableHandle(
        &descriptor, slots[slot].handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS) close(descriptor);
    return result;
}

#include "memory_kinds.h"

static CUresult release(int slot) {
    if (slots[slot].array != NULL) return release_array(slot);
    if (slots[slot].graph != NULL) return release_in_graph(slot);
    if (slots[slot].attached) return detach(slot);
    if (slots[slot].handle != 0) return release_mapped(slot);
    if (slots[slot].pooled) return release_pooled(slot);
    slots[slot].bytes = 0;
    return cuMemFree(slots[slot].address); /* the address stays: it can be freed twice */
}

/* How `alloc` and its kin allocate. */
static CUresult (*allocate)(int slot, uint64_t bytes) = allocate_plain;

static long choose_kind(uint64_t kind) {
    static CUresult (*const KINDS[])(int slot, uint64_t bytes) = {
        allocate_plain, allocate_mapped, allocate_pooled, allocate_managed};
    allocate = KINDS[kind % 4];
    return 0;
}

/* The child of a process that has CUDA has none; it must be able to say so, and to end. */
static long fork_child(void) {
    pid_t child = fork();
    if (child == 0) {
        int count = 0;
        _exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

/* What the Python side of a kernel tells the hook; -1 without one. */
static long tell_hook(const char *symbol) {
    void (*function)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, symbol);
    if (function == NULL) return -1;
    function();
    return 0;
}

static long cancel_waits(char *found, size_t size) {
    int (*function)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "gpushare_cancel_waits");
    if (function == NULL) return -1;
    snprintf(found, size, " %d", function());
    return 0;
}

static CUresult all_sums(char *found, size_t size) {
    CUresult result = CUDA_SUCCESS;
    size_t length = 0;
    for (int slot = 0; slot < SLOTS && !result; slot++) {
        uint64_t sum;
        if (slots[slot].bytes == 0) continue;
        result = checksum(slot, &sum);
        if (!result && length < size)
            length += (size_t)snprintf(found + length, size - length, " %d:%" PRIu64, slot, sum);
    }
    return result;
}

/* Many small ones, as a framework has them. */
static CUresult allocate_many(uint64_t count, uint64_t bytes) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t i = 0; i < count && !result; i++)
        result = allocate((int)i, bytes);
    return result;
}

static CUresult pair(uint64_t bytes) {
    CUdeviceptr address;
    CUresult result = cuMemAlloc(&address, bytes);
    return result ? result : cuMemFree(address);
}

static CUresult pair_in_stream(uint64_t bytes) {
    CUdeviceptr address;
    CUresult result = cuMemAllocAsync(&address, bytes, NULL);
    return result ? result : cuMemFreeAsync(address, NULL);
}

/* The addresses stay reserved from one to the next: frameworks keep theirs. */
static CUresult pair_mapped(uint64_t bytes) {
    static CUdeviceptr address;
    static uint64_t reserved;
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.device};
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    const CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUresult result = CUDA_SUCCESS;
    if (reserved < bytes) {
        if (reserved > 0) result = cuMemAddressFree(address, reserved);
        if (!result) result = cuMemAddressReserve(&address, bytes, 0, 0, 0);
        reserved = result ? 0 : bytes;
    }
    if (!result) result = cuMemCreate(&handle, bytes, &prop, 0);
    if (result) return result;
    result = cuMemMap(address, bytes, 0, handle, 0);
    if (!result) result = cuMemSetAccess(address, bytes, &access, 1);
    CUresult ended = cuMemUnmap(address, bytes);
    if (!result) result = ended;
    ended = cuMemRelease(handle);
    return result ? result : ended;
}

/* How long an allocation and its free take together, in nanoseconds, so many times. */
static CUresult timed_pairs(CUresult (*one)(uint64_t), const uint64_t *a, char *found,
                            size_t size) {
    CUresult result = CUDA_SUCCESS;
    size_t length = 0;
    for (uint64_t i = 0; i < a[0] && !result; i++) {
        uint64_t began_ns = now_ns();
        result = one(a[1]);
        uint64_t took_ns = now_ns() - began_ns;
        if (length < size)
            length += (size_t)snprintf(found + length, size - length, " %" PRIu64, took_ns);
    }
    return result;
}

/* So many allocations that stay, beside those in slots. */
static CUresult allocate_ballast(uint64_t count, uint64_t bytes) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t i = 0; i < count && !result; i++) {
        CUdeviceptr address;
        result = cuMemAlloc(&address, bytes);
    }
    return result;
}

#define QUESTIONS_MAX 4000000

static _Atomic bool enough;

static int by_time(const void *one, const void *other) {
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

/* Asks about the allocation's addresses until "!enough"; what 99 of 100 questions (the latest,
 * where there are too many to remember) took at most, in nanoseconds, and how many there were. */
static CUresult timed_questions(int slot, char *found, size_t size) {
    uint32_t *took_ns = malloc(QUESTIONS_MAX * sizeof *took_ns);
    size_t asked = 0;
    CUresult result = took_ns ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    atomic_store(&enough, false);
    while (!atomic_load(&enough) && !result) {
        CUmemorytype type;
        CUdeviceptr address = slots[slot].address + asked * 4096 % slots[slot].bytes;
        uint64_t began_ns = now_ns();
        result = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
        took_ns[asked++ % QUESTIONS_MAX] = (uint32_t)(now_ns() - began_ns);
    }
    size_t count = asked < QUESTIONS_MAX ? asked : QUESTIONS_MAX;
    if (count > 0) qsort(took_ns, count, sizeof *took_ns, by_time);
    snprintf(found, size, " %u %zu", count ? took_ns[count - 1 - count / 100] : 0, asked);
    free(took_ns);
    return result;
}

static CUresult stop_asking(void) {
    atomic_store(&enough, true);
    return CUDA_SUCCESS;
}

static CUresult memory_info(char *found, size_t size) {
    size_t free_bytes = 0;
    size_t total = 0;
    CUresult result = cuMemGetInfo(&free_bytes, &total);
    snprintf(found, size, " %zu %zu", free_bytes, total);
    return result;
}

/* When the launch was asked for, when it was let through, and when it was over. */
static CUresult stamp(char *found, size_t size) {
    uint64_t asked_ns = now_ns();
    CUresult result = spin(0);
    uint64_t through_ns = now_ns();
    if (!result) result = cuCtxSynchronize();
    snprintf(found, size, " %" PRIu64 " %" PRIu64 " %" PRIu64, asked_ns, through_ns, now_ns());
    return result;
}

/* An allocation, with the times before and after it. */
static CUresult timed_allocation(int slot, uint64_t bytes, char *found, size_t size) {
    uint64_t asked_ns = now_ns();
    CUresult result = allocate(slot, bytes);
    snprintf(found, size, " %" PRIu64 " %" PRIu64, asked_ns, now_ns());
    return result;
}

/* Of the first slots. */
static CUresult release_many(uint64_t count) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t i = 0; i < count && !result; i++)
        result = release((int)i);
    return result;
}

/* Each from a seed of its own. */
static CUresult fill_many(uint64_t count, uint64_t seed) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t i = 0; i < count && !result; i++)
        result = fill((int)i, seed + i);
    return result;
}

/* Memory as the device has it, without a launch: the first word. */
static CUresult first_word(int slot, char *found, size_t size) {
    uint32_t word = 0;
    CUresult result = cuMemcpyDtoH(&word, slots[slot].address, sizeof word);
    snprintf(found, size, " %" PRIu32, word);
    return result;
}

static long end_of_cell(char *found, size_t size) {
    snprintf(found, size, " %" PRIu64, now_ns());
    return tell_hook("gpushare_cell_ended");
}

/* The calling thread alone runs on that CPU; on those of before without one. */
static int pin(const uint64_t *cpu) {
    static cpu_set_t before;
    if (cpu == NULL) return sched_setaffinity(0, sizeof before, &before);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((int)*cpu, &one);
    if (sched_getaffinity(0, sizeof before, &before) != 0) return -1;
    return sched_setaffinity(0, sizeof one, &one);
}

/* What a program should not do: by numbers that may mean anything. */
static CUresult give_back(const char *command, const uint64_t *a, bool *known) {
    *known = true;
    if (strcmp(command, "free_at") == 0) return cuMemFree(a[0]);
    if (strcmp(command, "free_async_at") == 0) return cuMemFreeAsync(a[0], NULL);
    if (strcmp(command, "unmap_at") == 0) return cuMemUnmap(a[0], a[1]);
    if (strcmp(command, "release_at") == 0) return cuMemRelease(a[0]);
    if (strcmp(command, "unreserve_at") == 0) return cuMemAddressFree(a[0], a[1]);
    if (strcmp(command, "forget") == 0) {
        slots[a[0] % SLOTS].bytes = 0; /* it was given back by its numbers */
        return CUDA_SUCCESS;
    }
    *known = false;
    return CUDA_SUCCESS;
}

static CUresult set_up(const char *command, uint64_t a, bool *known) {
    *known = true;
    if (strcmp(command, "open") == 0) return open_device((int)a, false);
    if (strcmp(command, "open_own") == 0) return open_device((int)a, true);
    if (strcmp(command, "reset") == 0) return close_context(true);
    if (strcmp(command, "close") == 0) return close_context(false);
    *known = false;
    return CUDA_SUCCESS;
}

static long perform(const char *command, const uint64_t *a, char *found, size_t size) {
    bool known = false;
    CUresult result = set_up(command, a[0], &known);
    int slot = (int)(a[0] % SLOTS);
    uint64_t sum = 0;
    if (!known) result = give_back(command, a, &known);
    if (!known) result = work_with_kinds(command, a, found, size, &known);
    if (known) return result;
    if (strcmp(command, "alloc") == 0) return allocate(slot, a[1]);
    if (strcmp(command, "kind") == 0) return choose_kind(a[0]);
    if (strcmp(command, "map") == 0) return allocate_mapped(slot, a[1]);
    if (strcmp(command, "pool") == 0) return allocate_pooled(slot, a[1]);
    if (strcmp(command, "managed") == 0) return allocate_managed(slot, a[1]);
    if (strcmp(command, "move") == 0) return move_mapped(slot);
    if (strcmp(command, "export") == 0) return export_mapped(slot);
    if (strcmp(command, "alloc_timed") == 0) return timed_allocation(slot, a[1], found, size);
    if (strcmp(command, "alloc_many") == 0) return allocate_many(a[0], a[1]);
    if (strcmp(command, "free_many") == 0) return release_many(a[0]);
    if (strcmp(command, "fill_many") == 0) return fill_many(a[0], a[1]);
    if (strcmp(command, "questions") == 0) return timed_questions(slot, found, size);
    if (strcmp(command, "enough") == 0) return stop_asking();
    if (strcmp(command, "ballast") == 0) return allocate_ballast(a[0], a[1]);
    if (strcmp(command, "pairs") == 0) return timed_pairs(pair, a, found, size);
    if (strcmp(command, "pairs_async") == 0) return timed_pairs(pair_in_stream, a, found, size);
    if (strcmp(command, "pairs_mapped") == 0) return timed_pairs(pair_mapped, a, found, size);
    if (strcmp(command, "free") == 0) return release(slot);
    if (strcmp(command, "fill") == 0) return fill(slot, a[1]);
    if (strcmp(command, "sums") == 0) return all_sums(found, size);
    if (strcmp(command, "word") == 0) return first_word(slot, found, size);
    if (strcmp(command, "address") == 0)
        return snprintf(found, size, " %" PRIu64, (uint64_t)slots[slot].address) < 0;
    if (strcmp(command, "handle") == 0)
        return snprintf(found, size, " %" PRIu64, (uint64_t)slots[slot].handle) < 0;
    if (strcmp(command, "spin") == 0) return spin(a[0]);
    if (strcmp(command, "sync") == 0) return cuCtxSynchronize();
    if (strcmp(command, "stamp") == 0) return stamp(found, size);
    if (strcmp(command, "info") == 0) return memory_info(found, size);
    if (strcmp(command, "pin") == 0) return pin(&a[0]);
    if (strcmp(command, "unpin") == 0) return pin(NULL);
    if (strcmp(command, "fork") == 0) return fork_child();
    if (strcmp(command, "begin") == 0) return tell_hook("gpushare_cell_began");
    if (strcmp(command, "end") == 0) return end_of_cell(found, size);
    if (strcmp(command, "cancel") == 0) return cancel_waits(found, size);
    if (strcmp(command, "assert") == 0)
        return cuLaunchKernel(gpu.assert_fail, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    if (strcmp(command, "checksum") == 0) {
        result = checksum(slot, &sum);
        snprintf(found, size, " %" PRIu64, sum);
        return result;
    }
    return -1;
}

static void answer(char *line) {
    const size_t size = SLOTS * 32; /* a slot and its sum */
    static _Thread_local char *found;
    if (found == NULL) found = malloc(size);
    if (found == NULL) exit(4);
    char *rest = NULL;
    const char *command = strtok_r(line, " \n", &rest);
    uint64_t arguments[ARGUMENTS_MAX] = {0};
    if (command == NULL) return;
    for (int i = 0; i < ARGUMENTS_MAX; i++) {
        const char *text = strtok_r(NULL, " \n", &rest);
        if (text != NULL) arguments[i] = strtoull(text, NULL, 10);
    }
    found[0] = '\0';
    long result = perform(command, arguments, found, size);
    printf("%s %ld%s\n", command, result, found);
    fflush(stdout);
}

static void *work(void *pipe) {
    FILE *commands = fdopen(*(int *)pipe, "r");
    char line[512];
    while (fgets(line, sizeof line, commands))
        answer(line);
    return NULL;
}

int main(void) {
    int commands[2];
    pthread_t worker;
    char line[512];
    if (pipe(commands) != 0 || pthread_create(&worker, NULL, work, &commands[0]) != 0) return 5;
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == '!') {
            answer(line + 1);
        } else if (write(commands[1], line, strlen(line)) < 0) {
            return 6;
        }
    }
    close(commands[1]);
    pthread_join(worker, NULL);
    return 0;
}
