/* Peer access that changes while memory is mapped. */
#pragma once

#include <stdbool.h>

/* The current context may (not) reach memory of the other context from now on. The calling thread
 * is inside the gate, so that all of it is there and nothing moves. */
void peer_mappings_change(void *other_context, bool enables);
