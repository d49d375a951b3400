/* What every room does at a fork and at the end of the process. */
#pragma once

/* With LOCK_AGENT held, before the agent starts first. */
void lifetime_watch(void);
