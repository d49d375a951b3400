/* What a soak tenant's threads do, drawn by weight. Each operation returns false where a call did
 * not succeed; what it had begun is ended by `settle` before the next one. */
#ifndef TESTS_SOAK_OPERATIONS_H
#define TESTS_SOAK_OPERATIONS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "soak_blocks.h"

#define NEW_BLOCK_BYTES_MAX (20 * MIB)
#define CONTEXT_BLOCK_BYTES (1 * MIB)
#define TEXT_BYTES 24

/* How a child that imports memory ends, beside 0. */
enum { CHILD_WRONG = 1, CHILD_REFUSED = 2, CHILD_GAVE_UP = 3 };

#define OWN_PATH "/proc/self/exe"

/* ---- blocks ---- */

static bool is_usable(const struct worker *worker, const struct block *block) {
    return block->held_bytes > 0 && !block->is_leaving && block->device == worker->device;
}

/* A usable block of the worker's device; NULL: it has none. */
static struct block *any_block(struct worker *worker) {
    const uint64_t first = below(worker, BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &worker->blocks[(first + (uint64_t)i) % BLOCKS];
        if (is_usable(worker, block)) return block;
    }
    return NULL;
}

static struct block *unused_block(struct worker *worker) {
    for (int i = 0; i < BLOCKS; i++)
        if (worker->blocks[i].held_bytes == 0) return &worker->blocks[i];
    return NULL;
}

/* Part of what the device's threads may hold, in percent. */
static uint64_t held_percent(const struct worker *worker) {
    return atomic_load(&devices[worker->device].held_bytes) * 100 / hold_bytes_max;
}

/* Small ones are of few sizes, so that there are pairs to copy. */
static uint64_t any_size(struct worker *worker) {
    if (below(worker, 4) == 0) return (uint64_t)4096 << below(worker, 10);
    uint64_t bytes_max = NEW_BLOCK_BYTES_MAX;
    if (bytes_max > hold_bytes_max / 2) bytes_max = hold_bytes_max / 2;
    const uint64_t units = bytes_max / (MIB / 4);
    return (8 + below(worker, units > 8 ? units - 7 : 1)) * (MIB / 4);
}

static bool free_block(struct worker *worker) {
    struct block *block = any_block(worker);
    if (block == NULL) block = &worker->blocks[below(worker, BLOCKS)];
    return block->held_bytes == 0 || release(worker, block);
}

static bool new_block(struct worker *worker) {
    struct block *block = unused_block(worker);
    if (block == NULL || held_percent(worker) >= 60 + below(worker, 40)) {
        if (!free_block(worker)) return false;
        block = unused_block(worker);
    }
    const uint64_t bytes = any_size(worker);
    if (block == NULL || !allocate(worker, block, (enum kind)below(worker, KINDS), bytes))
        return false;
    return fill(worker, any_lane(worker), block, draw(&worker->random));
}

static bool drop_block(struct worker *worker) {
    return held_percent(worker) < 60 ? new_block(worker) : free_block(worker);
}

static bool refill_block(struct worker *worker) {
    struct block *block = any_block(worker);
    return block == NULL || fill(worker, any_lane(worker), block, draw(&worker->random));
}

/* What is not known is written first. */
static bool make_known(struct worker *worker, struct block *block) {
    return block->is_known || fill(worker, any_lane(worker), block, draw(&worker->random));
}

static bool verify_block(struct worker *worker) {
    struct block *block = any_block(worker);
    if (block == NULL) return true;
    if (!make_known(worker, block) || !verify(worker, any_lane(worker), block)) return false;
    atomic_store(&worker->has_verified, true);
    return true;
}

/* Managed memory is read where it is. Other memory is copied, by a call with a stream or without.
 */
static bool verify_part(struct worker *worker) {
    struct block *block = any_block(worker);
    if (block == NULL) return true;
    if (!make_known(worker, block)) return false;
    const uint64_t bytes = block->bytes < HOST_BYTES ? block->bytes : HOST_BYTES;
    const uint64_t offset = below(worker, (block->bytes - bytes) / 4 + 1) * 4;
    const CUdeviceptr from = block->address + offset;
    const volatile uint32_t *words = worker->pinned->words;
    struct lane *lane = any_lane(worker);
    if (block->kind == MANAGED) {
        words = (const volatile uint32_t *)(uintptr_t)from;
    } else if (below(worker, 2)) {
        if (!DONE(cuMemcpyDtoH, worker->pinned->words, from, bytes)) return false;
    } else {
        lane->is_busy = true;
        if (!DONE(cuMemcpyDtoHAsync, worker->pinned->words, from, bytes, lane->stream) ||
            !finish(lane))
            return false;
    }
    count_check(bytes);
    return compare(block, offset, words, bytes);
}

