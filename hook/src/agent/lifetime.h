/* What every room does at a fork and at the end of the process. */
#ifndef GPUSHARE_LIFETIME_H
#define GPUSHARE_LIFETIME_H

#pragma GCC visibility push(hidden)

/* With LOCK_AGENT held, before the agent starts first. */
void lifetime_watch(void);

#pragma GCC visibility pop
#endif
