/* What is said about managed memory, and what was said. */
#include <string.h>

#include "memory/managed.h"
#include "process/context.h"
#include "sim_api.h"
#include "transfer/prefetch.h"

struct advice {
    CUmem_advise what;
    CUmemLocation location;
};

static uint16_t bit_of(const CUmemLocation *location) {
    const int bit = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : MANAGED_HOST_BIT;
    return (uint16_t)(1u << bit);
}

static bool apply(struct managed_note *note, void *argument) {
    const struct advice *advice = argument;
    switch (advice->what) {
        case CU_MEM_ADVISE_SET_READ_MOSTLY:
        case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
            note->read_mostly = advice->what == CU_MEM_ADVISE_SET_READ_MOSTLY;
            break;
        case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
            note->preferred_type = (int8_t)advice->location.type;
            note->preferred_id = (int8_t)advice->location.id;
            break;
        case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
            note->preferred_type = CU_MEM_LOCATION_TYPE_INVALID;
            break;
        case CU_MEM_ADVISE_SET_ACCESSED_BY:
            note->accessed_by |= bit_of(&advice->location);
            break;
        default:
            note->accessed_by &= (uint16_t)~bit_of(&advice->location);
            break;
    }
    return true;
}

/* Where the advice names a place, it has to be one. */
static CUresult check_advice(struct advice *advice) {
    switch (advice->what) {
        case CU_MEM_ADVISE_SET_READ_MOSTLY:
        case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
            return CUDA_SUCCESS;
        case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
            return prefetch_check_location(&advice->location);
        case CU_MEM_ADVISE_SET_ACCESSED_BY:
        case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
            if (advice->location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
                advice->location.type != CU_MEM_LOCATION_TYPE_HOST)
                return CUDA_ERROR_INVALID_VALUE;
            return prefetch_check_location(&advice->location);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                            CUmemLocation location) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    struct advice said = {.what = advice, .location = location};
    if (result == CUDA_SUCCESS) result = check_advice(&said);
    if (result != CUDA_SUCCESS) return result;
    return managed_for_each(devPtr, count, apply, &said) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    return sim_cuMemAdvise_v2(devPtr, count, advice, prefetch_location_of(device));
}

/* What all pages of an interval have in common. */
struct common {
    struct managed_note note;
    bool begun;
    bool preferred;
    bool prefetched;
};

static bool compare(struct managed_note *note, void *argument) {
    struct common *common = argument;
    if (!common->begun) {
        *common = (struct common){.note = *note, .begun = true, .preferred = true};
        common->prefetched = true;
        return true;
    }
    common->preferred = common->preferred && note->preferred_type == common->note.preferred_type &&
                        note->preferred_id == common->note.preferred_id;
    common->prefetched = common->prefetched &&
                         note->prefetched_type == common->note.prefetched_type &&
                         note->prefetched_id == common->note.prefetched_id;
    common->note.read_mostly = common->note.read_mostly && note->read_mostly;
    common->note.accessed_by &= note->accessed_by;
    return true;
}

/* As the older calls name a place. */
static int32_t device_of(int type, int id) {
    if (type == CU_MEM_LOCATION_TYPE_INVALID) return CU_DEVICE_INVALID;
    return type == CU_MEM_LOCATION_TYPE_DEVICE ? id : CU_DEVICE_CPU;
}

static int32_t id_of(int type, int id) {
    return type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : id;
}

static void list_accessors(const struct common *common, int32_t *devices, size_t count) {
    size_t next = 0;
    for (int bit = 0; bit <= MANAGED_HOST_BIT && next < count; bit++) {
        if ((common->note.accessed_by >> bit & 1) == 0) continue;
        devices[next++] = bit == MANAGED_HOST_BIT ? CU_DEVICE_CPU : bit;
    }
    while (next < count)
        devices[next++] = CU_DEVICE_INVALID;
}

static CUresult answer(void *data, size_t size, CUmem_range_attribute attribute,
                       const struct common *common) {
    const struct managed_note *note = &common->note;
    const int preferred = common->preferred ? note->preferred_type : 0;
    const int prefetched = common->prefetched ? note->prefetched_type : 0;
    int32_t value = 0;
    switch (attribute) {
        case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
            value = note->read_mostly;
            break;
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
            value = device_of(preferred, note->preferred_id);
            break;
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
            value = device_of(prefetched, note->prefetched_id);
            break;
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
            value = preferred;
            break;
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
            value = id_of(preferred, note->preferred_id);
            break;
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
            value = prefetched;
            break;
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
            value = id_of(prefetched, note->prefetched_id);
            break;
        case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
            if (size == 0 || size % sizeof value != 0) return CUDA_ERROR_INVALID_VALUE;
            list_accessors(common, data, size / sizeof value);
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (size != sizeof value) return CUDA_ERROR_INVALID_VALUE;
    memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                    CUdeviceptr devPtr, size_t count) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    struct common common = {.begun = false};
    if (data == NULL || !managed_for_each(devPtr, count, compare, &common))
        return CUDA_ERROR_INVALID_VALUE;
    return answer(data, dataSize, attribute, &common);
}

CUresult sim_cuMemRangeGetAttributes(void **data, size_t *dataSizes,
                                     CUmem_range_attribute *attributes, size_t numAttributes,
                                     CUdeviceptr devPtr, size_t count) {
    if (data == NULL || dataSizes == NULL || attributes == NULL || numAttributes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numAttributes; i++) {
        CUresult result =
            sim_cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}
