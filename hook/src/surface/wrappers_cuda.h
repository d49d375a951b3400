/* What the rules of hook/spec/cuda_api.toml are made of, for libcuda. Each macro stands in a
 * wrapper, and sees its parameters, `real`, `claim` and `result`, WRAPPER_NAME and WRAPPER_VARIANT.
 */
#pragma once

#define __CUDA_API_VERSION_INTERNAL /* every exported name as it is, no renaming macros */
#include <cuda.h>
/* Before the visibility of exports is in force: */
#include "agent/memory_query.h"
#include "allocate/backing.h"
#include "allocate/bus_load.h"
#include "allocate/copies.h"
#include "allocate/handles.h"
#include "allocate/managing.h"
#include "allocate/memory.h"
#include "allocate/pooling.h"
#include "base/ending.h"
#include "device/streams.h"
#include "gate/threads.h"
#include "memory/blocks.h"
#include "memory/graph_memory.h"
#include "memory/peer_mappings.h"
#include "memory/pools.h"
#include "sharing/ipc.h"
#include "surface/context_calls.h"
#include "surface/pointers.h"
#include "surface/wrappers.h"

#define CANCELLED ((CUresult)GATE_CANCELLED_RESULT)

/* A launch in several streams: the gate is passed once for each of the others, so that the window
 * and the drain know of them; the first stream is passed with the launch itself. The mark is ahead
 * of the launch, because a wait must be: its event covers what the stream had before, and the
 * window is a launch longer there. The drain asks the streams themselves, none of which may be a
 * default stream. */
#define LAUNCH_MARK_OTHER_STREAMS(list, count)                                          \
    for (unsigned int i = 1; (list) != NULL && i < (count); i++) {                      \
        const struct gate_call mark = {GATE_LAUNCH, WRAPPER_VARIANT, (list)[i].hStream, \
                                       WRAPPER_NAME};                                   \
        const enum gate_answer marked = gate_enter(mark);                               \
        if (marked == GATE_CANCELLED) return CANCELLED;                                 \
        if (marked == GATE_PASS) gate_leave(mark, 0);                                   \
    }

/* What is done here altogether, without the driver's function: `call` says whether it was, and
 * leaves its result in `done`. */
#define DONE_HERE(call)                    \
    do {                                   \
        int done = CUDA_SUCCESS;           \
        if (call) return (CUresult)(done); \
    } while (0)

/* Behind the driver's call. */
#define ON_SUCCESS(call)                  \
    do {                                  \
        if (result == CUDA_SUCCESS) call; \
    } while (0)

/* The context may end in the driver's call. */
#define LEAVES(ends)                      \
    handles_context_leaves(WRAPPER_NAME); \
    const struct context_end end = context_calls_leave(ends)
#define LEFT context_calls_left(&end, (int)result)

/* Pointers to addresses and sizes of the first ABI are narrower; ours fit none of them. */
#define IS_WIDE(pointer) (sizeof *(pointer) == sizeof(uint64_t))
#define WIDE(type, pointer) ((type *)(void *)(pointer))

/* A captured call passes the shut gate, but the driver looks up the addresses that it is given. */
#define CAPTURED_WITH_MEMORY                                                                     \
    if (__builtin_expect(atomic_load_explicit(&streams_captures, memory_order_relaxed) != 0, 0)) \
    DONE_HERE(pointers_wait_fails(WRAPPER_NAME, &done))

/* What a copy answers that the driver has refused with an invalid value. The first ABI's addresses
 * and shapes are narrower: none of ours fits there. */
#define INVALID_VALUE(result) __builtin_expect((result) == CUDA_ERROR_INVALID_VALUE, 0)
#define WAY_AT_ONCE ((struct copies_way){false, WRAPPER_VARIANT, NULL})
#define WAY_IN(stream) ((struct copies_way){true, WRAPPER_VARIANT, (stream)})
#define COPY_LINE(to, from, bytes, way) \
    copies_line((uint64_t)(uintptr_t)(to), (uint64_t)(uintptr_t)(from), (bytes), way)
#define COPY_SHAPE(copies, type, shape, way) \
    (sizeof *(shape) == sizeof(type) ? copies((const type *)(const void *)(shape), way) : result)
#define COPY_FLAT(shape, way) COPY_SHAPE(copies_flat, CUDA_MEMCPY2D, shape, way)
#define COPY_BOX(shape, way) COPY_SHAPE(copies_box, CUDA_MEMCPY3D, shape, way)

/* Of copies between host and device the scheduler hears if there are many (allocate/bus_load.h). */
#define COPIED(bytes) \
    if (result == CUDA_SUCCESS && (bytes) >= BUS_COPY_BYTES_MIN) bus_load_copied(bytes)
#define COPIED_LINE(to, from, bytes)                             \
    if (result == CUDA_SUCCESS && (bytes) >= BUS_COPY_BYTES_MIN) \
    bus_load_line((uint64_t)(uintptr_t)(to), (uint64_t)(uintptr_t)(from), (bytes))
