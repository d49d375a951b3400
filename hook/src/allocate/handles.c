#include "allocate/handles.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocate/making.h"
#include "allocate/memory.h"
#include "allocate/refusal.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/log.h"
#include "device/contexts.h"
#include "gate/gate.h"
#include "memory/device_memory.h"
#include "memory/physical.h"
#include "memory/pooled.h"
#include "swap/mover.h"
#include "swap/readers.h"
#include "swap/residency.h"
#include "swap/wholes.h"

/* No device has so much. */
#define BYTES_BEYOND_ALL ((uint64_t)1 << 46)

/* In a process without a context nothing moves, nor where memory does not follow the turn. */
static bool pass_gate(struct gate_call *call, const char *call_name, int *cu_result,
                      enum gate_answer *answer) {
    *call = (struct gate_call){GATE_LOOK, GATE_STREAM_LEGACY, NULL, call_name};
    const bool moves = atomic_load(&contexts_open) > 0 && residency_swaps();
    *answer = moves ? gate_enter(*call) : GATE_NESTED;
    if (*answer == GATE_CANCELLED) *cu_result = GATE_CANCELLED_RESULT;
    return *answer != GATE_CANCELLED;
}

static void leave_gate(struct gate_call call, enum gate_answer answer, int cu_result) {
    if (answer == GATE_PASS) gate_leave(call, cu_result);
}

static bool fix(struct physical *physical) {
    bool is_news, stays = physical_fix(physical, &is_news);
    if (is_news) memory_tell(physical->device);
    return stays;
}

/* ---- making and ending ------------------------------------------------------------------------
 */

static void give_back(struct physical *physical) {
    const struct driver *cuda = driver_get();
    const int device = physical->device;
    for (size_t i = 0; i < physical->part_count; i++) {
        struct part *part = &physical->parts[i];
        if (!chunks_claim_for_free(&part->chunk) || ending_has_begun()) return;
        making_drop_chunk(&part->chunk);
        if (part->own.address != 0) cuda->address_free(part->own.address, part->own.bytes);
    }
    physical_remove(physical);
    memory_tell(device);
    mover_freed();
}

/* What the program has let go while it was made one allocation: the mover frees nothing. */
static void give_back_unused(void) {
    struct physical *unused;
    while ((unused = physical_take_unused()) != NULL)
        give_back(unused);
}

static void drop(struct physical *physical) {
    if (physical_drop(physical)) give_back(physical);
}

struct creation {
    CUmemAllocationProp properties;
    uint64_t bytes;
    bool fixed;
    uint64_t handle; /* of what was made */
};

static CUresult make(void *argument) {
    struct creation *creation = argument;
    struct physical *physical =
        physical_new(&creation->properties, creation->bytes, creation->fixed);
    if (physical == NULL) return MAKING_NO_HOST_MEMORY;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < physical->part_count && result == CUDA_SUCCESS; i++)
        result = device_memory_put(&physical->parts[i].chunk);
    if (result == CUDA_SUCCESS && !physical_enter(physical, &creation->handle))
        result = MAKING_NO_HOST_MEMORY;
    if (result == CUDA_SUCCESS) return result;
    for (size_t i = 0; i < physical->part_count; i++)
        making_drop_chunk(&physical->parts[i].chunk);
    free(physical);
    return result;
}

static bool can_map(const struct driver *cuda) {
    return cuda != NULL && cuda->memory_create != NULL && cuda->memory_release != NULL &&
           cuda->memory_map != NULL && cuda->memory_unmap != NULL &&
           cuda->memory_set_access != NULL;
}

/* What the driver refuses it is to refuse itself. */
static bool serves(const CUmemGenericAllocationHandle *handle, size_t bytes,
                   const CUmemAllocationProp *properties, unsigned long long flags) {
    return can_map(driver_get()) && handle != NULL && properties != NULL && flags == 0 &&
           bytes > 0 && bytes < BYTES_BEYOND_ALL && bytes % CHUNK_GRANULE == 0 &&
           properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           properties->location.id >= 0 && properties->location.id < REGISTRY_DEVICES_MAX;
}

/* In one part: sparse arrays map parts of their memory, which would not fit, and what is about to
 * be fixed for RDMA could not become one later. */
static bool stays(const CUmemAllocationProp *properties) {
    return !residency_swaps() || !driver_can_move(driver_get()) ||
           properties->allocFlags.usage != 0 ||
           (properties->allocFlags.gpuDirectRDMACapable && readers_use_rdma());
}

