/* The simulated libnvidia-ml.so.1: initialisation, the system's versions, texts of errors. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nvml/nvml_rest.h"
#include "nvml/nvml_state.h"

struct nvmlDevice_st {
    char unused;
};

static struct nvmlDevice_st handles[SIM_DEVICES_MAX];         /* their addresses alone matter */
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER; /* guards init_count */
static unsigned int init_count;
static struct sim_segment *_Atomic open_segment;

static nvmlReturn_t init(void) {
    pthread_mutex_lock(&init_lock);
    struct sim_segment *segment = segment_open();
    if (segment != NULL) {
        init_count++;
        atomic_store(&open_segment, segment);
    }
    pthread_mutex_unlock(&init_lock);
    return segment == NULL ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_SUCCESS;
}

nvmlReturn_t nvmlInit(void) {
    return init();
}
nvmlReturn_t nvmlInit_v2(void) {
    return init();
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    if ((flags & ~(unsigned int)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH)) != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    return init();
}

nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
    pthread_mutex_lock(&init_lock);
    if (init_count > 0) {
        if (--init_count == 0) atomic_store(&open_segment, NULL);
        result = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&init_lock);
    return result;
}

struct sim_segment *nvml_segment(void) {
    return atomic_load(&open_segment);
}

int nvml_not_simulated(void) {
    return nvml_segment() == NULL ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_NOT_SUPPORTED;
}

nvmlDevice_t nvml_handle(const struct sim_device *device) {
    return &handles[device - nvml_segment()->devices];
}

nvmlReturn_t nvml_device(nvmlDevice_t handle, const struct sim_device **device) {
    struct sim_segment *segment = nvml_segment();
    if (segment == NULL) return NVML_ERROR_UNINITIALIZED;
    uintptr_t place = (uintptr_t)handle - (uintptr_t)handles;
    if (handle == NULL || place >= segment->device_count) return NVML_ERROR_INVALID_ARGUMENT;
    if (atomic_load(&segment->devices[place].lost)) return NVML_ERROR_GPU_IS_LOST;
    *device = &segment->devices[place];
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_find(nvml_match matches, const void *wanted, unsigned int index,
                       nvmlReturn_t missing, nvmlDevice_t *handle) {
    struct sim_segment *segment = nvml_segment();
    if (segment == NULL) return NVML_ERROR_UNINITIALIZED;
    if (handle == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t d = 0; d < segment->device_count; d++) {
        struct sim_device *device = &segment->devices[d];
        if (!matches(device, wanted) || index-- > 0) continue;
        if (atomic_load(&device->lost)) return NVML_ERROR_GPU_IS_LOST;
        *handle = nvml_handle(device);
        return NVML_SUCCESS;
    }
    return missing;
}

nvmlReturn_t nvml_copy_text(const char *text, char *target, unsigned int length) {
    if (target == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    size_t size = strlen(text) + 1;
    if (size > length) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(target, text, size);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    if (nvml_segment() == NULL) return NVML_ERROR_UNINITIALIZED;
    return nvml_copy_text("580.00.sim", version, length);
}

/* The library answers this one without being initialised. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    return nvml_copy_text("13.580.00.sim", version, length);
}

static nvmlReturn_t cuda_driver_version(int *version) {
    struct sim_segment *segment = nvml_segment();
    if (version == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (segment == NULL) return NVML_ERROR_UNINITIALIZED;
    *version = (int)segment->config.driver_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return cuda_driver_version(version);
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return cuda_driver_version(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    char path[64];
    char text[256] = "";
    if (nvml_segment() == NULL) return NVML_ERROR_UNINITIALIZED;
    if (name == NULL || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/exe", pid);
    if (readlink(path, text, sizeof text - 1) <= 0) return NVML_ERROR_NOT_FOUND;
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
        case NVML_SUCCESS:
            return "Success";
        case NVML_ERROR_UNINITIALIZED:
            return "Uninitialized";
        case NVML_ERROR_INVALID_ARGUMENT:
            return "Invalid Argument";
        case NVML_ERROR_NOT_SUPPORTED:
            return "Not Supported";
        case NVML_ERROR_NO_PERMISSION:
            return "Insufficient Permissions";
        case NVML_ERROR_NOT_FOUND:
            return "Not Found";
        case NVML_ERROR_INSUFFICIENT_SIZE:
            return "Insufficient Size";
        case NVML_ERROR_DRIVER_NOT_LOADED:
            return "Driver Not Loaded";
        case NVML_ERROR_FUNCTION_NOT_FOUND:
            return "Function Not Found";
        case NVML_ERROR_GPU_IS_LOST:
            return "GPU is lost";
        case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
            return "Argument version mismatch";
        default:
            return "Unknown Error";
    }
}
