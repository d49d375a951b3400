/* The devices, a worker's streams and its blocks: memory of every kind, each byte of which is
 * known. */
#ifndef TESTS_SOAK_BLOCKS_H
#define TESTS_SOAK_BLOCKS_H

#include "soak_judge.h"

#define DEVICES_MAX 8
#define WORKERS_MAX 3
#define BLOCKS 8
#define STREAMS 6
#define LANES (DEVICES_MAX * OWN_LANES + STREAMS)
#define MIB ((uint64_t)1 << 20)
#define PIECE_BYTES (2 * MIB)
#define PIECES_MAX 10
#define ROW_BYTES ((uint64_t)4096)
#define HOST_BYTES ((uint64_t)65536)

static struct device {
    CUdevice handle;
    CUcontext context;
    CUmodule module;
    CUfunction fill, checksum, spin, poll_flag;
    _Atomic uint64_t held_bytes; /* by all threads */
} devices[DEVICES_MAX];
static int device_count;
static uint64_t hold_bytes_max; /* on each device */

enum kind { PLAIN, PITCHED, POOLED, MAPPED, EXPORTABLE, MANAGED, KINDS, IMPORTED = KINDS };
static const char *const KIND_NAMES[] = {"plain",      "pitched", "pooled",  "mapped",
                                         "exportable", "managed", "imported"};

/* In use while it holds bytes. */
struct block {
    enum kind kind;
    int device;
    uint64_t bytes;      /* filled and checked */
    uint64_t held_bytes; /* counted */
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    bool is_reserved, has_handle, is_mapped; /* what there is of memory that we map ourselves */
    bool is_leaving;                         /* it is being made, or released: not to be used */
    bool is_known;                           /* `values` are what it must hold */
    bool is_shared;                          /* counted in `shared_blocks` */
    uint32_t values[PIECES_MAX];             /* of its words, by piece */
};

/* Three of each device: its legacy stream, the thread's own, and one that does not block. */
enum lane_kind { LEGACY, OF_THREAD, WORKING, OWN_LANES, CREATED = OWN_LANES };

struct lane {
    CUstream stream;
    enum lane_kind kind;
    int device;
    bool exists;
    bool is_busy; /* what was put into it may not be over */
};

/* In host memory that the devices see. */
struct pinned {
    uint64_t sum;
    volatile uint32_t flag;
    uint32_t words[HOST_BYTES / 4];
};

/* All that a thread has, so that another one can go on with it. */
struct worker {
    pthread_t thread;
    int number;
    uint64_t random;
    int device;
    struct block blocks[BLOCKS];
    struct lane lanes[LANES];
    struct pinned *pinned;
    CUcontext extra; /* a context beside the primary ones */
    CUevent event;   /* it and the graphs live as long as one operation */
    CUgraph graph;
    CUgraphExec ready_graph;
    pid_t child;
    _Atomic uint64_t raised; /* by its host functions */
    _Atomic bool has_verified, is_paused;
    _Atomic uint64_t verified;         /* the latest request to verify all that it has done */
    _Atomic uint64_t later_call_by_ms; /* the end of its wait for a later call; 0: no limit */
};

static _Atomic int shared_blocks;        /* whose descriptors may be open */
static _Atomic bool descriptors_closing; /* no block is shared meanwhile */

static uint64_t below(struct worker *worker, uint64_t limit) {
    return draw(&worker->random) % limit;
}

static bool use_device(int device) {
    return DONE(cuCtxSetCurrent, devices[device].context);
}

/* ---- streams ---- */

static struct lane *working_lane(struct worker *worker, int device) {
    return &worker->lanes[device * OWN_LANES + WORKING];
}

/* Any stream of the worker's device. Another thread could not wait for the stream of a thread that
 * was cancelled, so that is not to happen before `allow_cancellation`. */
static struct lane *any_lane(struct worker *worker) {
    for (;;) {
        struct lane *lane = &worker->lanes[below(worker, LANES)];
        if (!lane->exists || lane->device != worker->device) continue;
        if (lane->kind == OF_THREAD) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        return lane;
    }
}

static bool finish(struct lane *lane) {
    if (!DONE(cuStreamSynchronize, lane->stream)) return false;
    lane->is_busy = false;
    return true;
}

static bool launch(struct lane *lane, CUfunction function, void **arguments) {
    lane->is_busy = true;
    return DONE(cuLaunchKernel, function, 64, 1, 1, 256, 1, 1, 0, lane->stream, arguments, NULL);
}

