#define _GNU_SOURCE
#include "transfer/array.h"

#include "process/context.h"
#include "process/objects.h"
#include "sim_api.h"

struct array {
    struct object object;
    CUdeviceptr address;
    uint64_t row_bytes;
    CUDA_ARRAY3D_DESCRIPTOR shape;
};

static struct object_pool array_pool = OBJECT_POOL(struct array, 65536);

static size_t element_bytes(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return 1;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return 2;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return 4;
        default:
            return 0;
    }
}

bool array_place(CUarray handle, uint64_t *address, uint64_t *row_bytes, uint64_t *rows) {
    const struct array *array = object_check(&array_pool, handle);
    if (array == NULL) return false;
    *address = array->address;
    *row_bytes = array->row_bytes;
    *rows = array->shape.Height == 0 ? 1 : array->shape.Height;
    return true;
}

CUresult sim_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (pHandle == NULL || pAllocateArray == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_ARRAY3D_DESCRIPTOR *shape = pAllocateArray;
    bool channels = shape->NumChannels == 1 || shape->NumChannels == 2 || shape->NumChannels == 4;
    size_t element = element_bytes(shape->Format) * shape->NumChannels;
    if (!channels || element == 0 || shape->Width == 0) return CUDA_ERROR_INVALID_VALUE;
    struct array *array = object_take(&array_pool);
    if (array == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    array->shape = *shape;
    array->row_bytes = shape->Width * element;
    size_t rows = (shape->Height == 0 ? 1 : shape->Height) * (shape->Depth == 0 ? 1 : shape->Depth);
    result = sim_cuMemAlloc_v2(&array->address, array->row_bytes * rows);
    if (result != CUDA_SUCCESS) {
        object_drop(&array_pool, array);
        return result;
    }
    *pHandle = (CUarray)array;
    return CUDA_SUCCESS;
}

CUresult sim_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray) {
    if (pAllocateArray == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = pAllocateArray->Width,
                                     .Height = pAllocateArray->Height,
                                     .Format = pAllocateArray->Format,
                                     .NumChannels = pAllocateArray->NumChannels};
    return sim_cuArray3DCreate_v2(pHandle, &shape);
}

CUresult sim_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
    const struct array *array = object_check(&array_pool, hArray);
    if (pArrayDescriptor == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (array == NULL) return CUDA_ERROR_INVALID_HANDLE;
    *pArrayDescriptor = array->shape;
    return CUDA_SUCCESS;
}

CUresult sim_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
    CUDA_ARRAY3D_DESCRIPTOR shape;
    if (pArrayDescriptor == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_cuArray3DGetDescriptor_v2(&shape, hArray);
    if (result != CUDA_SUCCESS) return result;
    *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){.Width = shape.Width,
                                                .Height = shape.Height,
                                                .Format = shape.Format,
                                                .NumChannels = shape.NumChannels};
    return CUDA_SUCCESS;
}

CUresult sim_cuArrayDestroy(CUarray hArray) {
    struct array *array = object_check(&array_pool, hArray);
    if (array == NULL) return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_cuMemFree_v2(array->address);
    if (result != CUDA_SUCCESS) return result;
    object_leave_to_kill(array);
    object_drop(&array_pool, array);
    return result;
}
