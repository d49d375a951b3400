#include "allocate/backing.h"

#include <stdlib.h>

#include "allocate/making.h"
#include "allocate/memory.h"
#include "base/driver.h"
#include "base/ending.h"
#include "device/contexts.h"
#include "device/failure.h"
#include "device/peers.h"
#include "device/streams.h"
#include "gate/gate.h"
#include "gate/work.h"
#include "memory/blocks.h"
#include "memory/device_memory.h"
#include "memory/pooled.h"
#include "memory/slab.h"
#include "swap/mover.h"
#include "swap/residency.h"

/* No device has so much; sums of sizes below it do not overflow. */
#define BYTES_BEYOND_ALL ((uint64_t)1 << 46)
#define PITCH_ALIGNMENT 512u

struct request {
    const char *call_name;
    uint64_t bytes;       /* as asked for */
    uint64_t block_bytes; /* to be mapped when there is no room in a slab */
    uint64_t address;     /* of what was made */
    void *context;
    uint64_t generation;
    int device;
};

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* ---- mapping ----------------------------------------------------------------------------------
 */

/* The next chunk of a block of which so much is left. As large as can be: each mapping waits for a
 * time slice of the copy engines while another process copies. */
static uint64_t next_chunk_bytes(uint64_t left) {
    return left < CHUNK_BYTES_MAX ? left : CHUNK_BYTES_MAX;
}

static size_t chunk_count(uint64_t bytes) {
    size_t count = 0;
    for (uint64_t left = bytes; left > 0; count++)
        left -= next_chunk_bytes(left);
    return count;
}

static void drop_chunks(struct block *block) {
    for (size_t i = 0; i < block->piece_count; i++)
        making_drop_chunk(&block->pieces[i].chunk);
}

/* A block for the request with nothing in it; NULL: no host memory. */
static struct block *empty_block(const struct request *request, uint64_t address) {
    const size_t count = chunk_count(request->block_bytes);
    struct block *block = calloc(1, sizeof *block + count * sizeof block->pieces[0]);
    if (block == NULL) return NULL;
    block->address = address;
    block->bytes = request->block_bytes;
    block->bytes_requested = request->bytes;
    block->context = request->context;
    block->generation = request->generation;
    block->device = request->device;
    block->piece_count = count;
    uint64_t at = address;
    for (size_t i = 0; i < count; i++) {
        struct piece *piece = &block->pieces[i];
        const uint64_t left = block->bytes - (at - address);
        const uint64_t bytes = next_chunk_bytes(left);
        piece->mapping =
            (struct mapping){.address = at, .bytes = bytes, .chunk = &piece->chunk, .block = block};
        piece->chunk = (struct chunk){.mappings = &piece->mapping,
                                      .bytes = bytes,
                                      .context = block->context,
                                      .device = block->device};
        at += bytes;
    }
    return block;
}

/* Over the whole range at once. */
static CUresult set_access(const struct block *block) {
    return device_memory_give_access(block->address, block->bytes, block->device, block->device);
}

/* Gives the block its memory; on failure it has none. */
static CUresult fill_block(struct block *block) {
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < block->piece_count && result == CUDA_SUCCESS; i++)
        result = device_memory_put(&block->pieces[i].chunk);
    if (result == CUDA_SUCCESS) result = set_access(block);
    if (result != CUDA_SUCCESS) drop_chunks(block);
    return result;
}

/* Fills the block and enters it into the tables. */
static CUresult enter_block(struct block *block, uint32_t small_bytes) {
    const unsigned int peers_before = peers_changes();
    const CUresult result = fill_block(block);
    if (result != CUDA_SUCCESS) return result;
    if (!blocks_add(block, small_bytes)) {
        drop_chunks(block);
        return MAKING_NO_HOST_MEMORY;
    }
    /* A peer that was enabled meanwhile did not find the block in the table. */
    if (peers_changes() != peers_before) set_access(block);
    return CUDA_SUCCESS;
}

