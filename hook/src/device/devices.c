#include "device/devices.h"

#include <string.h>

#include "base/driver.h"
#include "base/locks.h"

static struct device devices[DEVICES_MAX];
static uint32_t devices_used;
static bool news_pending; /* the agent was woken and has not looked yet */

static struct device *find(int ordinal) {
    for (uint32_t i = 0; i < devices_used; i++) {
        if (devices[i].ordinal == ordinal) return &devices[i];
    }
    return NULL;
}

static bool describe(const struct driver *cuda, struct device *device) {
    CUdevice handle;
    CUuuid uuid;
    size_t bytes = 0;
    if (cuda->device_get(&handle, device->ordinal) != CUDA_SUCCESS) return false;
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
    if (device == NULL && devices_used < DEVICES_MAX) {
        device = &devices[devices_used++];
        *device = *fresh;
    }
    return device;
}

bool devices_know(int ordinal) {
    const struct driver *cuda = driver_get();
    struct device fresh = {.ordinal = ordinal};
    lock_take(LOCK_DEVICES);
    bool known = find(ordinal) != NULL;
    lock_release(LOCK_DEVICES);
    if (known) return true;
    if (cuda == NULL || !describe(cuda, &fresh)) return false;
    lock_take(LOCK_DEVICES);
    known = find_or_add(&fresh) != NULL;
    lock_release(LOCK_DEVICES);
    return known;
}

void devices_set_open(int ordinal, bool open) {
    lock_take(LOCK_DEVICES);
    struct device *device = find(ordinal);
    if (device) device->open = open;
    lock_release(LOCK_DEVICES);
}

int devices_open(int ordinals[DEVICES_MAX]) {
    int count = 0;
    lock_take(LOCK_DEVICES);
    for (uint32_t i = 0; i < devices_used; i++)
        if (devices[i].open || devices[i].announced) ordinals[count++] = devices[i].ordinal;
    lock_release(LOCK_DEVICES);
    return count;
}

bool devices_ordinal_of(const uint8_t uuid[16], int *ordinal) {
    bool found = false;
    lock_take(LOCK_DEVICES);
    for (uint32_t i = 0; i < devices_used && !found; i++) {
        found = memcmp(devices[i].uuid, uuid, sizeof(devices[i].uuid)) == 0;
        if (found) *ordinal = devices[i].ordinal;
    }
    lock_release(LOCK_DEVICES);
    return found;
}

bool devices_uuid_of(int ordinal, uint8_t uuid[16]) {
    lock_take(LOCK_DEVICES);
    const struct device *device = find(ordinal);
    if (device) memcpy(uuid, device->uuid, sizeof(device->uuid));
    lock_release(LOCK_DEVICES);
    const struct driver *cuda = driver_get();
    struct device fresh = {.ordinal = ordinal};
    if (device) return true;
    if (cuda == NULL || !describe(cuda, &fresh)) return false;
    memcpy(uuid, fresh.uuid, sizeof(fresh.uuid));
    return true;
}

bool devices_is_announced(int ordinal) {
    lock_take(LOCK_DEVICES);
    const struct device *device = find(ordinal);
    const bool announced = device && device->announced;
    lock_release(LOCK_DEVICES);
    return announced;
}

void devices_context_failed(int ordinal, int cu_result) {
    lock_take(LOCK_DEVICES);
    struct device *device = find(ordinal);
    if (device) device->failed_result = cu_result;
    lock_release(LOCK_DEVICES);
}

bool devices_memory_changed(int ordinal, uint64_t bytes_allocated, uint64_t bytes_fixed) {
    bool wake = false;
    lock_take(LOCK_DEVICES);
    struct device *device = find(ordinal);
    if (device) {
        device->bytes_allocated = bytes_allocated;
        device->bytes_fixed = bytes_fixed;
        device->memory_unreported = true;
        wake = !news_pending;
        news_pending = true;
    }
    lock_release(LOCK_DEVICES);
    return wake;
}

