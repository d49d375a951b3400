/* The devices that this process has opened, and what the scheduler is to know of them. Guarded by
 * LOCK_DEVICES. User threads write here; the agent sends what has changed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define DEVICES_MAX 64

struct device {
    int ordinal;
    uint8_t uuid[16];
    char name[97];
    uint64_t bytes_total;
    bool open;                        /* the process has a context on it */
    bool announced;                   /* the scheduler was told so, on this connection */
    uint64_t cap_bytes, others_bytes; /* as the scheduler said */
    bool limit_known;                 /* it was told, or asked for */
    int failed_result;                /* a sticky error that was not reported yet, or 0 */
};

/* Asks the driver for the name and size of a device that is not in the table. False when the driver
 * does not know it or the table is full. */
bool devices_know(int ordinal);
/* The process has a context on it. */
void devices_set_open(int ordinal, bool open);
/* Ordinals of the devices that the process has open, or whose closing was not told yet. */
int devices_open(int ordinals[DEVICES_MAX]);
bool devices_ordinal_of(const uint8_t uuid[16], int *ordinal);
/* Asks the driver for the device's ordinal; -1 where this process does not see it, or CUDA has not
 * been initialised here. */
int devices_visible(const uint8_t uuid[16]);
/* Asks the driver where the device is not known. */
bool devices_uuid_of(int ordinal, uint8_t uuid[16]);
/* Whether the scheduler knows of the device, so that it can be told more. */
bool devices_is_announced(int ordinal);
void devices_context_failed(int ordinal, int cu_result);

/* The process has so much on the device now; all else is looked at when it is reported. True when
 * the agent is to be woken: no change of it was waiting to be reported. Both take no lock. */
bool devices_memory_changed(int ordinal, uint64_t bytes_allocated);
uint64_t devices_bytes_allocated(int ordinal);

/* True once for each device of which no limit was heard yet, with its UUID: somebody has to ask. */
bool devices_limit_unknown(int ordinal, uint8_t uuid[16]);
/* The answer: what the tenant may see of the device. Changes nothing that was heard meanwhile. */
void devices_limit_answered(int ordinal, uint64_t bytes_total, uint64_t bytes_used);

void devices_set_limit(const uint8_t uuid[16], uint64_t cap_bytes, uint64_t others_bytes);
void devices_limit(int ordinal, uint64_t *cap_bytes, uint64_t *others_bytes);

/* A new connection: everything has to be told again. */
void devices_forget_announcements(void);

/* What the scheduler does not know yet, one fact at a time. */
enum device_news {
    DEVICE_NEWS_NONE,
    DEVICE_NEWS_OPENED,
    DEVICE_NEWS_CLOSED,
    DEVICE_NEWS_MEMORY,
    DEVICE_NEWS_FAILED,
};
enum device_news devices_next_news(struct device *device);

void devices_after_fork(void);