bool handles_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                    const CUmemAllocationProp *properties, unsigned long long flags,
                    const char *call_name, int *cu_result) {
    if (!serves(handle, bytes, properties, flags)) return false;
    give_back_unused(); /* of a wait that was cancelled */
    struct creation creation = {
        .properties = *properties, .bytes = bytes, .fixed = stays(properties)};
    creation.properties.allocFlags.compressionType = 0; /* a wish, which is not granted */
    const struct making making = {.call_name = call_name,
                                  .device = properties->location.id,
                                  .bytes = bytes,
                                  .make = make,
                                  .argument = &creation};
    *cu_result = (int)making_run(&making);
    if (*cu_result == CUDA_SUCCESS) *handle = creation.handle;
    return true;
}

bool handles_release(uint64_t handle, int *cu_result) {
    struct physical *unused;
    *cu_result = CUDA_ERROR_INVALID_VALUE;
    if (!physical_is_number(handle)) return false;
    if (!physical_release(handle, &unused)) return true;
    if (unused != NULL) give_back(unused);
    *cu_result = CUDA_SUCCESS;
    return true;
}

bool handles_retain(CUmemGenericAllocationHandle *handle, uint64_t address, int *cu_result) {
    struct physical *physical = handle == NULL ? NULL : physical_hold_at(address);
    if (physical == NULL) return false;
    physical_retain(physical);
    *handle = physical->number;
    drop(physical);
    *cu_result = CUDA_SUCCESS;
    return true;
}

/* True: it is a number of ours; of memory that is gone where there is none to hold. */
static bool hold(uint64_t handle, struct physical **physical, int *cu_result) {
    if (!physical_is_number(handle)) return false;
    *physical = physical_hold(handle);
    *cu_result = *physical != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return true;
}

bool handles_properties(CUmemAllocationProp *properties, uint64_t handle, int *cu_result) {
    struct physical *physical;
    if (properties == NULL || !hold(handle, &physical, cu_result)) return false;
    if (physical == NULL) return true;
    *properties = physical->properties;
    drop(physical);
    return true;
}

/* ---- mapping ----------------------------------------------------------------------------------
 */

static struct view *new_view(struct physical *physical, uint64_t address) {
    struct view *view = malloc(sizeof *view + physical->part_count * sizeof view->pieces[0]);
    if (view == NULL) return NULL;
    *view = (struct view){.address = address, .physical = physical};
    for (size_t i = 0; i < physical->part_count; i++) {
        struct chunk *chunk = &physical->parts[i].chunk;
        view->pieces[i] = (struct mapping){
            .address = address,
            .bytes = chunk->bytes,
            .chunk = chunk,
            .view = view,
            .access = view->access,
        };
        address += chunk->bytes;
    }
    return view;
}

/* Behind a sticky error calls pass the gate for their answer, wherever the memory is. */
static bool is_lost(const struct chunk *chunk) {
    return chunk->handle == 0;
}

/* Inside the gate: nothing moves. */
static CUresult map_view(struct view *view) {
    const struct driver *cuda = driver_get();
    CUresult result = CUDA_SUCCESS;
    size_t i;
    for (i = 0; i < view->physical->part_count && result == CUDA_SUCCESS; i++) {
        struct mapping *piece = &view->pieces[i];
        result = is_lost(piece->chunk)
                     ? CUDA_ERROR_ILLEGAL_STATE
                     : cuda->memory_map(piece->address, piece->bytes, 0, piece->chunk->handle, 0);
        piece->there = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) result = physical_enter_view(view);
    while (result != CUDA_SUCCESS && i-- > 0) /* what stays mapped there is to stay the same */
        if (device_memory_unmap(&view->pieces[i]) != CUDA_SUCCESS) fix(view->physical);
    return result;
}

