#include "surface/pointers.h"

#include <string.h>

#include "allocate/backing.h"
#include "allocate/handles.h"
#include "allocate/memory.h"
#include "allocate/pooling.h"
#include "base/log.h"
#include "device/peers.h"
#include "gate/gate.h"
#include "memory/blocks.h"
#include "memory/chunks.h"
#include "memory/device_memory.h"
#include "memory/physical.h"
#include "memory/pooled.h"
#include "sharing/ipc_imports.h"

#define ASKED_AGAIN 3

static bool has_context(void) {
    return memory_current_device() >= 0;
}

static bool find(uint64_t address, struct allocated *found) {
    return blocks_find(address, found) || pooled_find(address, found) ||
           imports_find(address, found);
}

/* What the program has mapped, where its current device may use it. */
static bool find_reached(uint64_t address, struct allocated *found) {
    struct physical_place place;
    const int device = memory_current_device();
    if (device < 0 || device >= REGISTRY_DEVICES_MAX || !physical_look(address, &place) ||
        place.access[device] == 0)
        return false;
    *found = (struct allocated){.address = place.address, .bytes = place.bytes};
    return true;
}

/* In a block of ours, but behind the bytes that were asked for, or freed: the driver would say that
 * something is mapped there. */
static bool lies_here(uint64_t address) {
    return blocks_cover(address) || pooled_cover(address) || imports_cover(address);
}

bool pointers_range(uint64_t address, uint64_t *base, size_t *bytes, int *cu_result) {
    struct allocated found;
    if (!has_context()) return false;
    if (!find(address, &found) && !find_reached(address, &found)) {
        *cu_result = CUDA_ERROR_NOT_FOUND;
        return lies_here(address) || physical_look(address, &(struct physical_place){0});
    }
    if (base != NULL) *base = found.address;
    if (bytes != NULL) *bytes = found.bytes;
    *cu_result = CUDA_SUCCESS;
    return true;
}

/* ---- what other devices use -------------------------------------------------------------------
 */

static enum gate_answer pass_gate(struct gate_call call, int *cu_result) {
    const enum gate_answer answer = gate_enter(call);
    if (answer == GATE_CANCELLED) *cu_result = GATE_CANCELLED_RESULT;
    return answer;
}

/* Where what lies there ends; 0: nothing of ours does. */
static uint64_t fix_at(uint64_t address) {
    struct physical_place place;
    struct allocated found;
    if (physical_look(address, &place)) {
        handles_fix(address);
        return place.address + place.bytes;
    }
    const bool is_pooled = pooled_cover(address);
    if (is_pooled ? pooling_fix(address) : backing_fix(address))
        if (find(address, &found)) return found.block_address + found.block_bytes;
    if (is_pooled || blocks_cover(address)) return address / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES;
    return 0;
}

void pointers_fix(uint64_t address, uint64_t bytes) {
    uint64_t next;
    for (uint64_t at = address; at - address < bytes && (next = fix_at(at)) > at; at = next)
        continue;
}

bool pointers_give_on_fails(uint64_t address, uint64_t bytes, int *cu_result) {
    struct allocated found;
    bool is_kept = true;
    *cu_result = CUDA_ERROR_NOT_SUPPORTED;
    for (uint64_t at = address; at - address < bytes && imports_find(at, &found);
         at = found.block_address + found.block_bytes)
        is_kept = imports_keep(at) && is_kept;
    return !is_kept;
}

/* With them other devices find the memory, and the driver marks it. It has our memory in chunks,
 * and the program knows one allocation. */
