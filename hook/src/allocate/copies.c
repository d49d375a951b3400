#include "allocate/copies.h"

#include <string.h>

#include "base/driver.h"
#include "device/streams.h"
#include "memory/blocks.h"
#include "memory/chunks.h"
#include "memory/physical.h"
#include "memory/pooled.h"

/* One row of a box; the driver's limit is that of a pitch. */
#define LINE_BYTES_MAX ((uint64_t)1 << 30)

/* One end of a copy, as far as its address tells. */
struct end {
    CUmemorytype type;
    CUcontext context;
    bool ours;
};

static struct end end_at(uint64_t address, CUcontext current) {
    const struct driver *cuda = driver_get();
    struct allocated found;
    if (blocks_find(address, &found))
        return (struct end){CU_MEMORYTYPE_DEVICE, found.context, true};
    CUmemorytype type = 0;
    CUcontext owner = NULL;
    if (cuda->pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE)
        return (struct end){CU_MEMORYTYPE_HOST, current, false};
    if (cuda->pointer_attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address) != CUDA_SUCCESS ||
        owner == NULL)
        owner = current; /* pools, and memory that the program mapped: as the driver takes it */
    return (struct end){CU_MEMORYTYPE_DEVICE, owner, false};
}

/* An end of a box says by itself what it is. */
static struct end end_of(CUmemorytype type, uint64_t address, CUcontext current) {
    if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return (struct end){type, current, false};
    struct end end = end_at(address, current);
    end.type = type;
    return end;
}

/* False: the refusal has another reason. */
static bool can_be_named(struct end to, struct end from, struct copies_way way) {
    return (to.ours || from.ours) && to.context != NULL && from.context != NULL &&
           !(way.in_stream && streams_is_capturing(gate_stream(way.stream, way.variant)));
}

static CUcontext current_context(void) {
    const struct driver *cuda = driver_get();
    CUcontext current = NULL;
    if (!driver_can_move(cuda) || cuda->context_get_current(&current) != CUDA_SUCCESS) return NULL;
    return current;
}

static CUresult copy(const CUDA_MEMCPY3D_PEER *box, struct copies_way way) {
    const struct driver *cuda = driver_get();
    const bool per_thread = way.variant == GATE_STREAM_PER_THREAD;
    if (!way.in_stream) return per_thread ? cuda->copy_box_per_thread(box) : cuda->copy_box(box);
    return per_thread ? cuda->copy_box_in_stream_per_thread(box, way.stream)
                      : cuda->copy_box_in_stream(box, way.stream);
}

static CUresult copy_line(uint64_t to, struct end to_end, uint64_t from, struct end from_end,
                          uint64_t bytes, struct copies_way way) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS; done += LINE_BYTES_MAX) {
        const uint64_t left = bytes - done;
        const CUDA_MEMCPY3D_PEER line = {
            .srcMemoryType = from_end.type,
            .srcHost = (const void *)(uintptr_t)(from + done),
            .srcDevice = from + done,
            .srcContext = from_end.context,
            .dstMemoryType = to_end.type,
            .dstHost = (void *)(uintptr_t)(to + done),
            .dstDevice = to + done,
            .dstContext = to_end.context,
            .WidthInBytes = left < LINE_BYTES_MAX ? left : LINE_BYTES_MAX,
            .Height = 1,
            .Depth = 1,
        };
        result = copy(&line, way);
    }
    return result;
}

CUresult copies_line(uint64_t to, uint64_t from, uint64_t bytes, struct copies_way way) {
    const CUcontext current = current_context();
    if (current == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct end to_end = end_at(to, current), from_end = end_at(from, current);
    if (!can_be_named(to_end, from_end, way)) return CUDA_ERROR_INVALID_VALUE;
    return copy_line(to, to_end, from, from_end, bytes, way);
}

/* The two boxes differ by the contexts alone, for which the first has room. */
_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER) &&
                   offsetof(CUDA_MEMCPY3D, reserved0) == offsetof(CUDA_MEMCPY3D_PEER, srcContext) &&
                   offsetof(CUDA_MEMCPY3D, reserved1) == offsetof(CUDA_MEMCPY3D_PEER, dstContext) &&
                   offsetof(CUDA_MEMCPY3D, Depth) == offsetof(CUDA_MEMCPY3D_PEER, Depth),
               "a box becomes one that names its contexts");

CUresult copies_box(const CUDA_MEMCPY3D *box, struct copies_way way) {
    const CUcontext current = current_context();
    if (box == NULL || current == NULL) return CUDA_ERROR_INVALID_VALUE;
    const struct end to = end_of(box->dstMemoryType, box->dstDevice, current),
                     from = end_of(box->srcMemoryType, box->srcDevice, current);
    if (!can_be_named(to, from, way)) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D_PEER named;
    memcpy(&named, box, sizeof named);
    named.srcContext = from.context;
    named.dstContext = to.context;
    return copy(&named, way);
}

