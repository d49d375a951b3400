/* The agent: one thread per process that uses CUDA. It owns the socket and every decision about
 * the turn. This is what the other threads may ask of it. */
#pragma once

#include <stddef.h>

/* Starts the agent unless it runs. Where the hook takes no part, or cannot, opens the gate for
 * good instead. `cause` is for the log. */
void agent_start(const char *cause);

/* State of this client as JSON; the bytes needed, the final zero included. */
size_t agent_describe(char *json, size_t bytes);

/* In a child after fork there is no agent, and the connection is the parent's. */
void agent_after_fork(void);