/* Of another block, all where they have one size, and else the pieces that both have. */
static bool copy_block(struct worker *worker) {
    struct block *to = any_block(worker), *from = any_block(worker);
    struct lane *lane = any_lane(worker);
    if (to == from || !make_known(worker, from) || !make_known(worker, to)) return to == from;
    uint64_t bytes = to->bytes < from->bytes ? to->bytes : from->bytes;
    if (to->bytes != from->bytes) bytes = bytes / PIECE_BYTES * PIECE_BYTES;
    if (bytes == 0) return true;
    to->is_known = false;
    lane->is_busy = true;
    if (!DONE(cuMemcpyDtoDAsync, to->address, from->address, bytes, lane->stream) || !finish(lane))
        return false;
    memcpy(to->values, from->values, pieces_of(bytes) * sizeof to->values[0]);
    to->is_known = true;
    return true;
}

/* ---- streams, events, contexts ---- */

static bool change_stream(struct worker *worker) {
    struct lane *lane = &worker->lanes[DEVICES_MAX * OWN_LANES + below(worker, STREAMS)];
    if (lane->exists) {
        if (!use_device(lane->device) || !ENDED(cuStreamDestroy, lane->stream)) return false;
        lane->exists = false;
        return true;
    }
    lane->kind = CREATED;
    lane->device = worker->device;
    const unsigned flags = below(worker, 2) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    lane->exists = GRANTED(cuStreamCreate, &lane->stream, flags);
    return lane->exists;
}

static bool destroy_event(CUevent *event) {
    if (*event != NULL && !ENDED(cuEventDestroy, *event)) return false;
    *event = NULL;
    return true;
}

/* A stream waits for work of another one; the event is asked before that is over. */
static bool use_event(struct worker *worker) {
    struct lane *lane = any_lane(worker), *other = any_lane(worker);
    if (!GRANTED(cuEventCreate, &worker->event, CU_EVENT_DISABLE_TIMING) ||
        !launch_spin(lane, below(worker, 2000000)) ||
        !DONE(cuEventRecord, worker->event, lane->stream))
        return false;
    const CUresult result = cuEventQuery(worker->event);
    if (result != CUDA_ERROR_NOT_READY && !judge("cuEventQuery", result, false)) return false;
    other->is_busy = true;
    return DONE(cuStreamWaitEvent, other->stream, worker->event, 0) && launch_spin(other, 1000) &&
           DONE(cuEventSynchronize, worker->event) && finish(lane) && finish(other) &&
           destroy_event(&worker->event);
}

/* A context beside a process's first ones, its own or a child's: one at a time, for on a real
 * device it takes more memory than all blocks of a tenant. */
static _Atomic(struct worker *) context_beside;

static bool take_context_beside(struct worker *worker) {
    struct worker *has_it = NULL;
    return atomic_compare_exchange_strong(&context_beside, &has_it, worker) || has_it == worker;
}

static void give_context_beside(struct worker *worker) {
    struct worker *has_it = worker;
    atomic_compare_exchange_strong(&context_beside, &has_it, NULL);
}

static bool work_in_extra(struct worker *worker) {
    CUdeviceptr address = 0;
    const uint32_t value = (uint32_t)draw(&worker->random);
    if (!GRANTED(cuMemAlloc, &address, CONTEXT_BLOCK_BYTES) ||
        !DONE(cuMemsetD32, address, value, CONTEXT_BLOCK_BYTES / 4) || !DONE(cuCtxSynchronize) ||
        !DONE(cuMemcpyDtoH, worker->pinned->words, address, HOST_BYTES))
        return false;
    count_check(HOST_BYTES);
    for (uint64_t i = 0; i < HOST_BYTES / 4; i++) {
        if (worker->pinned->words[i] == value) continue;
        say("wrong context %lu %lu %u %u", (unsigned long)CONTEXT_BLOCK_BYTES, (unsigned long)i * 4,
            value, worker->pinned->words[i]);
        break;
    }
    return below(worker, 2) || DONE(cuMemFree, address); /* else it goes with the context */
}