uint64_t devices_bytes_allocated(int ordinal) {
    lock_take(LOCK_DEVICES);
    struct device *device = find(ordinal);
    uint64_t bytes = device ? device->bytes_allocated : 0;
    lock_release(LOCK_DEVICES);
    return bytes;
}

void devices_set_limit(const uint8_t uuid[16], uint64_t cap_bytes, uint64_t others_bytes) {
    lock_take(LOCK_DEVICES);
    for (uint32_t i = 0; i < devices_used; i++) {
        if (memcmp(devices[i].uuid, uuid, sizeof(devices[i].uuid)) != 0) continue;
        devices[i].cap_bytes = cap_bytes;
        devices[i].others_bytes = others_bytes;
        devices[i].limit_known = true;
    }
    lock_release(LOCK_DEVICES);
}

bool devices_limit_unknown(int ordinal, uint8_t uuid[16]) {
    lock_take(LOCK_DEVICES);
    const struct device *known = find(ordinal);
    bool is_known = known && known->limit_known;
    lock_release(LOCK_DEVICES);
    const struct driver *cuda = driver_get();
    struct device fresh = {.ordinal = ordinal};
    if (is_known || cuda == NULL || !describe(cuda, &fresh)) return false;
    lock_take(LOCK_DEVICES);
    struct device *device = find_or_add(&fresh);
    bool unknown = device && !device->limit_known;
    if (unknown) device->limit_known = true;
    lock_release(LOCK_DEVICES);
    memcpy(uuid, fresh.uuid, sizeof(fresh.uuid));
    return unknown;
}

void devices_limit_answered(int ordinal, uint64_t bytes_total, uint64_t bytes_used) {
    lock_take(LOCK_DEVICES);
    struct device *device = find(ordinal);
    /* Without a cap the answer is the device's own numbers. */
    if (device && device->cap_bytes == 0 && bytes_total < device->bytes_total) {
        uint64_t own_bytes = device->bytes_allocated;
        device->cap_bytes = bytes_total;
        device->others_bytes = bytes_used > own_bytes ? bytes_used - own_bytes : 0;
    }
    lock_release(LOCK_DEVICES);
}

void devices_limit(int ordinal, uint64_t *cap_bytes, uint64_t *others_bytes) {
    lock_take(LOCK_DEVICES);
    struct device *device = find(ordinal);
    *cap_bytes = device ? device->cap_bytes : 0;
    *others_bytes = device ? device->others_bytes : 0;
    lock_release(LOCK_DEVICES);
}

void devices_forget_announcements(void) {
    lock_take(LOCK_DEVICES);
    for (uint32_t i = 0; i < devices_used; i++) {
        devices[i].announced = false;
        devices[i].memory_unreported = devices[i].bytes_allocated || devices[i].bytes_fixed;
    }
    lock_release(LOCK_DEVICES);
}

/* The order matters: a device is opened before anything is said of it, and closed last. */
static enum device_news next_of(struct device *device) {
    if (device->open && !device->announced) {
        device->announced = true;
        return DEVICE_NEWS_OPENED;
    }
    if (!device->announced) return DEVICE_NEWS_NONE;
    if (device->memory_unreported) {
        device->memory_unreported = false;
        return DEVICE_NEWS_MEMORY;
    }
    if (device->failed_result) return DEVICE_NEWS_FAILED;
    if (!device->open) {
        device->announced = false;
        return DEVICE_NEWS_CLOSED;
    }
    return DEVICE_NEWS_NONE;
}

enum device_news devices_next_news(struct device *device) {
    enum device_news news = DEVICE_NEWS_NONE;
    lock_take(LOCK_DEVICES);
    for (uint32_t i = 0; i < devices_used && news == DEVICE_NEWS_NONE; i++) {
        news = next_of(&devices[i]);
        *device = devices[i];
        if (news == DEVICE_NEWS_FAILED) devices[i].failed_result = 0;
    }
    if (news == DEVICE_NEWS_NONE) news_pending = false;
    lock_release(LOCK_DEVICES);
    return news;
}

void devices_after_fork(void) {
    devices_used = 0;
    news_pending = false;
}
