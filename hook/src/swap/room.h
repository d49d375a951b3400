/* Requests for room: the driver has no memory although the budget has. Those that want room on one
 * device share one request. Guarded by LOCK_MEMORY. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct room_wait {
    int device;
    uint32_t answers_before;
};

/* Joins the request for this device, or begins one; ends with room_end. */
struct room_wait room_ask(int device, uint64_t bytes, const char *call_name);
/* A condition to wait for (wait.h); the argument is the room_wait. */
bool room_is_answered(void *wait);
/* Until when the answer will have come, by the scheduler's word; 0: it has said nothing of that. */
uint64_t room_awaited_until_ns(const struct room_wait *wait);
/* Whether room was made. */
bool room_end(const struct room_wait *wait);

/* ---- for the agent ---- */

/* A request that was not told yet, each once, with a number for the answer; one of 0 bytes takes
 * back the one before. `_again`: the scheduler is another one. */
bool room_next(int *device, uint64_t *bytes, uint32_t *request, const char **call_name);
void room_ask_again(void);
/* The answer to another request than the latest tells nothing any more. */
void room_answered(const uint8_t uuid[16], uint32_t request, bool made);

/* The answer may take so long, since others are waited for; without a connection it does not. */
void room_awaited(const uint8_t uuid[16], uint32_t request, uint32_t wait_ms);
void room_connection_lost(void);

void room_after_fork(void);
