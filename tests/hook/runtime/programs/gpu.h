/* What the programs share: a context, the built-in launches, and errors in words. */
#ifndef TESTS_GPU_H
#define TESTS_GPU_H

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct gpu {
    CUcontext context;
    CUfunction spin, poll_flag, assert_fail, fill, checksum;
};

static inline void check(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return;
    fprintf(stderr, "%s: %d\n", what, (int)result);
    exit(3);
}

static inline char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) exit(4);
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(1, bytes + 1);
    if (text == NULL || fread(text, 1, bytes, file) != bytes) exit(4);
    fclose(file);
    return text;
}

/* The primary context of a device, current on this thread, with the built-in launches. */
static inline struct gpu gpu_open(int ordinal) {
    struct gpu gpu;
    CUdevice device;
    CUmodule module;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, ordinal), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&gpu.context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(gpu.context), "cuCtxSetCurrent");
    char *text = read_text(BUILTINS_PTX);
    check(cuModuleLoadData(&module, text), "cuModuleLoadData");
    free(text);
    check(cuModuleGetFunction(&gpu.spin, module, "spin"), "spin");
    check(cuModuleGetFunction(&gpu.poll_flag, module, "poll_flag"), "poll_flag");
    check(cuModuleGetFunction(&gpu.assert_fail, module, "assert_fail"), "assert_fail");
    check(cuModuleGetFunction(&gpu.fill, module, "fill"), "fill");
    check(cuModuleGetFunction(&gpu.checksum, module, "checksum"), "checksum");
    return gpu;
}

static inline CUresult gpu_spin(const struct gpu *gpu, CUstream stream, uint64_t ns) {
    void *arguments[] = {&ns};
    return cuLaunchKernel(gpu->spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

#endif