static bool launch_spin(struct lane *lane, uint64_t nanoseconds) {
    void *arguments[] = {&nanoseconds};
    return launch(lane, devices[lane->device].spin, arguments);
}

/* ---- how memory comes ---- */

static bool allocate_pitched(struct block *block) {
    size_t pitch = 0;
    const uint64_t rows = (block->bytes + ROW_BYTES - 1) / ROW_BYTES;
    if (!GRANTED(cuMemAllocPitch, &block->address, &pitch, ROW_BYTES - 96, rows, 4)) return false;
    if (pitch * rows >= block->bytes) return true;
    tell_failure("pitch", (long)pitch);
    return false;
}

static bool allocate_pooled(struct worker *worker, struct block *block) {
    struct lane *lane = working_lane(worker, block->device);
    lane->is_busy = true;
    return GRANTED(cuMemAllocAsync, &block->address, block->bytes, lane->stream) && finish(lane);
}

static bool allocate_mapped(struct block *block) {
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = block->kind == EXPORTABLE ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                          : CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = devices[block->device].handle},
    };
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const uint64_t bytes = block->held_bytes;
    block->is_reserved = GRANTED(cuMemAddressReserve, &block->address, bytes, 0, 0, 0);
    if (!block->is_reserved) return false;
    block->has_handle = GRANTED(cuMemCreate, &block->handle, bytes, &properties, 0);
    if (!block->has_handle) return false;
    block->is_mapped = GRANTED(cuMemMap, block->address, bytes, 0, block->handle, 0);
    return block->is_mapped && GRANTED(cuMemSetAccess, block->address, bytes, &access, 1);
}

/* Who is cancelled in between would not know what is mapped. */
static bool map_uncancelled(struct block *block) {
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    const bool is_made = allocate_mapped(block);
    pthread_setcancelstate(cancel_state, NULL);
    return is_made;
}

static bool allocate_by_kind(struct worker *worker, struct block *block) {
    switch (block->kind) {
        case PLAIN:
            return GRANTED(cuMemAlloc, &block->address, block->bytes);
        case PITCHED:
            return allocate_pitched(block);
        case POOLED:
            return allocate_pooled(worker, block);
        case MANAGED:
            return GRANTED(cuMemAllocManaged, &block->address, block->bytes, CU_MEM_ATTACH_GLOBAL);
        default:
            return map_uncancelled(block);
    }
}

/* ---- how memory goes ---- */

static bool unmap(struct block *block) {
    if (block->is_mapped && !DONE(cuMemUnmap, block->address, block->held_bytes)) return false;
    block->is_mapped = false;
    if (block->is_reserved && !DONE(cuMemAddressFree, block->address, block->held_bytes))
        return false;
    block->is_reserved = false;
    if (block->has_handle && !DONE(cuMemRelease, block->handle)) return false;
    block->has_handle = false;
    return true;
}

static bool release_by_kind(struct worker *worker, struct block *block) {
    if (block->kind == MAPPED || block->kind == EXPORTABLE) return unmap(block);
    if (block->address == 0) return true;
    if (block->kind != POOLED) return DONE(cuMemFree, block->address);
    struct lane *lane = working_lane(worker, block->device);
    lane->is_busy = true;
    return DONE(cuMemFreeAsync, block->address, lane->stream);
}

/* False: something of it is left, and it has to be tried again. Who is cancelled has not freed
 * anything without a note of that. */
static bool release(struct worker *worker, struct block *block) {
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    block->is_leaving = true;
    block->is_known = false;
    const bool is_gone = use_device(block->device) && release_by_kind(worker, block);
    use_device(worker->device);
    if (is_gone) {
        atomic_fetch_sub(&devices[block->device].held_bytes, block->held_bytes);
        if (block->is_shared) atomic_fetch_sub(&shared_blocks, 1);
        *block = (struct block){0};
    }
    pthread_setcancelstate(cancel_state, NULL);
    return is_gone;
}

