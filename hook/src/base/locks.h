/* The runtime's locks, in the order in which they are taken: a thread that holds one takes only
 * those that come later. None is held across a wait, a synchronise or a copy. Because all of them
 * are here, fork can hold them all for a moment, and a child starts with fresh ones. */
#pragma once

#include <stdbool.h>

enum runtime_lock {
    LOCK_AGENT,     /* start of the agent thread (agent.c) */
    LOCK_INTERRUPT, /* the SIGINT disposition (interrupt.c) */
    LOCK_THREADS,   /* giving out and taking back thread records (threads.c) */
    LOCK_STREAMS,   /* contexts and what is in them (contexts.c, streams.c, peers.c) */
    LOCK_DEVICES,   /* table of devices (devices.c) */
    LOCK_IPC,       /* memory of several processes (ipc_exports.c, ipc_imports.c, ipc_server.c) */
    LOCK_UNKNOWN,   /* stubs of functions that no header has (unknown.c) */
    LOCK_DRIVER,    /* resolving the driver's functions (driver.c) */
    LOCK_DESCRIBE,  /* the copy of the agent's state that gpushare_describe reads (agent.c) */
    LOCK_MEMORY,    /* what there is, where it is and where it may be (memory/, swap/); nothing is
                       called under it but the C library's allocator */
    LOCKS,
};

void lock_take(enum runtime_lock lock);
/* False, at once, where somebody else holds it. */
bool lock_try(enum runtime_lock lock);
void lock_release(enum runtime_lock lock);

/* For a handler of signals that may leave by a jump: the lock that its thread holds would stay held
 * for ever. True: the signal comes again when the thread holds none. */
bool locks_put_off(int signal_number);
/* From `wait` to `come` signals are put off as under a lock. */
void locks_signals_wait(void);
bool locks_signal_waits(void);
void locks_signals_come(void);

/* For lifetime.c. */
void locks_before_fork(void);
void locks_after_fork_in_parent(void);
void locks_after_fork_in_child(void);