/* A block of its own for the request, or a slab with the request in it. */
static CUresult make_block(void *argument) {
    struct request *request = argument;
    const struct driver *cuda = driver_get();
    const bool small = request->bytes <= SLAB_ALLOCATION_BYTES_MAX;
    CUdeviceptr reserved = 0;
    CUresult result = cuda->address_reserve(&reserved, request->block_bytes, CHUNK_GRANULE, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    struct block *block = empty_block(request, reserved);
    result = block == NULL ? MAKING_NO_HOST_MEMORY
                           : enter_block(block, small ? (uint32_t)request->bytes : 0);
    if (result == CUDA_SUCCESS) {
        request->address = reserved;
        return result;
    }
    free(block);
    cuda->address_free(reserved, request->block_bytes);
    return result;
}

typedef void (*gone_function)(uint64_t block_address);
static _Atomic(gone_function) on_gone;

void backing_on_gone(void (*forget)(uint64_t block_address)) {
    atomic_store(&on_gone, forget);
}

/* Takes a block off the device, or out of host memory, and gives its addresses back. Nobody may be
 * given them again before all tables have forgotten them. What is left when the process ends goes
 * with it. */
static void give_back(struct block *block) {
    const struct driver *cuda = driver_get();
    const uint64_t address = block->address, bytes = block->bytes;
    const int device = block->device;
    const gone_function tell = atomic_load(&on_gone);
    if (tell) tell(address);
    for (size_t i = 0; i < block->piece_count; i++) {
        if (!chunks_claim_for_free(&block->pieces[i].chunk) || ending_has_begun()) return;
        making_drop_chunk(&block->pieces[i].chunk);
    }
    blocks_remove(block);
    memory_tell(device);
    cuda->address_free(address, bytes);
    mover_freed();
}

/* ---- allocating -------------------------------------------------------------------------------
 */

/* In a capture the thread's mode decides; the driver refuses in its own words. */
static bool may_allocate(const struct driver *cuda) {
    if (!streams_capture_anywhere()) return true;
    const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
    driver_relaxed_end(cuda, mode);
    return mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

static bool serves(struct request *request) {
    const struct driver *cuda = driver_get();
    CUcontext context = NULL;
    if (!residency_swaps() || !driver_can_move(cuda)) return false;
    if (cuda->context_get_current(&context) != CUDA_SUCCESS || context == NULL) return false;
    request->context = context;
    request->device = memory_current_device();
    if (request->device < 0 || request->device >= REGISTRY_DEVICES_MAX) return false;
    request->generation = contexts_owner(context);
    return request->generation != 0 && !failure_in_current_context() && may_allocate(cuda);
}

static CUresult allocate_block(struct request *request) {
    const struct making making = {
        .call_name = request->call_name,
        .device = request->device,
        .bytes = request->block_bytes,
        .make = make_block,
        .argument = request,
    };
    return making_run(&making);
}

/* Room in a slab is the tenant's already, wherever the slab is: that takes neither a claim nor the
 * turn. */
static CUresult allocate_small(struct request *request) {
    if (blocks_take_small(request->generation, (uint32_t)request->bytes, &request->address))
        return CUDA_SUCCESS;
    return allocate_block(request);
}

bool backing_allocate(uint64_t *address, uint64_t bytes, const char *call_name, int *cu_result) {
    struct request request = {.call_name = call_name, .bytes = bytes};
    if (!serves(&request)) return false;
    backing_catch_up();
    CUresult result;
    if (address == NULL || bytes == 0)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (bytes >= BYTES_BEYOND_ALL)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else {
        request.block_bytes = round_up(bytes, CHUNK_GRANULE);
        result = bytes <= SLAB_ALLOCATION_BYTES_MAX ? allocate_small(&request)
                                                    : allocate_block(&request);
    }
    if (result == CUDA_SUCCESS) *address = request.address;
    *cu_result = (int)result;
    return true;
}

static bool is_element(unsigned int bytes) {
    return bytes == 4 || bytes == 8 || bytes == 16;
}

bool backing_allocate_pitch(uint64_t *address, size_t *pitch, size_t width_bytes, size_t height,
                            unsigned int element_bytes, const char *call_name, int *cu_result) {
    struct request request = {0};
    if (!serves(&request)) return false;
    if (pitch == NULL || width_bytes == 0 || height == 0 || !is_element(element_bytes)) {
        *cu_result = CUDA_ERROR_INVALID_VALUE;
        return true;
    }
    if (width_bytes >= BYTES_BEYOND_ALL) {
        *cu_result = CUDA_ERROR_OUT_OF_MEMORY;
        return true;
    }
    const uint64_t row_bytes = round_up(width_bytes, PITCH_ALIGNMENT);
    uint64_t bytes;
    if (__builtin_mul_overflow(row_bytes, height, &bytes)) bytes = BYTES_BEYOND_ALL;
    if (!backing_allocate(address, bytes, call_name, cu_result)) return false;
    if (*cu_result == CUDA_SUCCESS) *pitch = row_bytes;
    return true;
}

/* ---- freeing ----------------------------------------------------------------------------------
 */

/* Where memory is in host memory the gate was shut and the work drained, and nothing was launched
 * since. */
static CUresult wait_for_work(uint64_t context) {
    return chunks_all_here() ? work_wait(context) : CUDA_SUCCESS;
}

static void end_closed(const struct allocated *closed) {
    if (closed->is_pooled) {
        pooled_free_closed(closed);
        return;
    }
    if (closed->event != NULL) streams_adopt_event(closed->generation, closed->event, false);
    struct block *unused = blocks_end(closed);
    if (unused != NULL) give_back(unused);
}

/* What exit handlers free goes with the process: the mover has stopped, perhaps with a chunk in its
 * hands. */
static CUresult free_closed(const struct allocated *closed) {
    if (ending_has_begun()) return CUDA_SUCCESS;
    /* Put off beside a capture, perhaps in another context: who comes next does not wait for it. */
    if (closed->is_pooled && chunks_all_here() && !work_is_over(closed->generation))
        return CUDA_ERROR_NOT_READY;
    const CUresult result = wait_for_work(closed->generation);
    if (result == CUDA_SUCCESS) end_closed(closed);
    return result;
}

/* The program was told that its memory is free. What cannot be freed now is put off again, but with
 * a sticky error it goes with its context; that of a pool has none, and no work uses it any more.
 */
void backing_catch_up(void) {
    struct allocated closed;
    CUresult result = CUDA_SUCCESS;
    streams_forget_stale_captures(); /* which put off every free */
    while (!streams_capture_anywhere() && result == CUDA_SUCCESS && blocks_take_put_off(&closed)) {
        result = free_closed(&closed);
        if (failure_is_sticky((int)result)) {
            if (closed.is_pooled)
                pooled_free_closed(&closed);
            else
                blocks_reopen(&closed);
            result = CUDA_SUCCESS;
        } else if (result != CUDA_SUCCESS) {
            blocks_put_off(&closed);
        }
    }
}

void backing_free_done(void) {
    struct allocated closed;
    size_t before = SIZE_MAX;
    while (!streams_capture_anywhere() && !ending_has_begun() &&
           blocks_take_marked(&before, &closed)) {
        if (streams_event_is_done(closed.generation, closed.event))
            end_closed(&closed);
        else
            blocks_put_off(&closed);
    }
}

/* What is in the stream now, to be asked about later; NULL: that cannot be. While a capture is
 * active nothing touches the legacy stream. */
static void *mark_stream(const struct allocated *closed, void *stream) {
    const struct driver *cuda = driver_get();
    CUcontext current = NULL;
    if (streams_capture_anywhere() || cuda->context_get_current(&current) != CUDA_SUCCESS)
        return NULL;
    if (current != closed->context) return NULL;
    return streams_record_in(closed->generation, stream, streams_spare_event(closed->generation));
}

static bool has_context(void) {
    const struct driver *cuda = driver_get();
    CUcontext context = NULL;
    return cuda != NULL && cuda->context_get_current(&context) == CUDA_SUCCESS && context != NULL;
}

bool backing_free(uint64_t address, int *cu_result) {
    struct allocated closed;
    if (!has_context()) return false; /* the driver refuses that */
    backing_catch_up();
    if (!blocks_close(address, &closed)) return false;
    *cu_result = streams_capture_anywhere() ? CUDA_ERROR_NOT_READY : (int)free_closed(&closed);
    if (*cu_result == CUDA_ERROR_NOT_READY) { /* a capture goes on, or has begun */
        blocks_put_off(&closed);
        *cu_result = CUDA_SUCCESS;
    } else if (*cu_result != CUDA_SUCCESS) {
        blocks_reopen(&closed); /* it stays allocated, as with the driver */
    }
    return true;
}

bool backing_free_later(uint64_t address, void *stream, int *cu_result) {
    struct allocated closed;
    /* A captured one would have to be an allocation of the graph; the driver says so. */
    if (!has_context() || streams_is_capturing(stream)) return false;
    backing_free_done();
    if (!blocks_close(address, &closed)) return false;
    closed.event = mark_stream(&closed, stream);
    blocks_put_off(&closed);
    *cu_result = CUDA_SUCCESS;
    return true;
}

void backing_context_ended(uint64_t generation) {
    struct block *block;
    while (!ending_has_begun() && (block = blocks_close_of_context(generation)) != NULL)
        give_back(block);
}

bool backing_fix(uint64_t address) {
    struct allocated found;
    bool is_news;
    if (!blocks_find(address, &found) || !blocks_fix(address, &is_news)) return false;
    if (is_news) memory_tell(found.device);
    return true;
}