/* Takes bytes of what all threads may hold on the device. */
static bool claim(struct block *block, int device, uint64_t bytes) {
    const uint64_t held = (bytes + PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES;
    if (atomic_fetch_add(&devices[device].held_bytes, held) + held > hold_bytes_max) {
        atomic_fetch_sub(&devices[device].held_bytes, held);
        return false;
    }
    block->is_leaving = true;
    block->device = device;
    block->bytes = bytes;
    block->held_bytes = held;
    return true;
}

/* What fails leaves nothing behind. */
static bool allocate(struct worker *worker, struct block *block, enum kind kind, uint64_t bytes) {
    if (!claim(block, worker->device, bytes)) return false;
    block->kind = kind;
    if (!use_device(block->device) || !allocate_by_kind(worker, block)) {
        release(worker, block);
        return false;
    }
    block->is_leaving = false;
    return true;
}

/* ---- what memory holds ---- */

static uint64_t pieces_of(uint64_t bytes) {
    return (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

static uint64_t words_of_piece(uint64_t bytes, uint64_t piece) {
    const uint64_t left = bytes - piece * PIECE_BYTES;
    return (left < PIECE_BYTES ? left : PIECE_BYTES) / 4;
}

/* As in tests/support/programs/memory_tenant.c. */
static uint32_t value_of(uint64_t seed, uint64_t piece) {
    return ((uint32_t)seed * 2654435761u) ^ ((uint32_t)piece * 2246822519u);
}

/* Launches or memsets that write what the seed says; they may be captured. */
static bool write_pieces(struct lane *lane, CUdeviceptr address, uint64_t bytes, uint64_t seed,
                         bool by_memset) {
    bool is_done = true;
    for (uint64_t piece = 0; piece < pieces_of(bytes) && is_done; piece++) {
        CUdeviceptr place = address + piece * PIECE_BYTES;
        uint32_t value = value_of(seed, piece);
        uint64_t words = words_of_piece(bytes, piece);
        void *arguments[] = {&place, &value, &words};
        lane->is_busy = true;
        is_done = by_memset ? DONE(cuMemsetD32Async, place, value, words, lane->stream)
                            : launch(lane, devices[lane->device].fill, arguments);
    }
    return is_done;
}

static void expect_seed(struct block *block, uint64_t seed) {
    for (uint64_t piece = 0; piece < pieces_of(block->bytes); piece++)
        block->values[piece] = value_of(seed, piece);
    block->is_known = true;
}

static bool fill(struct worker *worker, struct lane *lane, struct block *block, uint64_t seed) {
    block->is_known = false;
    if (!write_pieces(lane, block->address, block->bytes, seed, below(worker, 4) == 0) ||
        !finish(lane))
        return false;
    expect_seed(block, seed);
    return true;
}

static uint64_t expected_sum(const struct block *block) {
    uint64_t sum = 0;
    for (uint64_t piece = 0; piece < pieces_of(block->bytes); piece++) {
        const uint64_t first = piece * PIECE_BYTES / 4;
        const uint64_t last = first + words_of_piece(block->bytes, piece);
        sum += block->values[piece] * (last * last - first * first);
    }
    return sum;
}

/* Compares words from this offset on; tells of the first one that is wrong. */
static bool compare(struct block *block, uint64_t offset, const volatile uint32_t *words,
                    uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += 4) {
        const uint32_t expected = block->values[(offset + at) / PIECE_BYTES];
        const uint32_t found = words[at / 4];
        if (found == expected) continue;
        say("wrong %s %lu %lu %u %u", KIND_NAMES[block->kind], (unsigned long)block->bytes,
            (unsigned long)(offset + at), expected, found);
        block->is_known = false;
        return false;
    }
    return true;
}

/* Looks for what a checksum has found. Without a wrong byte the offset is the size. */
static void tell_wrong(struct worker *worker, struct block *block, uint64_t sum) {
    for (uint64_t at = 0; at < block->bytes; at += HOST_BYTES) {
        const uint64_t left = block->bytes - at, bytes = left < HOST_BYTES ? left : HOST_BYTES;
        if (!DONE(cuMemcpyDtoH, worker->pinned->words, block->address + at, bytes)) break;
        if (!compare(block, at, worker->pinned->words, bytes)) return;
    }
    say("wrong %s %lu %lu %lu %lu", KIND_NAMES[block->kind], (unsigned long)block->bytes,
        (unsigned long)block->bytes, (unsigned long)expected_sum(block), (unsigned long)sum);
    block->is_known = false;
}

static void count_check(uint64_t bytes) {
    atomic_fetch_add(&totals.checks, 1);
    atomic_fetch_add(&totals.bytes_checked, bytes);
}

/* All of a known block, by a launch. */
static bool verify(struct worker *worker, struct lane *lane, struct block *block) {
    CUdeviceptr sum_address = (CUdeviceptr)(uintptr_t)&worker->pinned->sum;
    uint64_t words = block->bytes / 4;
    void *arguments[] = {&sum_address, &block->address, &words};
    if (!launch(lane, devices[lane->device].checksum, arguments) || !finish(lane)) return false;
    const uint64_t sum = worker->pinned->sum;
    count_check(block->bytes);
    if (sum != expected_sum(block)) tell_wrong(worker, block, sum);
    return block->is_known;
}

#endif
