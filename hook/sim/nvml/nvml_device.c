/* The simulated libnvidia-ml.so.1: devices, MIG instances, what they are and how busy they are. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "machine/visible.h"
#include "nvml/nvml_state.h"

static bool is_physical(const struct sim_device *device, const void *wanted) {
    (void)wanted;
    return device->role != SIM_DEVICE_MIG_INSTANCE;
}

static bool is_instance_of(const struct sim_device *device, const void *parent) {
    return device->role == SIM_DEVICE_MIG_INSTANCE &&
           &nvml_segment()->devices[device->parent] == parent;
}

static bool has_uuid(const struct sim_device *device, const void *wanted) {
    char text[48];
    visible_uuid_text(device, text);
    return strcasecmp(text, wanted) == 0;
}

struct bus_id {
    unsigned int domain, bus, device;
};

static bool parse_bus_id(const char *text, struct bus_id *id) {
    unsigned int function = 0;
    int end = 0;
    return sscanf(text, "%x:%x:%x.%x%n", &id->domain, &id->bus, &id->device, &function, &end) ==
               4 &&
           text[end] == '\0' && function == 0;
}

static bool has_bus_id(const struct sim_device *device, const void *wanted) {
    struct bus_id id;
    return is_physical(device, NULL) && parse_bus_id(device->pci_bus_id, &id) &&
           memcmp(&id, wanted, sizeof id) == 0;
}

static nvmlReturn_t count_physical(unsigned int *count) {
    struct sim_segment *segment = nvml_segment();
    if (segment == NULL) return NVML_ERROR_UNINITIALIZED;
    if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    for (uint32_t d = 0; d < segment->device_count; d++)
        if (is_physical(&segment->devices[d], NULL)) ++*count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) {
    return count_physical(count);
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    return count_physical(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    return nvml_find(is_physical, NULL, index, NVML_ERROR_INVALID_ARGUMENT, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    if (nvml_segment() == NULL) return NVML_ERROR_UNINITIALIZED;
    if (uuid == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (strncmp(uuid, "GPU-", 4) != 0 && strncmp(uuid, "MIG-", 4) != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    return nvml_find(has_uuid, uuid, 0, NVML_ERROR_NOT_FOUND, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    struct bus_id id;
    if (nvml_segment() == NULL) return NVML_ERROR_UNINITIALIZED;
    if (bus_id == NULL || !parse_bus_id(bus_id, &id)) return NVML_ERROR_INVALID_ARGUMENT;
    return nvml_find(has_bus_id, &id, 0, NVML_ERROR_NOT_FOUND, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned int length) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    return result != NVML_SUCCESS ? result : nvml_copy_text(device->name, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned int length) {
    const struct sim_device *device;
    char text[48];
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    visible_uuid_text(device, text);
    return nvml_copy_text(text, uuid, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned int *index) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (index == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *index = device->instance;
    if (!is_physical(device, NULL)) return NVML_SUCCESS;
    *index = 0;
    for (const struct sim_device *d = nvml_segment()->devices; d < device; d++)
        if (is_physical(d, NULL)) ++*index;
    return NVML_SUCCESS;
}

/* One number of a whole device; MIG instances have no such number. */
static nvmlReturn_t number_of_physical(nvmlDevice_t handle, unsigned int *target,
                                       unsigned int value) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (target == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (!is_physical(device, NULL)) return NVML_ERROR_NOT_SUPPORTED;
    *target = value;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned int *minor) {
    nvmlReturn_t result = number_of_physical(handle, minor, 0);
    return result != NVML_SUCCESS ? result : nvmlDeviceGetIndex(handle, minor);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t handle, nvmlComputeMode_t *mode) {
    return number_of_physical(handle, (unsigned int *)mode, NVML_COMPUTEMODE_DEFAULT);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t handle, nvmlEnableState_t *mode) {
    return number_of_physical(handle, (unsigned int *)mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t handle, nvmlBrandType_t *brand) {
    return number_of_physical(handle, (unsigned int *)brand, NVML_BRAND_UNKNOWN);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (major == NULL || minor == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *major = 9;
    *minor = 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t pci_info(nvmlDevice_t handle, nvmlPciInfo_t *pci) {
    const struct sim_device *device;
    struct bus_id id;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (pci == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (!parse_bus_id(device->pci_bus_id, &id)) return NVML_ERROR_UNKNOWN;
    memset(pci, 0, sizeof *pci);
    pci->domain = id.domain;
    pci->bus = id.bus;
    pci->device = id.device;
    pci->pciDeviceId = 0x10de; /* the vendor; the device is none that was ever built */
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", id.domain & 0xffff,
             id.bus & 0xff, id.device & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", id.domain, id.bus, id.device);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci) {
    return pci_info(d, pci);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, nvmlPciInfo_t *pci) {
    return pci_info(d, pci);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned int *current,
                                  unsigned int *pending) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (current == NULL || pending == NULL || !is_physical(device, NULL))
        return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending =
        device->role == SIM_DEVICE_MIG_PARENT ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned int *is_mig) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (is_mig == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *is_mig = !is_physical(device, NULL);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned int *count) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    bool enabled = device->role == SIM_DEVICE_MIG_PARENT;
    return number_of_physical(handle, count, enabled ? nvml_segment()->config.mig_instances : 0);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned int index,
                                                 nvmlDevice_t *instance) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    return nvml_find(is_instance_of, device, index, NVML_ERROR_NOT_FOUND, instance);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t handle,
                                                          nvmlDevice_t *parent) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (parent == NULL || is_physical(device, NULL)) return NVML_ERROR_INVALID_ARGUMENT;
    *parent = nvml_handle(&nvml_segment()->devices[device->parent]);
    return NVML_SUCCESS;
}

static nvmlReturn_t instance_id(nvmlDevice_t handle, unsigned int *id, bool of_compute) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (id == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (is_physical(device, NULL)) return NVML_ERROR_NOT_SUPPORTED;
    *id = of_compute ? 0 : device->instance + 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned int *id) {
    return instance_id(handle, id, false);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned int *id) {
    return instance_id(handle, id, true);
}
