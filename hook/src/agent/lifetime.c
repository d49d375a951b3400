#include "agent/lifetime.h"

#include <pthread.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "agent/notebook.h"
#include "base/bell.h"
#include "base/ending.h"
#include "base/interrupt.h"
#include "base/locks.h"
#include "base/wait.h"
#include "device/contexts.h"
#include "device/devices.h"
#include "gate/gate_control.h"
#include "gate/threads.h"
#include "memory/blocks.h"
#include "memory/chunks.h"
#include "memory/graph_memory.h"
#include "memory/managed.h"
#include "memory/physical.h"
#include "memory/pooled.h"
#include "memory/pools.h"
#include "memory/registry.h"
#include "sharing/ipc.h"
#include "swap/host_arena.h"
#include "swap/mover.h"
#include "swap/residency.h"
#include "swap/room.h"

static bool watched; /* guarded by LOCK_AGENT */

/* The driver is taken down after this. */
static void on_exit_of_process(void) {
    ending_begins();
    ending_await_driver_users(); /* first: who wakes up may save memory that the mover has in hand
                                  */
    wait_look_again();
    chunks_stop();
}

/* The child has neither our threads nor the parent's contexts: everything is as at the start. Its
 * copy of the socket is closed, so that the scheduler sees when the parent is gone. The locks come
 * first: all else may take them. */
static void on_fork_in_child(void) {
    locks_after_fork_in_child();
    ending_after_fork();
    agent_after_fork();
    bell_after_fork();
    mover_after_fork();
    blocks_after_fork();
    physical_after_fork();
    pooled_after_fork();
    managed_after_fork();
    registry_after_fork();
    pools_after_fork();
    graph_memory_after_fork();
    chunks_after_fork();
    ipc_after_fork();
    residency_after_fork();
    room_after_fork();
    host_arena_after_fork();
    gate_after_fork();
    wait_after_fork();
    interrupt_after_fork();
    threads_after_fork();
    contexts_after_fork();
    devices_after_fork();
    notebook_after_fork();
}

void lifetime_watch(void) {
    if (watched) return;
    watched = true; /* children inherit the registrations */
    pthread_atfork(locks_before_fork, locks_after_fork_in_parent, on_fork_in_child);
    atexit(on_exit_of_process);
}
