/* How other threads wake the agent: a pair of sockets, because a socket can be told from whatever
 * a program puts in its place, and send() refuses everything that is none. */
#ifndef GPUSHARE_WAKEUP_H
#define GPUSHARE_WAKEUP_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

bool wakeup_open(void);
/* The agent's end, for poll. When a program closes the other end this one wakes up too. */
int wakeup_fd(void);
/* Takes all that was sent; false when the pair is no longer ours and has to be made anew. */
bool wakeup_clear(void);
void wakeup_send(void);
/* Closes what is still ours. */
void wakeup_close(void);

#pragma GCC visibility pop
#endif
