#define _GNU_SOURCE
#include "surface/launch.h"

#include <string.h>

#include "capture/submit.h"
#include "modules/builtin.h"
#include "modules/module.h"
#include "sim_api.h"
#include "streams/resolve.h"
#include "streams/stream.h"

#define THREADS_PER_BLOCK_MAX 1024u
#define SHARED_BYTES_DEFAULT_MAX 49152u

static bool shape_is_launchable(const struct launch_shape *shape, const struct function *function) {
    const unsigned *grid = shape->grid;
    const unsigned *block = shape->block;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return false;
    if (grid[0] > 2147483647u || grid[1] > 65535u || grid[2] > 65535u) return false;
    if (block[0] == 0 || block[1] == 0 || block[2] == 0) return false;
    if (block[0] > 1024 || block[1] > 1024 || block[2] > 64) return false;
    if (block[0] * block[1] * block[2] > THREADS_PER_BLOCK_MAX) return false;
    unsigned shared_max = function->dynamic_shared_bytes_max != 0
                              ? (unsigned)function->dynamic_shared_bytes_max
                              : SHARED_BYTES_DEFAULT_MAX;
    return shape->shared_bytes <= shared_max;
}

static CUresult copy_packed(const struct builtin *builtin, void **extra, unsigned char *to) {
    const unsigned char *buffer = NULL;
    size_t size = 0;
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[i + 1];
        } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            size = *(size_t *)extra[i + 1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (int i = 0; i < builtin->parameter_count; i++) {
        const struct builtin_parameter *parameter = &builtin->parameters[i];
        if (buffer == NULL || parameter->offset + parameter->bytes > size)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(to + parameter->offset, buffer + parameter->offset, parameter->bytes);
    }
    return CUDA_SUCCESS;
}

static CUresult copy_pointed(const struct builtin *builtin, void **parameters, unsigned char *to) {
    if (parameters == NULL && builtin->parameter_count > 0) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < builtin->parameter_count; i++)
        memcpy(to + builtin->parameters[i].offset, parameters[i], builtin->parameters[i].bytes);
    return CUDA_SUCCESS;
}

CUresult launch_fill(struct op *op, const void *handle, const struct launch_shape *shape,
                     void **parameters, void **extra) {
    const struct function *function = function_check(handle);
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (!shape_is_launchable(shape, function)) return CUDA_ERROR_INVALID_VALUE;
    if (parameters != NULL && extra != NULL) return CUDA_ERROR_INVALID_VALUE;
    if (function->builtin == NULL) return CUDA_ERROR_NOT_SUPPORTED;
    op->kind = OP_LAUNCH;
    op->launch.builtin = function->builtin;
    if (extra != NULL) return copy_packed(function->builtin, extra, op->launch.parameters);
    return copy_pointed(function->builtin, parameters, op->launch.parameters);
}

static CUresult launch(const void *function, const struct launch_shape *shape, CUstream handle,
                       void **parameters, void **extra) {
    struct stream *stream = NULL;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct op op = {.kind = OP_LAUNCH};
    result = launch_fill(&op, function, shape, parameters, extra);
    if (result != CUDA_SUCCESS) return result;
    return submit(stream, &op, NULL);
}

CUresult sim_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                            unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                            unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                            void **kernelParams, void **extra) {
    struct launch_shape shape = {.grid = {gridDimX, gridDimY, gridDimZ},
                                 .block = {blockDimX, blockDimY, blockDimZ},
                                 .shared_bytes = sharedMemBytes};
    return launch(f, &shape, hStream, kernelParams, extra);
}

CUresult sim_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                              void **extra) {
    if (config == NULL || (config->numAttrs > 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    struct launch_shape shape = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                                 .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                                 .shared_bytes = config->sharedMemBytes};
    return launch(f, &shape, config->hStream, kernelParams, extra);
}

CUresult sim_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                       unsigned int gridDimZ, unsigned int blockDimX,
                                       unsigned int blockDimY, unsigned int blockDimZ,
                                       unsigned int sharedMemBytes, CUstream hStream,
                                       void **kernelParams) {
    struct launch_shape shape = {.grid = {gridDimX, gridDimY, gridDimZ},
                                 .block = {blockDimX, blockDimY, blockDimZ},
                                 .shared_bytes = sharedMemBytes};
    if (function_check(f) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    int blocks = 0;
    int threads = (int)(blockDimX * blockDimY * blockDimZ);
    CUresult result =
        sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, threads, sharedMemBytes);
    if (result != CUDA_SUCCESS) return result;
    uint64_t wanted = (uint64_t)gridDimX * gridDimY * gridDimZ;
    if (wanted > (uint64_t)blocks * LAUNCH_MULTIPROCESSORS)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return launch(f, &shape, hStream, kernelParams, NULL);
}
