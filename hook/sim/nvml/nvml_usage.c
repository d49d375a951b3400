/* The simulated libnvidia-ml.so.1: memory, processes and load, and what a simulated device has not:
 * a temperature, power and clocks. */
#define _GNU_SOURCE
#include <string.h>

#include "nvml/nvml_state.h"

/* MIG instances of a device take their memory from it. */
static bool lies_in(const struct sim_segment *segment, uint32_t index,
                    const struct sim_device *device) {
    return &segment->devices[index] == device ||
           &segment->devices[segment->devices[index].parent] == device;
}

/* Dead processes hold nothing, also when nobody has noticed their death yet. */
static struct sim_segment *lock_and_reap(void) {
    struct sim_segment *segment = nvml_segment();
    segment_lock(segment);
    segment_reap(segment);
    return segment;
}

static uint64_t bytes_used(const struct sim_device *device) {
    uint64_t used = 0;
    struct sim_segment *segment = lock_and_reap();
    for (uint32_t d = 0; d < segment->device_count; d++)
        if (lies_in(segment, d, device)) used += atomic_load(&segment->devices[d].bytes_used);
    segment_unlock(segment);
    return used < device->bytes_total ? used : device->bytes_total;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (memory == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    memory->total = device->bytes_total;
    memory->used = bytes_used(device);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory) {
    nvmlMemory_t first;
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(handle, &first);
    if (result != NVML_SUCCESS) return result;
    if (memory == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    /* Not ARGUMENT_VERSION_MISMATCH: the real library takes it for a function that it lacks. */
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_FUNCTION_NOT_FOUND;
    memory->total = first.total;
    memory->reserved = 0;
    memory->free = first.free;
    memory->used = first.used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, nvmlBAR1Memory_t *memory) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (memory == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    memory->bar1Total = memory->bar1Free = device->bytes_total;
    memory->bar1Used = 0;
    return NVML_SUCCESS;
}

/* The load of this very moment: the simulated device keeps no history. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *load) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (load == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (device->role != SIM_DEVICE_GPU) return NVML_ERROR_NOT_SUPPORTED;
    struct sim_segment *segment = lock_and_reap();
    const struct sim_engine *engines = device->engines;
    load->gpu = engines[SIM_ENGINE_COMPUTE].active_jobs > 0 ? 100 : 0;
    load->memory =
        engines[SIM_ENGINE_H2D].active_jobs + engines[SIM_ENGINE_D2H].active_jobs > 0 ? 100 : 0;
    segment_unlock(segment);
    return NVML_SUCCESS;
}

static nvmlProcessInfo_t describe(const struct sim_segment *segment,
                                  const struct sim_process *process, uint32_t index) {
    const struct sim_device *device = &segment->devices[index];
    bool instance = device->role == SIM_DEVICE_MIG_INSTANCE;
    return (nvmlProcessInfo_t){
        .pid = segment_pid_here(segment, process),
        .usedGpuMemory = atomic_load(&process->use[index].bytes_used),
        .gpuInstanceId = instance ? device->instance + 1 : 0xffffffffu,
        .computeInstanceId = instance ? 0 : 0xffffffffu,
    };
}

/* Lists who has a context or memory on a device, its MIG instances included. */
static unsigned int list_processes(const struct sim_device *device, nvmlProcessInfo_t *found,
                                   unsigned int room) {
    unsigned int count = 0;
    struct sim_segment *segment = lock_and_reap();
    for (int p = 0; p < SIM_PROCESSES_MAX; p++) {
        const struct sim_process *process = &segment->processes[p];
        if (atomic_load(&process->pid) == 0) continue;
        for (uint32_t d = 0; d < segment->device_count; d++) {
            const struct sim_process_use *use = &process->use[d];
            if (!lies_in(segment, d, device)) continue;
            if (use->contexts == 0 && atomic_load(&use->bytes_used) == 0) continue;
            if (count < room) found[count] = describe(segment, process, d);
            count++;
        }
    }
    segment_unlock(segment);
    return count;
}

/* `*count` tells the room and then how many there are; too little room is an error with that. */
static nvmlReturn_t running_processes(nvmlDevice_t handle, unsigned int *count,
                                      nvmlProcessInfo_t *infos) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (count == NULL || (*count > 0 && infos == NULL)) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *count;
    *count = list_processes(device, infos, room);
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned int *count,
                                                     nvmlProcessInfo_t *infos) {
    return running_processes(handle, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *infos) {
    return running_processes(handle, count, infos);
}

/* The first version knows nothing of instances, and its entries are smaller. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *infos) {
    nvmlProcessInfo_t found[SIM_PROCESSES_MAX];
    unsigned int room = SIM_PROCESSES_MAX;
    if (nvml_segment() == NULL) return NVML_ERROR_UNINITIALIZED;
    if (count == NULL || (*count > 0 && infos == NULL)) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = running_processes(handle, &room, found);
    if (result != NVML_SUCCESS) return result;
    for (unsigned int i = 0; i < room && i < *count; i++)
        infos[i] = (nvmlProcessInfo_v1_t){found[i].pid, found[i].usedGpuMemory};
    result = room > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *count = room;
    return result;
}

/* Nobody draws on a simulated device, and no MPS server runs on it. */
static nvmlReturn_t no_processes(nvmlDevice_t handle, unsigned int *count) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

#define NO_PROCESSES(name, type)                                               \
    nvmlReturn_t name(nvmlDevice_t handle, unsigned int *count, type *infos) { \
        (void)infos;                                                           \
        return no_processes(handle, count);                                    \
    }

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

static nvmlReturn_t not_supported(nvmlDevice_t handle, const void *target) {
    const struct sim_device *device;
    nvmlReturn_t result = nvml_device(handle, &device);
    if (result != NVML_SUCCESS) return result;
    return target == NULL ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, nvmlTemperatureSensors_t sensor,
                                      unsigned int *degrees) {
    (void)sensor;
    return not_supported(handle, degrees);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t handle, unsigned int *milliwatts) {
    return not_supported(handle, milliwatts);
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t handle, unsigned int *percent) {
    return not_supported(handle, percent);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t handle, nvmlPstates_t *state) {
    return not_supported(handle, state);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, nvmlClockType_t clock,
                                    unsigned int *megahertz) {
    (void)clock;
    return not_supported(handle, megahertz);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, nvmlEnableState_t *current,
                                  nvmlEnableState_t *pending) {
    return not_supported(handle, current == NULL ? NULL : pending);
}
