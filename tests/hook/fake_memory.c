/* Stands for residency.c, mover.c, host_arena.c and what of the runtime backing.c asks, in the
 * surface tests. FAKE_SWAP=1: memory follows the turn. FAKE_CLAIM=refused or cancelled is what a
 * claim answers; FAKE_ROOM=0 to 3: there is nobody to make room, none is made, it is, or the wait
 * is cancelled. FAKE_USABLE: the usable bytes of the device.
 *
 * gpushare_fake_park and gpushare_fake_restore do at once what the mover does in the background. */
#include <cuda.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "allocate/shortage.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/hold.h"
#include "base/wait.h"
#include "device/contexts.h"
#include "device/peers.h"
#include "device/streams.h"
#include "fake_trace.h"
#include "memory/blocks.h"
#include "memory/chunks.h"
#include "memory/device_memory.h"
#include "memory/physical.h"
#include "memory/registry.h"
#include "sharing/ipc.h"
#include "swap/host_arena.h"
#include "swap/mover.h"
#include "swap/residency.h"
#include "swap/wholes.h"

#define EXPORT __attribute__((visibility("default")))

bool ending_has_begun(void) {
    return fake_number("FAKE_EXIT") != 0;
}

bool ending_driver_use_begin(void) {
    return !ending_has_begun();
}

void ending_driver_use_end(void) {}

/* Nobody cancels it. */
bool wait_for(const struct wait_condition *condition, const char *call_name) {
    (void)call_name;
    while (!condition->holds(condition->argument) && clock_now_ns() < condition->until_ns)
        clock_sleep_ns(1000000);
    return true;
}

bool residency_swaps(void) {
    return fake_number("FAKE_SWAP") != 0;
}

uint64_t residency_usable(int device) {
    (void)device;
    return getenv("FAKE_USABLE") != NULL ? fake_number("FAKE_USABLE") : RESIDENCY_UNLIMITED;
}

enum residency_answer residency_claim(int device, uint64_t bytes, const char *call_name,
                                      bool inside) {
    (void)inside;
    if (!residency_swaps()) return RESIDENCY_AT_GATE;
    fake_trace("claim %d %llu %s\n", device, (unsigned long long)bytes, call_name);
    const char *answer = getenv("FAKE_CLAIM");
    if (answer == NULL) return RESIDENCY_FITS;
    return strcmp(answer, "refused") == 0 ? RESIDENCY_REFUSED : RESIDENCY_CANCELLED;
}

void residency_claim_passed(int device, uint64_t bytes) {
    (void)device, (void)bytes;
}

void residency_unclaim(int device, uint64_t bytes, bool waits) {
    (void)waits;
    HOLD(LOCK_MEMORY);
    registry_unclaim_locked(device, bytes);
}

/* What is asked for when the driver says nothing of what it has free. */
enum shortage_answer shortage_ask(const struct shortage *shortage) {
    uint64_t bytes = shortage->bytes + shortage->bytes_extra;
    if (bytes < shortage->bytes_least) bytes = shortage->bytes_least;
    fake_trace("room %d %llu %s\n", shortage->device, (unsigned long long)bytes,
               shortage->call_name);
    return (enum shortage_answer)fake_number("FAKE_ROOM");
}

void mover_freed(void) {}

void mover_look(void) {}

/* Nobody is there to do it. */
enum physical_whole wholes_make(uint64_t number, const char *call_name) {
    fake_trace("whole %d %s\n", physical_whole(number, false), call_name);
    return WHOLE_STAYS;
}

void residency_memory_changed(void) {}

void mover_forget_context(void *context) {
    fake_trace("mover_forgets %d\n", context != NULL);
}

void host_arena_forget_context(uint64_t context) {
    fake_trace("arena_forgets %d\n", context != 0);
}

void host_arena_give(void *host, uint64_t bytes) {
    fake_trace("host_given %llu\n", (unsigned long long)bytes);
    free(host);
}

/* Copies as the mover does: in a stream of its own, without a word to those that capture. */
static bool copy(const struct chunk *chunk, bool outward) {
    const struct driver *cuda = driver_get();
    const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
    const uint64_t address = device_memory_copied_at(chunk);
    CUstream stream = NULL;
    CUresult result = cuda->stream_create(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = outward ? cuda->copy_to_host(chunk->host, address, chunk->bytes, stream)
                         : cuda->copy_to_device(address, chunk->host, chunk->bytes, stream);
    while (result == CUDA_SUCCESS && cuda->stream_query(stream) == CUDA_ERROR_NOT_READY)
        sched_yield();
    if (stream != NULL) cuda->stream_destroy(stream);
    driver_relaxed_end(cuda, mode);
    return result == CUDA_SUCCESS;
}

static void forget_in_child(void) {
    locks_after_fork_in_child();
    chunks_after_fork();
    blocks_after_fork();
    physical_after_fork();
    registry_after_fork();
    contexts_after_fork();
    ipc_after_fork();
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

static struct chunk *claimed(struct chunk *(*claim_locked)(int device), int device) {
    lock_take(LOCK_MEMORY);
    struct chunk *chunk = claim_locked(device);
    lock_release(LOCK_MEMORY);
    return chunk;
}

/* Puts every chunk of the device that can be moved into host memory. Returns how many. */
EXPORT int gpushare_fake_park(int device) {
    struct chunk *chunk;
    int parked = 0;
    while ((chunk = claimed(chunks_claim_leaving_locked, device)) != NULL) {
        chunk->host = malloc(chunk->bytes);
        if (device_memory_open(chunk) != CUDA_SUCCESS || !copy(chunk, true)) return -1;
        if (device_memory_take_off(chunk) != CUDA_SUCCESS) return -1;
        device_memory_close(chunk);
        chunks_settle(chunk, CHUNK_PARKED);
        parked++;
    }
    return parked;
}

/* Brings all of them back. */
EXPORT int gpushare_fake_restore(int device) {
    struct chunk *chunk;
    int restored = 0;
    while ((chunk = claimed(chunks_claim_coming_locked, device)) != NULL) {
        if (device_memory_open(chunk) != CUDA_SUCCESS) return -1;
        if (device_memory_put(chunk) != CUDA_SUCCESS) return -1;
        if (device_memory_give_accesses(chunk) != CUDA_SUCCESS) return -1;
        if (!copy(chunk, false)) return -1;
        device_memory_close(chunk);
        chunks_settle(chunk, CHUNK_BACK);
        restored++;
    }
    chunks_confirm_back(device, false, host_arena_give);
    return restored;
}

/* The streams that are known, and the captures. */
EXPORT void gpushare_fake_streams(int *streams, int *captures) {
    lock_take(LOCK_STREAMS);
    *streams = (int)streams_tables()->streams_used;
    *captures = (int)streams_tables()->captures_used;
    lock_release(LOCK_STREAMS);
}

/* Resident and parked, in granules of 2 MiB. */
EXPORT void gpushare_fake_sums(int device, int *resident, int *parked) {
    const struct chunk_sums sums = chunks_sums_of(device);
    *resident = (int)(sums.bytes_resident / CHUNK_GRANULE);
    *parked = (int)(sums.bytes_parked / CHUNK_GRANULE);
}