static CUresult map_held(struct physical *physical, uint64_t address, size_t bytes, size_t offset) {
    if (offset != 0 || bytes != physical->bytes) return CUDA_ERROR_NOT_SUPPORTED;
    struct view *view = new_view(physical, address);
    if (view == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = map_view(view);
    if (result != CUDA_SUCCESS) free(view);
    return result;
}

/* Held within the gate alone: a handler of SIGINT may leave the wait by a jump. */
bool handles_map(uint64_t address, size_t bytes, size_t offset, uint64_t handle,
                 unsigned long long flags, const char *call_name, int *cu_result) {
    struct physical *physical;
    struct gate_call call;
    enum gate_answer answer;
    *cu_result = CUDA_ERROR_INVALID_VALUE;
    /* Where our memory is parked the driver has nothing. */
    if (!physical_is_number(handle)) return physical_range(address, bytes) != PHYSICAL_NONE;
    if (flags != 0 || (address | bytes | offset) % CHUNK_GRANULE != 0) return true;
    if (!pass_gate(&call, call_name, cu_result, &answer)) return true;
    if (hold(handle, &physical, cu_result) && physical != NULL) {
        *cu_result = (int)map_held(physical, address, bytes, offset);
        if (*cu_result != CUDA_SUCCESS) drop(physical); /* else it is the view's */
    }
    leave_gate(call, answer, *cu_result);
    return true;
}

/* Piece by piece: who has claimed one chunk waits for no other. */
static CUresult unmap_view(struct view *view) {
    struct physical *physical = view->physical;
    const size_t count = physical->part_count; /* the last one takes the view along */
    for (size_t i = 0; i < count; i++) {
        struct mapping *piece = &view->pieces[i];
        if (piece->chunk == NULL) continue; /* it has left before, and the next one could not */
        if (!chunks_claim_for_change(piece->chunk)) return CUDA_SUCCESS; /* the process ends */
        const CUresult result = device_memory_unmap(piece);
        const bool unused = physical_leave_piece(piece, result == CUDA_SUCCESS);
        mover_freed();
        if (unused) give_back(physical);
        if (result != CUDA_SUCCESS) {
            physical_reopen_view(view);
            return result;
        }
    }
    return CUDA_SUCCESS;
}

/* By somebody, as the driver says. */
static bool is_mapped(uint64_t address) {
    CUmemorytype type;
    return driver_get()->pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
           CUDA_SUCCESS;
}

/* What lies there is the driver's, if anything: it takes a range in which nothing is mapped as it
 * is, also beyond what is reserved, but not such a range alone. A view there is another thread's,
 * which unmaps it when no copy uses it. */
static CUresult unmap_others(uint64_t address, uint64_t bytes) {
    if (physical_is_in(address, bytes)) return CUDA_SUCCESS;
    const CUresult result = driver_get()->memory_unmap(address, bytes);
    for (uint64_t at = address; result != CUDA_SUCCESS && at - address < bytes; at += CHUNK_GRANULE)
        if (is_mapped(at)) return result;
    return CUDA_SUCCESS;
}

/* Whole pages alone can be mapped, and views go as a whole. */
bool handles_unmap(uint64_t address, size_t bytes, int *cu_result) {
    if (bytes == 0 || (address | bytes) % CHUNK_GRANULE != 0) return false;
    struct view *view;
    const enum physical_range range = physical_close_view(address, bytes, &view);
    if (range == PHYSICAL_NONE && !physical_is_in(address, bytes)) return false;
    CUresult result = range == PHYSICAL_CUT ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    const uint64_t end = address + bytes;
    for (uint64_t at = address; at != end && result == CUDA_SUCCESS;) {
        const uint64_t until = view != NULL ? view->address : end;
        const uint64_t next = view != NULL ? until + view->physical->bytes : end;
        if (until != at) result = unmap_others(at, until - at);
        if (result == CUDA_SUCCESS && view != NULL)
            result = unmap_view(view);
        else if (view != NULL)
            physical_reopen_view(view);
        at = next;
        if (at != end && result == CUDA_SUCCESS) physical_close_view(at, end - at, &view);
    }
    *cu_result = (int)result;
    return true;
}

/* ---- access -----------------------------------------------------------------------------------
 */

/* The driver stops at a hole; memory of others between ours is none. */
static void note_access(uint64_t address, uint64_t end, int device, CUmemAccess_flags flags) {
    while ((address = physical_note_access(address, end, device, (uint8_t)flags)) < end &&
           is_mapped(address))
        address += CHUNK_GRANULE;
}

/* What cannot be given again after a move stays. */
static void note_accesses(uint64_t address, uint64_t bytes, const CUmemAccessDesc *accesses,
                          size_t count) {
    for (size_t i = 0; i < count; i++) {
        const CUmemLocation *to = &accesses[i].location;
        const bool is_device =
            to->type == CU_MEM_LOCATION_TYPE_DEVICE && to->id >= 0 && to->id < REGISTRY_DEVICES_MAX;
        if (is_device)
            note_access(address, address + bytes, to->id, accesses[i].flags);
        else
            for (uint64_t at = address; at - address < bytes; at += CHUNK_GRANULE)
                handles_fix(at);
    }
}

bool handles_set_access(uint64_t address, size_t bytes, const CUmemAccessDesc *accesses,
                        size_t count, const char *call_name, int *cu_result) {
    struct gate_call call;
    enum gate_answer answer;
    const enum physical_range range = physical_range(address, bytes);
    if (accesses == NULL || range == PHYSICAL_NONE) return false;
    if (range == PHYSICAL_CUT) {
        *cu_result = CUDA_ERROR_INVALID_VALUE;
        return true;
    }
    if (!pass_gate(&call, call_name, cu_result, &answer)) return true;
    *cu_result = (int)driver_get()->memory_set_access(address, bytes, accesses, count);
    if (*cu_result == CUDA_SUCCESS) note_accesses(address, bytes, accesses, count);
    leave_gate(call, answer, *cu_result);
    return true;
}

bool handles_get_access(unsigned long long *flags, const CUmemLocation *location, uint64_t address,
                        int *cu_result) {
    if (flags == NULL || location == NULL || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        location->id < 0 || location->id >= REGISTRY_DEVICES_MAX)
        return false;
    struct physical_place place;
    CUdevice device;
    if (!physical_look(address, &place) ||
        driver_get()->device_get(&device, location->id) != CUDA_SUCCESS)
        return false;
    *flags = place.access[location->id];
    *cu_result = CUDA_SUCCESS;
    return true;
}

bool handles_refuse_free(uint64_t address, size_t bytes, int *cu_result) {
    *cu_result = CUDA_ERROR_INVALID_VALUE;
    return physical_is_in(address, bytes);
}

/* ---- what others use --------------------------------------------------------------------------
 */

bool handles_fix(uint64_t address) {
    struct physical *physical = physical_hold_at(address);
    if (physical == NULL) return false;
    fix(physical);
    drop(physical);
    return true;
}

struct giving {
    CUmemGenericAllocationHandle *handle;
    struct physical **held;         /* that is, from then on; NULL: none of ours */
    CUmemAllocationHandleType type; /* of an export; NONE: something else is to be done with it */
    const char *call_name;
    enum physical_whole why_not;
};

/* The driver refuses to export what was not made for it. It is asked within the gate: outside, the
 * memory moves, and the handle may be that of other memory by then. */
static CUresult ask_driver(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type) {
    union {
        int descriptor;
        char of_any_type[CU_IPC_HANDLE_SIZE];
    } made;
    const struct driver *cuda = driver_get();
    if (cuda->memory_export == NULL) return CUDA_ERROR_NOT_SUPPORTED;
    const CUresult result = cuda->memory_export(&made, handle, type, 0);
    if (result == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        close(made.descriptor);
    return result;
}

/* What has several handles of the driver's is to have one first: WHOLE_WANTED. */
static CUresult give_away(struct physical *physical, struct giving *giving) {
    const bool is_export = giving->type != CU_MEM_HANDLE_TYPE_NONE;
    CUresult result = CUDA_SUCCESS;
    giving->why_not = WHOLE_MADE;
    if (is_lost(&physical->parts[0].chunk)) return CUDA_ERROR_ILLEGAL_STATE;
    if (is_export && (physical->properties.requestedHandleTypes & giving->type) == 0)
        result = ask_driver(physical->parts[0].chunk.handle, giving->type);
    if (result != CUDA_SUCCESS) return result;
    if (physical->part_count > 1) giving->why_not = WHOLE_WANTED;
    if (physical->part_count > 1) return CUDA_ERROR_NOT_SUPPORTED;
    if (!fix(physical)) return CUDA_ERROR_ILLEGAL_STATE; /* others would get what is left behind */
    *giving->handle = physical->parts[0].chunk.handle;
    return CUDA_SUCCESS;
}

/* False: it was cancelled. */
static bool give_away_in_turn(struct giving *giving, bool *may_wait, int *cu_result) {
    struct physical *physical;
    struct gate_call call;
    enum gate_answer answer;
    giving->why_not = WHOLE_MADE;
    if (!pass_gate(&call, giving->call_name, cu_result, &answer)) return false;
    *may_wait = answer == GATE_PASS;
    if (hold(*giving->handle, &physical, cu_result) && physical != NULL) {
        *cu_result = (int)give_away(physical, giving);
        if (*cu_result == CUDA_SUCCESS)
            *giving->held = physical;
        else
            drop(physical);
    }
    leave_gate(call, answer, *cu_result);
    return true;
}

static CUresult refused_whole(const struct giving *giving, enum physical_whole why) {
    refusal_tell_whole(why, giving->call_name);
    return why == WHOLE_NO_HOST || why == WHOLE_NO_ROOM ? CUDA_ERROR_OUT_OF_MEMORY
                                                        : CUDA_ERROR_NOT_SUPPORTED;
}

/* Somebody else's cancelled wait for the same memory ends this one's, too: it is asked for anew. */
static bool gives_away(struct giving *giving, int *cu_result) {
    const uint64_t number = *giving->handle;
    bool may_wait;
    while (give_away_in_turn(giving, &may_wait, cu_result) && giving->why_not == WHOLE_WANTED) {
        enum physical_whole answer = WHOLE_STAYS;
        if (may_wait) answer = wholes_make(number, giving->call_name);
        give_back_unused();
        if (answer == WHOLE_MADE || answer == WHOLE_NOT_ASKED || answer == WHOLE_GONE) continue;
        *cu_result =
            answer == WHOLE_WANTED ? GATE_CANCELLED_RESULT : (int)refused_whole(giving, answer);
        return false;
    }
    return *cu_result == CUDA_SUCCESS;
}

bool handles_give_away_fails(CUmemGenericAllocationHandle *handle, CUmemAllocationHandleType type,
                             struct physical **held, const char *call_name, int *cu_result) {
    struct giving giving = {.handle = handle, .held = held, .type = type, .call_name = call_name};
    *held = NULL;
    return physical_is_number(*handle) && !gives_away(&giving, cu_result);
}

/* The call has the address, which nobody else is given while the memory is mapped there. */
bool handles_give_away_at_fails(uint64_t address, const char *call_name, int *cu_result) {
    struct physical *physical = physical_hold_at(address);
    if (physical == NULL) return false;
    CUmemGenericAllocationHandle number = physical->number;
    drop(physical);
    const bool fails =
        handles_give_away_fails(&number, CU_MEM_HANDLE_TYPE_NONE, &physical, call_name, cu_result);
    handles_given(physical);
    return fails;
}

void handles_given(struct physical *held) {
    if (held != NULL) drop(held);
}

/* A thread's latest copy lives until its next one: a jump may leave the wait for the gate, and what
 * the copy holds then is not given back before the process ends. */
bool handles_lend_fails(CUarrayMapInfo **maps, unsigned int count, struct handles_lent *lent,
                        const char *call_name, int *cu_result) {
    static _Thread_local void *copy __attribute__((tls_model("initial-exec")));
    *lent = (struct handles_lent){.count = 0};
    if (*maps == NULL || count == 0) return false;
    void *fresh = realloc(copy, count * (sizeof **maps + sizeof *lent->held));
    *cu_result = CUDA_ERROR_OUT_OF_MEMORY;
    if (fresh == NULL) return true;
    CUarrayMapInfo *map = copy = memcpy(fresh, *maps, count * sizeof **maps);
    *maps = map;
    lent->held = (struct physical **)(map + count);
    for (; lent->count < count; lent->count++, map++) {
        struct physical **held = &lent->held[lent->count];
        *held = NULL;
        if (map->memHandleType == CU_MEM_HANDLE_TYPE_GENERIC &&
            handles_give_away_fails(&map->memHandle.memHandle, CU_MEM_HANDLE_TYPE_NONE, held,
                                    call_name, cu_result)) {
            handles_lent_ended(lent);
            return true;
        }
    }
    return false;
}

void handles_lent_ended(const struct handles_lent *lent) {
    for (size_t i = 0; i < lent->count; i++)
        handles_given(lent->held[i]);
}

/* ---- contexts ---------------------------------------------------------------------------------
 */

void handles_context_leaves(const char *call_name) {
    struct gate_call call;
    enum gate_answer answer;
    int cu_result;
    if (ending_has_begun() || !(physical_any_away() || pooled_any_away())) return;
    if (pass_gate(&call, call_name, &cu_result, &answer)) leave_gate(call, answer, 0);
}

void handles_context_ended(uint64_t generation, const void *context, int device) {
    void *const other = contexts_of_device(device);
    physical_context_ended(context, device, other);
    pooled_context_ended(generation, context, device, other);
}
