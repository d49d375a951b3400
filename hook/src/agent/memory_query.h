/* Asking the scheduler what the tenant may see of a device's memory, for a process that uses NVML
 * and no CUDA and so has no agent. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct memory_answer {
    uint64_t bytes_total, bytes_used;
    bool follows_turn; /* what others have on the device makes room for the tenant */
};

/* On a connection of its own; at most a second. False when there is no answer. */
bool memory_query(const uint8_t device_uuid[16], struct memory_answer *answer);

/* The program wants to know how much memory there is. It may ask before the scheduler has said what
 * the tenant may have; then this waits for the answer, once for each device. */
void memory_query_limit(int ordinal);
