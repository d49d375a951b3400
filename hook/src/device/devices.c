#include "device/devices.h"

#include <stdatomic.h>
#include <string.h>

#include "base/driver.h"
#include "base/hold.h"

static struct device devices[DEVICES_MAX];
static uint32_t devices_used;
static _Atomic bool has_limits; /* of any device: who has none takes no lock to look at them */

/* By ordinal; without the lock, because each allocation is told here. */
static struct {
    _Atomic uint64_t bytes_allocated;
    _Atomic bool unreported;
} memory[DEVICES_MAX];

static bool has_ordinal(int ordinal) {
    return ordinal >= 0 && ordinal < DEVICES_MAX;
}

static struct device *find(int ordinal) {
    for (uint32_t i = 0; i < devices_used; i++)
        if (devices[i].ordinal == ordinal) return &devices[i];
    return NULL;
}

static struct device *find_uuid(const uint8_t uuid[16]) {
    for (uint32_t i = 0; i < devices_used; i++)
        if (memcmp(devices[i].uuid, uuid, sizeof(devices[i].uuid)) == 0) return &devices[i];
    return NULL;
}

/* What the table says of it; all 0 but the ordinal where it does not know it. */
static bool look_up(int ordinal, struct device *copy) {
    HOLD(LOCK_DEVICES);
    const struct device *device = find(ordinal);
    *copy = device ? *device : (struct device){.ordinal = ordinal};
    return device != NULL;
}

/* What the driver says of it. */
static bool describe(struct device *device) {
    const struct driver *cuda = driver_get();
    CUdevice handle;
    CUuuid uuid;
    size_t bytes = 0;
    if (cuda == NULL || cuda->device_get(&handle, device->ordinal) != CUDA_SUCCESS) return false;
    if (cuda->device_get_uuid(&uuid, handle) != CUDA_SUCCESS) return false;
    memcpy(device->uuid, uuid.bytes, sizeof(device->uuid));
    if (cuda->device_get_name(device->name, sizeof(device->name), handle) != CUDA_SUCCESS)
        device->name[0] = 0;
    device->name[sizeof(device->name) - 1] = 0;
    if (cuda->device_total_bytes(&bytes, handle) == CUDA_SUCCESS) device->bytes_total = bytes;
    return true;
}

/* With the lock held. */
static struct device *find_or_add(const struct device *fresh) {
    struct device *device = find(fresh->ordinal);
    if (device == NULL && devices_used < DEVICES_MAX && has_ordinal(fresh->ordinal)) {
        device = &devices[devices_used++];
        *device = *fresh;
    }
    return device;
}

bool devices_know(int ordinal) {
    struct device device;
    if (look_up(ordinal, &device)) return true;
    if (!describe(&device)) return false;
    HOLD(LOCK_DEVICES);
    return find_or_add(&device) != NULL;
}

void devices_set_open(int ordinal, bool open) {
    HOLD(LOCK_DEVICES);
    struct device *device = find(ordinal);
    if (device) device->open = open;
}

int devices_open(int ordinals[DEVICES_MAX]) {
    int count = 0;
    HOLD(LOCK_DEVICES);
    for (uint32_t i = 0; i < devices_used; i++)
        if (devices[i].open || devices[i].announced) ordinals[count++] = devices[i].ordinal;
    return count;
}

bool devices_ordinal_of(const uint8_t uuid[16], int *ordinal) {
    HOLD(LOCK_DEVICES);
    const struct device *device = find_uuid(uuid);
    if (device) *ordinal = device->ordinal;
    return device != NULL;
}

int devices_visible(const uint8_t uuid[16]) {
    const struct driver *cuda = driver_get();
    CUdevice device;
    CUuuid found;
    for (int i = 0; i < DEVICES_MAX && cuda && cuda->device_get(&device, i) == CUDA_SUCCESS; i++)
        if (cuda->device_get_uuid(&found, device) == CUDA_SUCCESS &&
            memcmp(found.bytes, uuid, sizeof(found.bytes)) == 0)
            return i;
    return -1;
}

bool devices_uuid_of(int ordinal, uint8_t uuid[16]) {
    struct device device;
    if (!look_up(ordinal, &device) && !describe(&device)) return false;
    memcpy(uuid, device.uuid, sizeof(device.uuid));
    return true;
}