static CUDA_MEMCPY3D box_of(const CUDA_MEMCPY2D *flat) {
    return (CUDA_MEMCPY3D){
        .srcXInBytes = flat->srcXInBytes,
        .srcY = flat->srcY,
        .srcMemoryType = flat->srcMemoryType,
        .srcHost = flat->srcHost,
        .srcDevice = flat->srcDevice,
        .srcArray = flat->srcArray,
        .srcPitch = flat->srcPitch,
        .dstXInBytes = flat->dstXInBytes,
        .dstY = flat->dstY,
        .dstMemoryType = flat->dstMemoryType,
        .dstHost = flat->dstHost,
        .dstDevice = flat->dstDevice,
        .dstArray = flat->dstArray,
        .dstPitch = flat->dstPitch,
        .WidthInBytes = flat->WidthInBytes,
        .Height = flat->Height,
        .Depth = 1,
    };
}

CUresult copies_flat(const CUDA_MEMCPY2D *flat, struct copies_way way) {
    if (flat == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D box = box_of(flat);
    return copies_box(&box, way);
}

/* ---- at the end of the process ----------------------------------------------------------------
 */

/* A copy to the host, row by row. */
struct rows {
    uint64_t to, from, bytes; /* the first one */
    uint64_t to_pitch, from_pitch, to_slice, from_slice;
    uint64_t height, depth;
};

/* Nothing of this process is in flight that could still change what is parked. */
static CUresult save_row(uint64_t to, struct end to_end, uint64_t from, struct end from_end,
                         uint64_t bytes, struct copies_way way) {
    CUresult result = CUDA_SUCCESS;
    uint64_t here;
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS; done += here) {
        const void *host;
        const bool is_known = chunks_source(from + done, &host, &here);
        if (!is_known || here > bytes - done) here = bytes - done;
        if (is_known && host != NULL)
            memcpy((void *)(uintptr_t)(to + done), host, here);
        else
            result = copy_line(to + done, to_end, from + done, from_end, here, way);
    }
    return result;
}

static bool save(const struct rows *rows, struct copies_way way, int *cu_result) {
    struct physical_place place, place_of_to;
    if (chunks_all_here()) return false; /* the program's own call passes the gate */
    if (pooled_cover(rows->to) || physical_look(rows->to, &place_of_to)) return false;
    const bool is_view = physical_look(rows->from, &place);
    const bool is_there = is_view || pooled_cover(rows->from);
    const CUcontext current = current_context();
    const CUcontext copied_in = is_view && place.context != NULL ? place.context : current;
    const struct end to = end_at(rows->to, current);
    const struct end from = is_there ? (struct end){CU_MEMORYTYPE_DEVICE, copied_in, true}
                                     : end_at(rows->from, current);
    if (from.type != CU_MEMORYTYPE_DEVICE || to.type != CU_MEMORYTYPE_HOST) return false;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t z = 0; z < rows->depth; z++)
        for (uint64_t y = 0; y < rows->height && result == CUDA_SUCCESS; y++)
            result = save_row(rows->to + z * rows->to_slice + y * rows->to_pitch, to,
                              rows->from + z * rows->from_slice + y * rows->from_pitch, from,
                              rows->bytes, way);
    *cu_result = (int)result;
    return true;
}

bool copies_saved_line(uint64_t to, uint64_t from, uint64_t bytes, struct copies_way way,
                       int *cu_result) {
    const struct rows row = {.to = to, .from = from, .bytes = bytes, .height = 1, .depth = 1};
    return save(&row, way, cu_result);
}

static uint64_t or_else(uint64_t value, uint64_t otherwise) {
    return value != 0 ? value : otherwise;
}

bool copies_saved_box(const CUDA_MEMCPY3D *box, struct copies_way way, int *cu_result) {
    if (box == NULL || box->srcMemoryType == CU_MEMORYTYPE_HOST ||
        box->srcMemoryType == CU_MEMORYTYPE_ARRAY || box->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return false;
    const bool to_host = box->dstMemoryType == CU_MEMORYTYPE_HOST;
    const uint64_t to = to_host ? (uintptr_t)box->dstHost : box->dstDevice;
    struct rows rows = {
        .bytes = box->WidthInBytes,
        .to_pitch = or_else(box->dstPitch, box->WidthInBytes),
        .from_pitch = or_else(box->srcPitch, box->WidthInBytes),
        .height = box->Height,
        .depth = box->Depth,
    };
    rows.to_slice = rows.to_pitch * or_else(box->dstHeight, box->Height);
    rows.from_slice = rows.from_pitch * or_else(box->srcHeight, box->Height);
    rows.to = to + box->dstXInBytes + box->dstY * rows.to_pitch + box->dstZ * rows.to_slice;
    rows.from = box->srcDevice + box->srcXInBytes + box->srcY * rows.from_pitch +
                box->srcZ * rows.from_slice;
    return save(&rows, way, cu_result);
}

bool copies_saved_flat(const CUDA_MEMCPY2D *flat, struct copies_way way, int *cu_result) {
    if (flat == NULL) return false;
    const CUDA_MEMCPY3D box = box_of(flat);
    return copies_saved_box(&box, way, cu_result);
}
