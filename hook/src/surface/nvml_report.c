#include "surface/nvml_report.h"

#include <cuda.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/memory_query.h"
#include "allocate/backing.h"
#include "allocate/memory.h"
#include "base/options.h"
#include "base/symbols.h"
#include "device/devices.h"

#define UUID_BYTES 16

typedef nvmlReturn_t (*get_uuid_function)(nvmlDevice_t device, char *uuid, unsigned int length);

static int value_of_hex(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return -1;
}

/* "GPU-00c445dc-ae6e-..." and "MIG-..." name a device by 32 hexadecimal digits. The MIG names of
 * drivers before 470 are longer, and answer false. */
static bool parse_uuid(const char *text, uint8_t uuid[UUID_BYTES]) {
    const char *dash = strchr(text, '-');
    int digits = 0;
    for (const char *c = dash != NULL ? dash + 1 : text; *c != 0; c++) {
        if (*c == '-') continue;
        const int value = value_of_hex(*c);
        if (value < 0 || digits == 2 * UUID_BYTES) return false;
        uuid[digits / 2] = (uint8_t)(digits % 2 == 0 ? value << 4 : uuid[digits / 2] | value);
        digits++;
    }
    return digits == 2 * UUID_BYTES;
}

static bool uuid_of(nvmlDevice_t device, uint8_t uuid[UUID_BYTES]) {
    get_uuid_function get_uuid =
        (get_uuid_function)symbols_real_of(SYMBOLS_NVML, "nvmlDeviceGetUUID", false);
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    if (get_uuid == NULL || get_uuid(device, text, sizeof text) != NVML_SUCCESS) return false;
    return parse_uuid(text, uuid);
}

/* What CUDA in this process says of the device, and what the tenant uses there. */
static void report_of_process(int ordinal, uint64_t *bytes_total, uint64_t *bytes_free,
                              uint64_t *bytes_used) {
    uint64_t cap_bytes;
    backing_free_done();
    memory_query_limit(ordinal);
    memory_report(ordinal, bytes_free, bytes_total);
    *bytes_used = memory_used_by_tenant(ordinal, &cap_bytes);
}

/* The same without CUDA in this process; false where nobody answers. */
static bool report_of_scheduler(const uint8_t uuid[UUID_BYTES], uint64_t *bytes_total,
                                uint64_t *bytes_free, uint64_t *bytes_used) {
    struct memory_answer answer = {0};
    if (!memory_query(uuid, &answer)) return false;
    if (answer.bytes_total != 0 && *bytes_total > answer.bytes_total)
        *bytes_total = answer.bytes_total;
    *bytes_used = answer.bytes_used;
    if (answer.follows_turn) *bytes_free = *bytes_total;
    return true;
}

static void cut_down(nvmlDevice_t device, unsigned long long *bytes_total,
                     unsigned long long *bytes_free, unsigned long long *bytes_used) {
    uint8_t uuid[UUID_BYTES];
    if (!uuid_of(device, uuid)) return;
    uint64_t total_bytes = *bytes_total, free_bytes = *bytes_free, used_bytes = 0;
    const int ordinal = devices_visible(uuid);
    if (ordinal >= 0)
        report_of_process(ordinal, &total_bytes, &free_bytes, &used_bytes);
    else if (!report_of_scheduler(uuid, &total_bytes, &free_bytes, &used_bytes))
        return;
    if (used_bytes > total_bytes) used_bytes = total_bytes;
    const uint64_t left_bytes = total_bytes - used_bytes;
    *bytes_total = total_bytes;
    *bytes_used = used_bytes;
    *bytes_free = free_bytes < left_bytes ? free_bytes : left_bytes;
}

/* Used and free make up the total, so that what is reserved, here for others, counts as used. */
void nvml_report_memory(nvmlDevice_t device, nvmlMemory_t *memory) {
    if (memory == NULL) return;
    cut_down(device, &memory->total, &memory->free, &memory->used);
    memory->used = memory->total - memory->free;
}

/* Here what is reserved is told apart, and used is what the tenant uses. */
void nvml_report_memory_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    if (memory == NULL) return;
    const unsigned long long sum_before = memory->reserved + memory->free + memory->used;
    cut_down(device, &memory->total, &memory->free, &memory->used);
    if (memory->reserved + memory->free + memory->used != sum_before)
        memory->reserved = memory->total - memory->free - memory->used;
}

/* A tenant's processes have its token in their environment. That of another user's process cannot
 * be read, and is not of this tenant. */
static bool has_our_token(unsigned int pid) {
    char path[64], wanted[600];
    snprintf(path, sizeof path, "/proc/%u/environ", pid);
    snprintf(wanted, sizeof wanted, "GPUSHARE_TOKEN=%s", options_get()->token);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    char *variable = NULL;
    size_t room = 0;
    bool found = false;
    while (!found && getdelim(&variable, &room, 0, file) > 0)
        found = strcmp(variable, wanted) == 0;
    free(variable);
    fclose(file);
    return found;
}

bool nvml_keep_process(nvmlDevice_t device, unsigned int pid, unsigned long long *bytes_used) {
    if ((pid_t)pid != getpid()) return has_our_token(pid);
    uint8_t uuid[UUID_BYTES];
    const int ordinal = uuid_of(device, uuid) ? devices_visible(uuid) : -1;
    if (ordinal >= 0) *bytes_used = registry_bytes_allocated(ordinal);
    return true;
}

void nvml_report_process_details(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    if (list == NULL || list->procArray == NULL) return;
    unsigned int kept = 0;
    for (unsigned int i = 0; i < list->numProcArrayEntries; i++) {
        nvmlProcessDetail_v1_t *process = &list->procArray[i];
        if (nvml_keep_process(device, process->pid, &process->usedGpuMemory))
            list->procArray[kept++] = *process;
    }
    list->numProcArrayEntries = kept;
}