static bool destroy_extra(struct worker *worker) {
    if (worker->extra != NULL && !ENDED(cuCtxDestroy, worker->extra)) return false;
    worker->extra = NULL;
    return true;
}

static bool use_context(struct worker *worker) {
    const CUdevice device = devices[worker->device].handle;
    if (!take_context_beside(worker)) return true;
    if (!UNCANCELLED(GRANTED(cuCtxCreate, &worker->extra, NULL, 0, device))) return false;
    bool is_done = work_in_extra(worker);
    is_done = destroy_extra(worker) && is_done;
    give_context_beside(worker);
    return is_done;
}

static bool change_device(struct worker *worker) {
    worker->device = (int)below(worker, (uint64_t)device_count);
    return use_device(worker->device);
}

/* ---- graphs ---- */

static bool destroy_graphs(struct worker *worker) {
    if (worker->ready_graph != NULL && !ENDED(cuGraphExecDestroy, worker->ready_graph))
        return false;
    worker->ready_graph = NULL;
    if (worker->graph != NULL && !ENDED(cuGraphDestroy, worker->graph)) return false;
    worker->graph = NULL;
    return true;
}

typedef bool (*captured_work)(struct worker *worker, struct lane *lane, struct block *block,
                              uint64_t seed);

/* Who is cancelled must not leave a capture behind. */
static bool capture(struct worker *worker, struct lane *lane, captured_work work,
                    struct block *block, uint64_t seed) {
    int cancel_state;
    const CUstreamCaptureMode mode =
        below(worker, 2) ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    bool is_done = DONE(cuStreamBeginCapture, lane->stream, mode);
    if (is_done) {
        is_done = work(worker, lane, block, seed);
        is_done = DONE(cuStreamEndCapture, lane->stream, &worker->graph) && is_done;
    }
    pthread_setcancelstate(cancel_state, NULL);
    return is_done;
}

static bool run_graph(struct worker *worker, struct lane *lane) {
    if (!GRANTED(cuGraphInstantiate, &worker->ready_graph, worker->graph, 0)) return false;
    for (uint64_t times = 1 + below(worker, 3); times > 0; times--) {
        lane->is_busy = true;
        if (!GRANTED(cuGraphLaunch, worker->ready_graph, lane->stream)) return false;
    }
    return finish(lane) && destroy_graphs(worker);
}

static bool capture_fill(struct worker *worker, struct lane *lane, struct block *block,
                         uint64_t seed) {
    return write_pieces(lane, block->address, block->bytes, seed, below(worker, 2));
}

static bool refill_by_graph(struct worker *worker) {
    struct block *block = any_block(worker);
    struct lane *lane = working_lane(worker, worker->device);
    const uint64_t seed = draw(&worker->random);
    if (block == NULL) return true;
    block->is_known = false;
    if (!capture(worker, lane, capture_fill, block, seed) || !run_graph(worker, lane)) return false;
    expect_seed(block, seed);
    return true;
}

/* Allocates, fills, sums up and frees memory of the graph's own. */
static bool capture_memory(struct worker *worker, struct lane *lane, struct block *block,
                           uint64_t seed) {
    CUdeviceptr address = 0, sum_address = (CUdeviceptr)(uintptr_t)&worker->pinned->sum;
    uint64_t words = block->bytes / 4;
    void *arguments[] = {&sum_address, &address, &words};
    return GRANTED(cuMemAllocAsync, &address, block->bytes, lane->stream) &&
           write_pieces(lane, address, block->bytes, seed, false) &&
           launch(lane, devices[lane->device].checksum, arguments) &&
           DONE(cuMemFreeAsync, address, lane->stream);
}

/* The block here is a description alone. It holds bytes as long as the graph has memory. */
static bool use_graph_memory(struct worker *worker) {
    struct block *block = unused_block(worker);
    struct lane *lane = working_lane(worker, worker->device);
    const uint64_t seed = draw(&worker->random);
    if (block == NULL || !claim(block, worker->device, any_size(worker))) return true;
    worker->pinned->sum = 0;
    const bool is_done =
        capture(worker, lane, capture_memory, block, seed) && run_graph(worker, lane);
    if (is_done) {
        expect_seed(block, seed);
        count_check(block->bytes);
        if (worker->pinned->sum != expected_sum(block))
            say("wrong graph %lu 0 %lu %lu", (unsigned long)block->bytes,
                (unsigned long)expected_sum(block), (unsigned long)worker->pinned->sum);
    }
    return DONE(cuDeviceGraphMemTrim, devices[worker->device].handle) && release(worker, block) &&
           is_done;
}

