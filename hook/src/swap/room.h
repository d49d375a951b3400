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
/* Whether room was made. */
bool room_end(const struct room_wait *wait);

/* ---- for the agent ---- */

/* A request that was not told yet, each once, with a number for the answer; `_again`: the scheduler
 * is another one. */
bool room_next(int *device, uint64_t *bytes, uint32_t *request, const char **call_name);
void room_ask_again(void);
/* The answer to another request than the latest tells nothing any more. */
void room_answered(const uint8_t uuid[16], uint32_t request, bool made);

void room_after_fork(void);
