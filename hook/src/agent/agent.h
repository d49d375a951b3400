/* The agent: one thread per process that uses CUDA. It owns the socket and every decision about
 * the turn. This is what the other threads may ask of it. */
#ifndef GPUSHARE_AGENT_H
#define GPUSHARE_AGENT_H

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

/* What has happened; the agent then looks for itself how things stand. */
enum agent_news {
    AGENT_CALLS_WAITING_CHANGED = 1 << 0,
    AGENT_CELLS_CHANGED = 1 << 1,
    AGENT_DEVICE_OPENED = 1 << 2,
    AGENT_DEVICE_CLOSED = 1 << 3,
    AGENT_CONTEXT_FAILED = 1 << 4,
    AGENT_MEMORY_CHANGED = 1 << 5,
    AGENT_WISHED = 1 << 6,
    AGENT_NEEDS_CHANGED = 1 << 7, /* claims that wait for budget, or room is wanted */
    AGENT_MEMORY_MOVED = 1 << 8,  /* parked or restored some, or came to an end with it */
    AGENT_HOST_SHORT = 1 << 9,    /* host memory that was told is not to be had */
};

/* Starts the agent unless it runs. Where the hook takes no part, or cannot, opens the gate for
 * good instead. `cause` is for the log. */
void agent_start(const char *cause);

/* agent_start has been here in this process. */
bool agent_is_ready(void);

/* Wakes the agent; does nothing before it runs. Never blocks. */
void agent_notify(enum agent_news news);

/* The same, and returns when the agent has acted on it (or seems stuck). */
void agent_notify_and_wait(enum agent_news news);

/* State of this client as JSON; the bytes needed, the final zero included. */
size_t agent_describe(char *json, size_t bytes);

/* In a child after fork there is no agent. `close_descriptors` hands back the copies. */
void agent_after_fork(void);

#pragma GCC visibility pop
#endif