static bool tokens(uint64_t address, void *data, int *cu_result) {
    struct allocated found = {0};
    const struct driver *cuda = driver_get();
    const struct gate_call call = {GATE_LOOK, GATE_STREAM_LEGACY, NULL, "cuPointerGetAttribute"};
    const bool is_block = blocks_find(address, &found);
    if (!is_block && !pooled_cover(address) && !physical_look(address, &(struct physical_place){0}))
        return false;
    const enum gate_answer answer = pass_gate(call, cu_result);
    if (answer == GATE_CANCELLED) return true;
    const CUpointer_attribute which = CU_POINTER_ATTRIBUTE_P2P_TOKENS;
    *cu_result = (int)cuda->pointer_attribute(data, which, address);
    if (*cu_result == CUDA_SUCCESS) {
        CUDA_POINTER_ATTRIBUTE_P2P_TOKENS others;
        pointers_fix(address, 1);
        for (uint64_t at = 0; at < found.block_bytes; at += PAGE_BYTES)
            cuda->pointer_attribute(&others, which, found.block_address + at);
    }
    if (answer == GATE_PASS) gate_leave(call, *cu_result);
    return true;
}

/* ---- attributes -------------------------------------------------------------------------------
 */

/* The bytes of an attribute's answer; 0: unknown. */
static size_t answer_bytes(int attribute) {
    static const uint8_t BYTES[] = {
        [CU_POINTER_ATTRIBUTE_MEMORY_TYPE] = 4,
        [CU_POINTER_ATTRIBUTE_SYNC_MEMOPS] = 4,
        [CU_POINTER_ATTRIBUTE_IS_MANAGED] = 4,
        [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = 4,
        [CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE] = 4,
        [CU_POINTER_ATTRIBUTE_MAPPED] = 4,
        [CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] = 4,
        [CU_POINTER_ATTRIBUTE_ACCESS_FLAGS] = 4,
        [CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE] = 4,
        [CU_POINTER_ATTRIBUTE_CONTEXT] = 8,
        [CU_POINTER_ATTRIBUTE_DEVICE_POINTER] = 8,
        [CU_POINTER_ATTRIBUTE_HOST_POINTER] = 8,
        [CU_POINTER_ATTRIBUTE_BUFFER_ID] = 8,
        [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR] = 8,
        [CU_POINTER_ATTRIBUTE_RANGE_SIZE] = 8,
        [CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES] = 8,
        [CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE] = 8,
        [CU_POINTER_ATTRIBUTE_MAPPING_SIZE] = 8,
        [CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR] = 8,
        [CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID] = 8,
    };
    return (size_t)attribute < sizeof BYTES ? BYTES[attribute] : 0;
}

/* The driver marks what other devices use (tokens), which is fixed. */
static bool is_marked(uint64_t address) {
    unsigned int mark = 0;
    const CUpointer_attribute which = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    return blocks_is_fixed(address) &&
           driver_get()->pointer_attribute(&mark, which, address) == CUDA_SUCCESS && mark != 0;
}

static uint64_t value_of(int attribute, uint64_t address, const struct allocated *found) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return (uintptr_t)found->context;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return CU_MEMORYTYPE_DEVICE;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            return address;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            return found->id;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return (uint32_t)found->device;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return found->address;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return found->bytes;
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return found->is_pooled ? found->block_address : found->address;
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return found->is_pooled ? found->block_bytes : found->bytes;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return (uintptr_t)found->pool;
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return 1;
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            if (found->is_pooled) return pooled_access(address, memory_current_device());
            return imports_cover(address) || peers_reach(memory_current_device(), found->device)
                       ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                       : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: /* not what is another process's */
            return blocks_cover(address) && device_memory_shareable(found->device);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            return is_marked(address);
        default: /* not managed, from no pool, not for the host or RDMA, without handle types */
            return 0;
    }
}

/* What the program has mapped: the driver knows it while it is there, but for what a move or a
 * split would show. */