#define COPIED_SHAPE(counts, type, shape)                          \
    if (result == CUDA_SUCCESS && sizeof *(shape) == sizeof(type)) \
    counts((const type *)(const void *)(shape))
#define COPIED_FLAT(shape) COPIED_SHAPE(bus_load_flat, CUDA_MEMCPY2D, shape)
#define COPIED_BOX(shape) COPIED_SHAPE(bus_load_box, CUDA_MEMCPY3D, shape)

/* What is saved at the end of the process of memory that may be parked. */
#define AT_EXIT(call) \
    if (__builtin_expect(ending_has_begun(), 0)) DONE_HERE(call)
#define SAVED_LINE(to, from, bytes, way)                                                       \
    AT_EXIT(copies_saved_line((uint64_t)(uintptr_t)(to), (uint64_t)(uintptr_t)(from), (bytes), \
                              way, &done))
#define SAVED_SHAPE(copies, type, shape, way)  \
    AT_EXIT(sizeof *(shape) == sizeof(type) && \
            copies((const type *)(const void *)(shape), way, &done))
#define SAVED_FLAT(shape, way) SAVED_SHAPE(copies_saved_flat, CUDA_MEMCPY2D, shape, way)
#define SAVED_BOX(shape, way) SAVED_SHAPE(copies_saved_box, CUDA_MEMCPY3D, shape, way)

#define BACKED_ALLOCATION(pointer, bytes) \
    DONE_HERE(IS_WIDE(pointer) &&         \
              backing_allocate(WIDE(uint64_t, pointer), (bytes), WRAPPER_NAME, &done))
#define BACKED_PITCH(pointer, pitch, width, height, element)                                \
    DONE_HERE(IS_WIDE(pointer) &&                                                           \
              backing_allocate_pitch(WIDE(uint64_t, pointer), WIDE(size_t, pitch), (width), \
                                     (height), (element), WRAPPER_NAME, &done))
#define OPENED_HERE(pointer, handle, flags) \
    DONE_HERE(IS_WIDE(pointer) && ipc_open(WIDE(uint64_t, pointer), (handle), (flags), &done))
/* Memory that the program maps itself, and that others are about to use. */
#define GIVEN_AWAY(handle) EXPORTED(handle, CU_MEM_HANDLE_TYPE_NONE)
#define EXPORTED(handle, type) \
    struct physical *given;    \
    DONE_HERE(handles_give_away_fails(&(handle), (type), &given, WRAPPER_NAME, &done))
#define LENT(maps, count)     \
    struct handles_lent lent; \
    DONE_HERE(handles_lend_fails(&(maps), (count), &lent, WRAPPER_NAME, &done))
#define POOLING_STREAM(stream) ((struct pooling_stream){(stream), WRAPPER_VARIANT})
#define BACKED_RANGE(base, bytes, address) \
    DONE_HERE(pointers_range((uint64_t)(address), WIDE(uint64_t, base), WIDE(size_t, bytes), &done))

/* After an out-of-memory: whether others made room; if not, `result` is the answer. A call that
 * allocates nothing by itself (lazy loading, local memory, a context) says how much it lacks no
 * more than the driver does. */
#define OUT_OF_MEMORY(result) __builtin_expect((result) == CUDA_ERROR_OUT_OF_MEMORY, 0)
#define HAS_ROOM(call)             \
    ({                             \
        result = (CUresult)(call); \
        result == CUDA_SUCCESS;    \
    })
#define ROOM_FOR_CLAIM HAS_ROOM(memory_room_for_claim(&claim, WRAPPER_NAME))
#define ROOM_FOR_CONTEXT(device) HAS_ROOM(memory_room_for_context((int)(device), WRAPPER_NAME))
#define ROOM_FOR_GRAPH(executable) HAS_ROOM(memory_room_for_graph((executable), WRAPPER_NAME))
#define ROOM HAS_ROOM(memory_room_for(WRAPPER_NAME))

#define CLAIM_ON(device, bytes)                                                               \
    struct memory_claim claim;                                                                \
    const CUresult refused = (CUresult)memory_claim(&claim, (device), (bytes), WRAPPER_NAME); \
    if (refused != CUDA_SUCCESS) return refused
/* For stream-ordered allocations: what a capture takes belongs to the graph, and is claimed when
 * that is launched. What the pool keeps is counted already. */
#define CLAIM_IN_STREAM(device, from, bytes, stream)                                               \
    const bool captured = memory_is_captured((stream), WRAPPER_VARIANT);                           \
    void *const pool_used = captured ? NULL : (from);                                              \
    struct memory_claim claim;                                                                     \
    const CUresult refused =                                                                       \
        (CUresult)(captured ? memory_captured(&claim, (device), (bytes), WRAPPER_NAME)             \
                            : memory_claim(&claim, (device),                                       \
                                           memory_beyond_pool(pool_used, (bytes)), WRAPPER_NAME)); \
    if (refused != CUDA_SUCCESS) return refused
