#include "base/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "agent/cells.h"
#include "agent/wishes.h"
#include "base/clock.h"
#include "base/locks.h"
#include "device/devices.h"
#include "device/peers.h"
#include "device/streams.h"
#include "gate/gate_control.h"
#include "gate/interrupt.h"
#include "gate/threads.h"
#include "gate/wait.h"
#include "memory/blocks.h"
#include "memory/chunks.h"
#include "sharing/ipc.h"
#include "swap/host_arena.h"
#include "swap/mover.h"
#include "swap/residency.h"
#include "swap/room.h"

#define EXIT_PATIENCE_NS 20000000u

static bool watched; /* guarded by LOCK_AGENT */
static _Atomic bool ending;
static _Atomic int driver_users;

bool fork_driver_use_begin(void) {
    atomic_fetch_add(&driver_users, 1);
    if (!atomic_load(&ending)) return true;
    fork_driver_use_end();
    return false;
}

bool fork_process_ends(void) {
    return atomic_load_explicit(&ending, memory_order_relaxed);
}

void fork_driver_use_end(void) {
    atomic_fetch_sub(&driver_users, 1);
}

/* The driver is taken down after this. A query of the agent and a step of the mover take
 * microseconds; should one hang, the process must end all the same. */
static void on_exit_of_process(void) {
    atomic_store(&ending, true);
    wait_look_again();
    uint64_t until_ns = clock_now_ns() + EXIT_PATIENCE_NS;
    while (atomic_load(&driver_users) > 0 && clock_now_ns() < until_ns)
        clock_sleep_ns(100000);
    chunks_stop();
}

/* The child has neither our threads nor the parent's contexts: everything is as at the start. Its
 * copy of the socket is closed, so that the scheduler sees when the parent is gone. */
static void on_fork_in_child(void) {
    locks_after_fork_in_child();
    atomic_store(&driver_users, 0);
    agent_after_fork();
    mover_after_fork();
    blocks_after_fork();
    peers_after_fork();
    chunks_after_fork();
    ipc_after_fork();
    residency_after_fork();
    room_after_fork();
    host_arena_after_fork();
    gate_after_fork();
    wait_after_fork();
    interrupt_after_fork();
    threads_after_fork();
    streams_after_fork();
    devices_after_fork();
    cells_after_fork();
    wishes_after_fork();
}

void fork_watch(void) {
    if (watched) return;
    watched = true; /* children inherit the registrations */
    pthread_atfork(locks_before_fork, locks_after_fork_in_parent, on_fork_in_child);
    atexit(on_exit_of_process);
}