static bool mapped_attribute(uint64_t address, int attribute, void *data, int *cu_result) {
    struct physical_place place;
    if (!driver_can_move(driver_get()) || !physical_look(address, &place)) return false;
    /* It may leave while the driver is asked. (Behind a sticky error the wait ends without it.) */
    for (int tries = 0; tries == 0 || (!place.is_here && tries < ASKED_AGAIN); tries++) {
        if (!place.is_here && pointers_wait_fails("cuPointerGetAttribute", cu_result)) return true;
        *cu_result =
            (int)driver_get()->pointer_attribute(data, (CUpointer_attribute)attribute, address);
        if (!physical_look(address, &place)) return true;
    }
    if (*cu_result != CUDA_SUCCESS) return true;
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) *(uint64_t *)data = place.address;
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE) *(uint64_t *)data = place.bytes;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID) *(uint64_t *)data = place.id;
    return true;
}

static bool mapped_attributes(uint64_t address, unsigned int count, const int *attributes,
                              void **data, int *cu_result) {
    if (!physical_look(address, &(struct physical_place){0})) return false;
    for (unsigned int i = 0; i < count; i++)
        if (data[i] == NULL || answer_bytes(attributes[i]) == 0) return false;
    for (unsigned int i = 0; i < count; i++) {
        memset(data[i], 0, answer_bytes(attributes[i]));
        if (!mapped_attribute(address, attributes[i], data[i], cu_result)) return false;
        if (*cu_result == GATE_CANCELLED_RESULT) return true;
    }
    *cu_result = CUDA_SUCCESS;
    return true;
}

bool pointers_attribute(uint64_t address, int attribute, void *data, int *cu_result) {
    struct allocated found;
    if (data == NULL || !has_context()) return false;
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) return tokens(address, data, cu_result);
    if (mapped_attribute(address, attribute, data, cu_result)) return true;
    *cu_result = CUDA_ERROR_INVALID_VALUE;
    if (!find(address, &found)) return lies_here(address);
    if (answer_bytes(attribute) == 0) return false; /* newer than this list, or tokens for RDMA */
    if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER) return true;
    const uint64_t value = value_of(attribute, address, &found);
    memcpy(data, &value, answer_bytes(attribute));
    *cu_result = CUDA_SUCCESS;
    return true;
}

static bool is_ours(uint64_t address) {
    return lies_here(address) || physical_look(address, &(struct physical_place){0});
}

static bool has_tokens(unsigned int count, const int *attributes) {
    for (unsigned int i = 0; i < count; i++)
        if (attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS) return true;
    return false;
}

/* An attribute that an address does not have is no error here: its answer is zero. */
bool pointers_attributes(uint64_t address, unsigned int count, const int *attributes, void **data,
                         int *cu_result) {
    struct allocated found;
    if (count == 0 || attributes == NULL || data == NULL || !has_context()) return false;
    *cu_result = CUDA_ERROR_INVALID_VALUE; /* tokens are given one by one */
    if (is_ours(address) && has_tokens(count, attributes)) return true;
    if (mapped_attributes(address, count, attributes, data, cu_result)) return true;
    const bool known = find(address, &found);
    if (!known && !lies_here(address)) return false;
    for (unsigned int i = 0; i < count; i++)
        if (data[i] == NULL || answer_bytes(attributes[i]) == 0) return false;
    for (unsigned int i = 0; i < count; i++) {
        uint64_t value = 0;
        if (known)
            value = value_of(attributes[i], address, &found);
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            value = (uint32_t)CU_DEVICE_INVALID;
        memcpy(data[i], &value, answer_bytes(attributes[i]));
    }
    *cu_result = CUDA_SUCCESS;
    return true;
}

/* ---- what a plain allocation is not for -------------------------------------------------------
 */

bool pointers_refuse(uint64_t address, int *cu_result) {
    *cu_result = CUDA_ERROR_INVALID_VALUE;
    return lies_here(address);
}

bool pointers_wait_fails(const char *call_name, int *cu_result) {
    if (chunks_all_here()) return false;
    const struct gate_call call = {GATE_LOOK, GATE_STREAM_LEGACY, NULL, call_name};
    const enum gate_answer answer = pass_gate(call, cu_result);
    if (answer == GATE_PASS) gate_leave(call, 0);
    return answer == GATE_CANCELLED;
}