#define MEMORY_CLAIM_ASYNC(bytes, stream)                   \
    const int stream_device = memory_stream_device(stream); \
    CLAIM_IN_STREAM(stream_device, memory_pool_of(stream_device), bytes, stream)
/* A launch of a graph that allocates. */
#define GRAPH_ALLOCATES(executable)                                       \
    (atomic_load_explicit(&graph_memory_is_used, memory_order_relaxed) && \
     graph_memory_may_be(executable))
#define CLAIM_FOR_GRAPH(executable)                                                    \
    const CUresult refused = (CUresult)memory_claim_graph((executable), WRAPPER_NAME); \
    if (refused != CUDA_SUCCESS) return refused
#define NODE_ADDED(params)                                                      \
    do {                                                                        \
        if ((params) != NULL && (params)->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) \
            graph_memory_seen();                                                \
    } while (0)
#define GRAPH_MADE(executable, graph) ON_SUCCESS(graph_memory_instantiated(*(executable), (graph)))
#define MEMORY_CLAIM(bytes) CLAIM_ON(MEMORY_CURRENT_DEVICE, (bytes))
#define MEMORY_CLAIM_FROM_POOL(pool, bytes, stream) \
    CLAIM_IN_STREAM(memory_pool_device((uintptr_t)(pool)), (pool), bytes, stream)

#define LOCATION_DEVICE(properties)                                                     \
    ((properties) != NULL && (properties)->location.type == CU_MEM_LOCATION_TYPE_DEVICE \
         ? (properties)->location.id                                                    \
         : MEMORY_NOT_ON_DEVICE)

/* Sparse and deferred arrays get their memory from cuMemCreate. */
#define ARRAYS_WITHOUT_MEMORY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)
#define ARRAY_BYTES(array)                                                                     \
    ((array) == NULL ? 0                                                                       \
                     : memory_array_bytes((array)->Width, (array)->Height, 1, (array)->Format, \
                                          (array)->NumChannels, 1))
#define ARRAY3D_BYTES(array, levels)                                                            \
    ((array) == NULL || ((array)->Flags & ARRAYS_WITHOUT_MEMORY) != 0                           \
         ? 0                                                                                    \
         : memory_array_bytes((array)->Width, (array)->Height, (array)->Depth, (array)->Format, \
                              (array)->NumChannels, (levels)))

#define KEPT(call)              \
    if (result == CUDA_SUCCESS) \
        call;                   \
    else                        \
        memory_unclaim(&claim)
#define KEEP_BYTES(kind, pointer, bytes) \
    KEPT(memory_keep(&claim, (kind), (uint64_t)(uintptr_t)*(pointer), (bytes)))
#define MEMORY_KEEP(kind, pointer) KEEP_BYTES(kind, pointer, claim.bytes)
#define MANAGED_KEEP(pointer) \
    KEPT(managing_keep(&claim, (uint64_t)(uintptr_t)*(pointer), claim.bytes))
#define MEMORY_KEEP_PITCH(pointer, pitch, height) \
    KEEP_BYTES(KIND_OTHER, pointer, (uint64_t)*(pitch) * (height))
#define MEMORY_KEEP_ASYNC(pointer, bytes) \
    KEPT(memory_keep_from_pool(&claim, pool_used, (uint64_t)*(pointer), (bytes)))

#define MEMORY_TAKE(space, key) \
    struct allocation taken;    \
    const bool was_known = registry_take((space), (uint64_t)(uintptr_t)(key), &taken)
#define MEMORY_GIVE_UP \
    if (was_known) memory_freed(&taken, (int)result)
#define MANAGED_TAKE(pointer) \
    struct managed *const managed = managing_free_begins((uint64_t)(pointer))
#define MANAGED_GIVE_UP managing_free_ended(managed, (int)result)
#define MANAGED_ADVICE(pointer, bytes, advice) \
    DONE_HERE(                                 \
        managing_advice_fails((uint64_t)(pointer), (bytes), (int)(advice), WRAPPER_NAME, &done))

#define REPORT_MEMORY(device, free_bytes, total_bytes)                             \
    if (result == CUDA_SUCCESS && (free_bytes) != NULL && (total_bytes) != NULL) { \
        uint64_t reported_free = *(free_bytes), reported_total = *(total_bytes);   \
        memory_query_limit((int)(device));                                         \
        memory_report((int)(device), &reported_free, &reported_total);             \
        *(free_bytes) = (__typeof__(*(free_bytes)))reported_free;                  \
        *(total_bytes) = (__typeof__(*(total_bytes)))reported_total;               \
    }
#define REPORT_TOTAL_MEMORY(device, total_bytes) \
    uint64_t unused_free = 0;                    \
    REPORT_MEMORY(device, &unused_free, total_bytes)
