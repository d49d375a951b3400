/* Where managed memory finds room: the driver moves it between the device and host memory that it
 * takes from the system itself, and asks nobody. The mover's thread alone. */
#pragma once

#include "memory/chunks.h"

/* Before it leaves: whether the program wants it elsewhere than on its device, by its last prefetch
 * or its advice. Then it is not brought back there, and comes when it is used. */
void managed_room_note_wish(struct chunk *chunk);

/* The system has so much host memory, beside what is on its way. */
bool managed_room_on_host(const struct chunk *chunk);
/* The device of the current context has so much free. Without that a prefetch would put out managed
 * memory of others. */
bool managed_room_on_device(const struct chunk *chunk);
