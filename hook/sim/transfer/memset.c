/* cuMemset*. */
#define _GNU_SOURCE
#include "capture/capture.h"
#include "capture/submit.h"
#include "memory/memory.h"
#include "process/context.h"
#include "sim_api.h"
#include "streams/resolve.h"
#include "streams/stream.h"

/* Memsets of device memory do not wait, also where they have no stream argument. */
static CUresult memset_box(CUdeviceptr to, size_t pitch, uint32_t value, uint32_t element_bytes,
                           size_t width, size_t height, bool synchronous, CUstream handle) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS && synchronous) result = capture_forbid_synchronous_copy(stream);
    if (result != CUDA_SUCCESS) return result;
    if (width == 0 || height == 0) return CUDA_SUCCESS;
    if (to % element_bytes != 0 || (height > 1 && pitch < width * element_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!memory_reachable(stream->context, to, (height - 1) * pitch + width * element_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct op op = {.kind = OP_MEMSET,
                    .memset = {.destination = to,
                               .pitch = pitch,
                               .width = width,
                               .height = height,
                               .value = value,
                               .element_bytes = element_bytes}};
    return submit(stream, &op, NULL);
}

CUresult sim_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    return memset_box(dstDevice, 0, uc, 1, N, 1, true, NULL);
}

CUresult sim_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    return memset_box(dstDevice, 0, us, 2, N, 1, true, NULL);
}

CUresult sim_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
    return memset_box(dstDevice, 0, ui, 4, N, 1, true, NULL);
}

CUresult sim_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                             size_t Height) {
    return memset_box(dstDevice, dstPitch, uc, 1, Width, Height, true, NULL);
}

CUresult sim_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                              size_t Width, size_t Height) {
    return memset_box(dstDevice, dstPitch, us, 2, Width, Height, true, NULL);
}

CUresult sim_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                              size_t Height) {
    return memset_box(dstDevice, dstPitch, ui, 4, Width, Height, true, NULL);
}

CUresult sim_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    return memset_box(dstDevice, 0, uc, 1, N, 1, false, hStream);
}

CUresult sim_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N,
                              CUstream hStream) {
    return memset_box(dstDevice, 0, us, 2, N, 1, false, hStream);
}

CUresult sim_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
    return memset_box(dstDevice, 0, ui, 4, N, 1, false, hStream);
}

CUresult sim_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                               size_t Width, size_t Height, CUstream hStream) {
    return memset_box(dstDevice, dstPitch, uc, 1, Width, Height, false, hStream);
}

CUresult sim_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                size_t Width, size_t Height, CUstream hStream) {
    return memset_box(dstDevice, dstPitch, us, 2, Width, Height, false, hStream);
}

CUresult sim_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                size_t Width, size_t Height, CUstream hStream) {
    return memset_box(dstDevice, dstPitch, ui, 4, Width, Height, false, hStream);
}