bool devices_is_announced(int ordinal) {
    struct device device;
    return look_up(ordinal, &device) && device.announced;
}

void devices_context_failed(int ordinal, int cu_result) {
    HOLD(LOCK_DEVICES);
    struct device *device = find(ordinal);
    if (device) device->failed_result = cu_result;
}

bool devices_memory_changed(int ordinal, uint64_t bytes_allocated) {
    if (!has_ordinal(ordinal)) return false;
    atomic_store_explicit(&memory[ordinal].bytes_allocated, bytes_allocated, memory_order_relaxed);
    return !atomic_exchange(&memory[ordinal].unreported, true);
}

uint64_t devices_bytes_allocated(int ordinal) {
    return has_ordinal(ordinal) ? atomic_load(&memory[ordinal].bytes_allocated) : 0;
}

void devices_set_limit(const uint8_t uuid[16], uint64_t cap_bytes, uint64_t others_bytes) {
    HOLD(LOCK_DEVICES);
    struct device *device = find_uuid(uuid);
    if (device == NULL) return;
    device->cap_bytes = cap_bytes;
    device->others_bytes = others_bytes;
    device->limit_known = true;
    if (cap_bytes != 0 || others_bytes != 0) atomic_store(&has_limits, true);
}

bool devices_limit_unknown(int ordinal, uint8_t uuid[16]) {
    struct device copy;
    look_up(ordinal, &copy);
    if (copy.limit_known || !describe(&copy)) return false;
    memcpy(uuid, copy.uuid, sizeof(copy.uuid));
    HOLD(LOCK_DEVICES);
    struct device *device = find_or_add(&copy);
    if (device == NULL || device->limit_known) return false;
    device->limit_known = true;
    return true;
}

void devices_limit_answered(int ordinal, uint64_t bytes_total, uint64_t bytes_used) {
    HOLD(LOCK_DEVICES);
    struct device *device = find(ordinal);
    /* Without a cap the answer is the device's own numbers. */
    if (device == NULL || device->cap_bytes != 0 || bytes_total >= device->bytes_total) return;
    const uint64_t own_bytes = devices_bytes_allocated(ordinal);
    device->cap_bytes = bytes_total;
    device->others_bytes = bytes_used > own_bytes ? bytes_used - own_bytes : 0;
    atomic_store(&has_limits, true);
}

void devices_limit(int ordinal, uint64_t *cap_bytes, uint64_t *others_bytes) {
    struct device device = {0};
    if (atomic_load(&has_limits)) look_up(ordinal, &device);
    *cap_bytes = device.cap_bytes;
    *others_bytes = device.others_bytes;
}

void devices_forget_announcements(void) {
    HOLD(LOCK_DEVICES);
    for (uint32_t i = 0; i < devices_used; i++)
        devices[i].announced = false;
}

/* The order matters: a device is opened before anything is said of it, and closed last. */
static enum device_news next_of(struct device *device) {
    if (device->open && !device->announced) {
        device->announced = true;
        atomic_store(&memory[device->ordinal].unreported, true); /* it may have some from before */
        return DEVICE_NEWS_OPENED;
    }
    if (!device->announced) return DEVICE_NEWS_NONE;
    if (atomic_exchange(&memory[device->ordinal].unreported, false)) return DEVICE_NEWS_MEMORY;
    if (device->failed_result) return DEVICE_NEWS_FAILED;
    if (!device->open) {
        device->announced = false;
        return DEVICE_NEWS_CLOSED;
    }
    return DEVICE_NEWS_NONE;
}

enum device_news devices_next_news(struct device *device) {
    HOLD(LOCK_DEVICES);
    for (uint32_t i = 0; i < devices_used; i++) {
        const enum device_news news = next_of(&devices[i]);
        *device = devices[i];
        if (news == DEVICE_NEWS_FAILED) devices[i].failed_result = 0;
        if (news != DEVICE_NEWS_NONE) return news;
    }
    return DEVICE_NEWS_NONE;
}

void devices_after_fork(void) {
    devices_used = 0;
    memset(memory, 0, sizeof(memory));
}
