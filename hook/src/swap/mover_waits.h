/* What the mover cannot have at the moment and tries again to get: room on the device that others
 * are asked to make, and what the driver needs for its streams. The mover's thread alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The goal has changed: nothing is waited for. */
void mover_waits_end(void);
/* When to come again for any of it; MOVER_HOST_NEVER: not for this. */
uint64_t mover_waits_pause_ns(void);

/* Asks others to make room, and goes on trying: memory of a client that has ended may come back by
 * itself. False: there was none in time, and it is asked for no more. */
bool mover_waits_for_room(int device, uint64_t bytes);
void mover_waits_end_room(void);
/* It was asked for, and this is not the moment to try again. */
bool mover_waits_room_is_short(void);

/* The driver had no memory for a stream or a copy out; it had some. */
void mover_waits_for_streams(void);
void mover_waits_end_streams(void);
bool mover_waits_streams_are_short(void);

/* Makes the streams of all contexts, for when memory has to leave a full device. */
void mover_waits_open_streams(void);

void mover_waits_after_fork(void);
