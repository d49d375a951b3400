/* The bell: how every room tells the agent what has happened. It carries bits and a wake-up; the
 * agent then looks for itself how things stand, so no news can be told twice or in the wrong order.
 * The agent's thread lies rooms above and waits at the bell. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum bell_news {
    NEWS_CALLS_WAITING_CHANGED = 1 << 0,
    NEWS_CELLS_CHANGED = 1 << 1,
    NEWS_DEVICE_OPENED = 1 << 2,
    NEWS_DEVICE_CLOSED = 1 << 3,
    NEWS_CONTEXT_FAILED = 1 << 4,
    NEWS_MEMORY_CHANGED = 1 << 5,
    NEWS_WISHED = 1 << 6,
    NEWS_NEEDS_CHANGED = 1 << 7, /* claims that wait for budget, or room is wanted */
    NEWS_MEMORY_MOVED = 1 << 8,  /* parked or restored some, or came to an end with it */
    NEWS_HOST_SHORT = 1 << 9,    /* host memory that was told is not to be had */
    NEWS_BUS_USED = 1 << 10,     /* the program copies much between host and device */
};

/* ---- for every room ---- */

/* Starts the agent unless it runs. Where the hook takes no part, or cannot, the gate is open for
 * good afterwards. `cause` is for the log. */
void bell_start_agent(const char *cause);
/* bell_start_agent has been here in this process. */
bool bell_is_heard(void);

/* Wakes the agent; does nothing before it runs. Never blocks. */
void bell_ring(enum bell_news news);
/* The same, and returns when the agent has acted on it (or seems stuck). */
void bell_ring_and_wait(enum bell_news news);

/* ---- for the agent ---- */

/* How to start the agent. The surface says so before a call can pass. */
void bell_on_start(void (*start)(const char *cause));
bool bell_open(void);
/* The start is over, whatever came of it. */
void bell_set_heard(void);
/* For poll; -1 while there is no descriptor to be had. */
int bell_fd(void);
/* Takes all wake-ups. Makes anew what the program has closed. */
void bell_clear(void);
/* What was rung since it was asked last; `asked` is for bell_acted, once that was acted on. */
unsigned bell_take_news(uint32_t *asked);
void bell_acted(uint32_t asked);

void bell_after_fork(void);