/* ---- what the host has a part in ---- */

static void CUDA_CB raise_counter(void *worker) {
    atomic_fetch_add(&((struct worker *)worker)->raised, 1);
}

static bool use_host_functions(struct worker *worker) {
    struct lane *lane = any_lane(worker);
    const uint64_t count = 1 + below(worker, 4);
    atomic_store(&worker->raised, 0);
    for (uint64_t i = 0; i < count; i++) {
        if (!launch_spin(lane, 1000) ||
            !DONE(cuLaunchHostFunc, lane->stream, raise_counter, worker))
            return false;
    }
    if (!finish(lane)) return false;
    if (atomic_load(&worker->raised) != count)
        say("wrong host_function 0 0 %lu %lu", (unsigned long)count,
            (unsigned long)atomic_load(&worker->raised));
    return true;
}

/* How long `wait_for_later_call` may last, from $SOAK_LATER_CALL_MS_MAX; 0: as long as it takes. */
static uint64_t later_call_ms_max;

/* The work waits for what the host does after several later launches. On a real device these may
 * stand behind a call of another thread that waits for the work: with a limit that ends too. */
static bool wait_for_later_call(struct worker *worker) {
    struct lane *lane = working_lane(worker, worker->device);
    CUdeviceptr flag_address = (CUdeviceptr)(uintptr_t)&worker->pinned->flag;
    void *arguments[] = {&flag_address};
    worker->pinned->flag = 0;
    if (later_call_ms_max > 0)
        atomic_store(&worker->later_call_by_ms, now_ms() + later_call_ms_max);
    bool is_done = launch(lane, devices[lane->device].poll_flag, arguments);
    for (uint64_t i = 1 + below(worker, 12); i > 0 && is_done; i--)
        is_done = launch_spin(lane, 1000);
    worker->pinned->flag = 1;
    atomic_store(&worker->later_call_by_ms, 0);
    return finish(lane) && is_done;
}

static bool rest(struct worker *worker) {
    sleep_ms((long)below(worker, 60));
    return true;
}

/* ---- memory that a child imports ---- */

static bool may_share(struct block *block) {
    block->is_shared = true;
    atomic_fetch_add(&shared_blocks, 1);
    return !atomic_load(&descriptors_closing);
}

