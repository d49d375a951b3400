/* Where managed memory finds room: the driver moves it between the device and host memory that it
 * takes from the system itself, and asks nobody. The mover's thread alone. */
#pragma once

#include "memory/chunks.h"

/* Before it leaves: whether the program wants it elsewhere than on its device, by its last prefetch
 * or its advice. Then it is not brought back there, and comes when it is used. */
void managed_room_note_wish(struct chunk *chunk);

/* How much host memory it takes to leave: none when it was there before, because the driver keeps
 * the pages on the host as long as it is allocated. */
uint64_t managed_room_bytes(const struct chunk *chunk);
/* The system has so much, beside what is on its way. */
bool managed_room_on_host(const struct chunk *chunk);
/* The device of the current context has room for it: where there is none, a prefetch puts out
 * managed memory that others use, or finds nothing to put out. */
bool managed_room_on_device(const struct chunk *chunk);