/* Starts this program anew with the descriptor. It dies with the thread. */
static pid_t start_importer(int descriptor, const struct block *block, uint64_t seed) {
    char texts[4][TEXT_BYTES];
    snprintf(texts[0], TEXT_BYTES, "%d", descriptor);
    snprintf(texts[1], TEXT_BYTES, "%lu", (unsigned long)block->bytes);
    snprintf(texts[2], TEXT_BYTES, "%u", (uint32_t)seed);
    snprintf(texts[3], TEXT_BYTES, "%d", block->device);
    const pid_t child = fork();
    if (child == 0) {
        fcntl(descriptor, F_SETFD, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(OWN_PATH, OWN_PATH, "import", texts[0], texts[1], texts[2], texts[3],
              atomic_load(&has_descriptors) ? "many" : "few", (char *)NULL);
        _exit(127);
    }
    return child;
}

static bool export_to_child(struct worker *worker, const struct block *block, uint64_t seed) {
    int cancel_state, descriptor = -1;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    bool had_descriptors = atomic_load(&has_descriptors);
    const CUresult result = cuMemExportToShareableHandle(
        &descriptor, block->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    had_descriptors = had_descriptors && atomic_load(&has_descriptors);
    if (result == CUDA_SUCCESS) {
        fcntl(descriptor, F_SETFD, FD_CLOEXEC);
        worker->child = start_importer(descriptor, block, seed);
        close(descriptor);
    } else if (had_descriptors) {
        judge("cuMemExportToShareableHandle", result, true);
    } else {
        atomic_fetch_add(&totals.refused, 1);
    }
    pthread_setcancelstate(cancel_state, NULL);
    return worker->child > 0;
}

static void judge_child(int status, uint64_t bytes, bool had_descriptors) {
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    if (code == 0) {
        count_check(bytes);
    } else if (code == CHILD_REFUSED || !had_descriptors) {
        atomic_fetch_add(&totals.refused, 1);
    } else if (code == CHILD_GAVE_UP || code == -SIGINT) {
        atomic_fetch_add(&totals.cancelled, 1);
    } else if (code != CHILD_WRONG && !atomic_load(&is_ending)) {
        tell_failure("child", code);
    }
}

/* Waits, also where signals interrupt that. Who is cancelled here leaves the child to `take_over`.
 */
static int status_of(pid_t *child) {
    int status = 0;
    while (waitpid(*child, &status, 0) < 0 && errno == EINTR)
        continue;
    *child = 0;
    return status;
}

/* The block is new, and goes afterwards: a descriptor of it stays open as long as it is there. */
static bool share_block(struct worker *worker) {
    struct block *block = unused_block(worker);
    const uint64_t seed = (uint32_t)draw(&worker->random);
    if (!take_context_beside(worker)) return true;
    if (block == NULL || !allocate(worker, block, EXPORTABLE, any_size(worker))) return false;
    bool is_done = fill(worker, any_lane(worker), block, seed);
    if (is_done && may_share(block)) {
        const bool had_descriptors = atomic_load(&has_descriptors);
        is_done = export_to_child(worker, block, seed);
        if (is_done)
            judge_child(status_of(&worker->child), block->bytes,
                        had_descriptors && atomic_load(&has_descriptors));
        give_context_beside(worker);
        if (is_done) is_done = verify(worker, any_lane(worker), block);
    }
    return release(worker, block) && is_done;
}

/* ---- one operation ---- */

static const struct operation {
    unsigned weight;
    bool (*perform)(struct worker *worker);
} OPERATIONS[] = {
    {20, new_block},         {12, drop_block},         {14, refill_block},   {24, verify_block},
    {16, verify_part},       {12, copy_block},         {5, change_stream},   {6, use_event},
    {2, use_context},        {4, change_device},       {5, refill_by_graph}, {2, use_graph_memory},
    {5, use_host_functions}, {3, wait_for_later_call}, {1, share_block},     {6, rest},
};
#define OPERATION_COUNT (sizeof OPERATIONS / sizeof OPERATIONS[0])

static const struct operation *any_operation(struct worker *worker) {
    uint64_t total = 0, at;
    for (size_t i = 0; i < OPERATION_COUNT; i++)
        total += OPERATIONS[i].weight;
    at = below(worker, total);
    const struct operation *operation = OPERATIONS;
    while (at >= operation->weight)
        at -= operation++->weight;
    return operation;
}

static bool finish_lanes(struct worker *worker) {
    for (int i = 0; i < LANES; i++) {
        struct lane *lane = &worker->lanes[i];
        if (lane->is_busy && (!use_device(lane->device) || !finish(lane))) return false;
    }
    return true;
}

/* Ends what earlier operations have begun. False: it has to be tried again. */
static bool settle(struct worker *worker) {
    bool is_settled = finish_lanes(worker) && destroy_event(&worker->event) &&
                      destroy_graphs(worker) && destroy_extra(worker);
    for (int i = 0; i < BLOCKS && is_settled; i++)
        if (worker->blocks[i].is_leaving) is_settled = release(worker, &worker->blocks[i]);
    if (is_settled) give_context_beside(worker);
    return is_settled && use_device(worker->device);
}

/* See `any_lane`. */
static void allow_cancellation(const struct worker *worker) {
    for (int i = 0; i < LANES; i++)
        if (worker->lanes[i].kind == OF_THREAD && worker->lanes[i].is_busy) return;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_testcancel();
}

static void run_operation(struct worker *worker) {
    const bool is_done = settle(worker) && any_operation(worker)->perform(worker);
    atomic_fetch_add(&totals.operations, 1);
    allow_cancellation(worker);
    if (!is_done) sleep_ms(2);
}

/* Every block, once. False: a call did not succeed, and it has to be tried again. */
static bool verify_all(struct worker *worker) {
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &worker->blocks[i];
        if (!settle(worker)) return false;
        if (block->held_bytes == 0 || block->is_leaving) continue;
        worker->device = block->device;
        if (!use_device(block->device) || !make_known(worker, block) ||
            !verify(worker, working_lane(worker, block->device), block))
            return false;
    }
    return true;
}

#endif
