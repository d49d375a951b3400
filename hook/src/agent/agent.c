#include "agent/agent.h"

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>

#include "agent/agent_state.h"
#include "agent/lifetime.h"
#include "agent/notebook.h"
#include "base/bell.h"
#include "base/clock.h"
#include "base/driver.h"
#include "base/ending.h"
#include "base/hold.h"
#include "base/log.h"
#include "base/options.h"
#include "base/own_thread.h"
#include "base/wait.h"
#include "device/contexts.h"
#include "device/streams.h"
#include "gate/gate_control.h"
#include "memory/chunks.h"
#include "memory/physical.h"
#include "swap/mover.h"
#include "swap/wholes.h"

#define DEAF_PAUSE_NS 10000000
#define REMAKE_STALLS_MAX 50
#define REMAKE_PAUSE_MS 10

static struct agent agent; /* the agent thread's */

/* ---- what has happened in the process ---------------------------------------------------------
 */

static void tell_cell_end(struct agent *agent) {
    if (!agent->cell_end_untold) return;
    agent->cell_end_untold = false;
    session_send(&agent->session, &(struct message){.type = MESSAGE_CELL_ENDED});
}

static void look_at_cells(struct agent *agent) {
    const uint64_t ended_before = agent->cells_ended_seen;
    const bool runs = notebook_cell_runs(&agent->cells_ended_seen);
    const bool ended_since = agent->cells_ended_seen != ended_before;
    /* It may have begun and ended between two looks. */
    if (agent->cell_runs_seen ? ended_since || !runs : ended_since && !runs) {
        agent->cell_end_untold |= agent->cell_runs_seen;
        agent->cell_runs_seen = false;
        agent_feed_kind(agent, TURN_EVENT_CELL_ENDED);
    }
    if (runs && !agent->cell_runs_seen) {
        tell_cell_end(agent);
        agent->cell_runs_seen = true;
        session_send(&agent->session, &(struct message){.type = MESSAGE_CELL_BEGAN});
        agent_feed_kind(agent, TURN_EVENT_CELL_BEGAN);
    }
}

static void look_at_calls(struct agent *agent) {
    bool wait = wait_calls_waiting() > 0;
    if (wait == agent->calls_wait_seen) return;
    agent->calls_wait_seen = wait;
    agent_feed_kind(agent, wait ? TURN_EVENT_CALLS_WAIT : TURN_EVENT_NO_CALLS_WAIT);
}

/* Memory that is to be one allocation is made so while the gate is shut. Work that waits for a
 * later call of the program would never end: the gate opens for it now and then, and in the end
 * whoever waits for the memory is refused. */
static void look_at_wholes(struct agent *agent) {
    const bool refuses =
        agent->turn.phase == TURN_UNSCHEDULED || agent->remake_stalls >= REMAKE_STALLS_MAX;
    if (refuses || !physical_whole_wanted()) {
        agent->remake_at_ms = agent->remake_stalls = 0; /* who is refused may ask again at once */
        if (refuses) wholes_refuse();
        return;
    }
    if (clock_now_ms() < agent->remake_at_ms) return;
    agent->remake_at_ms = 0;
    if (agent->turn.phase == TURN_HELD)
        agent_feed_kind(agent, TURN_EVENT_REMAKE);
    else if (agent->turn.phase == TURN_RESTORING)
        mover_look();
}

/* The gate first: calls wait for it. The mover rests before it opens. */
static void look_at_mover(struct agent *agent) {
    if (agent->turn.phase == TURN_RESTORING && mover_end_restore())
        agent_feed_kind(agent, TURN_EVENT_RESTORED);
    else if (agent->turn.phase == TURN_RESTORING && mover_gave_up())
        agent_feed_kind(agent, TURN_EVENT_RESTORE_FAILED);
    agent_report_memory(agent, false);
}

static void look_at_news(struct agent *agent) {
    uint32_t asked;
    const unsigned what = bell_take_news(&asked);
    if (what & (NEWS_DEVICE_OPENED | NEWS_DEVICE_CLOSED | NEWS_CONTEXT_FAILED))
        agent_report_devices(agent);
    if (what & NEWS_DEVICE_OPENED) agent_feed_kind(agent, TURN_EVENT_DEVICE_OPENED);
    if (what & NEWS_DEVICE_CLOSED && atomic_load(&contexts_open) == 0)
        agent_feed_kind(agent, TURN_EVENT_LAST_DEVICE_CLOSED);
    if (what & NEWS_CONTEXT_FAILED) {
        agent_fix_failed_memory();
        agent_feed_kind(agent, TURN_EVENT_CONTEXT_FAILED);
        wait_look_again();
    }
    /* A free may end what a restore waited for after the mover had told that all is back. */
    const bool may_be_back = what & NEWS_MEMORY_CHANGED && agent->turn.phase == TURN_RESTORING;
    if (what & NEWS_MEMORY_MOVED || may_be_back) look_at_mover(agent);
    if (what & NEWS_HOST_SHORT) agent_look_at_short_host(agent);
    if (what & NEWS_BUS_USED && agent->turn.phase == TURN_HELD)
        session_send(&agent->session, &(struct message){.type = MESSAGE_BUS_USED});
    if (what & NEWS_NEEDS_CHANGED) agent_tell_needs(agent);
    look_at_cells(agent);
    look_at_calls(agent);
    look_at_wholes(agent);
    agent_tell_wishes(agent);
    bell_acted(asked);
}

/* ---- the drain ---- */

static void step_drain(struct agent *agent) {
    if (!agent->draining || !ending_driver_use_begin()) return;
    enum drain_answer answer = drain_step(&agent->drain);
    uint64_t now_ms = clock_now_ms();
    if (answer != DRAIN_BUSY) agent->drain_progress_ms = now_ms;
    const bool stalls = now_ms - agent->drain_progress_ms >= agent->drain_stall_ms;
    if (stalls) streams_forget_stale_captures();
    ending_driver_use_end();
    if (answer == DRAIN_DONE) {
        agent->draining = false;
        gate_drained();
        look_at_news(agent); /* the drain may have found a context that has failed */
        agent_feed_kind(agent, TURN_EVENT_DRAINED);
    } else if (stalls) {
        agent->drain_progress_ms = now_ms;
        if (agent->turn.remakes) {
            agent->remake_stalls++;
            agent->remake_at_ms = now_ms + REMAKE_PAUSE_MS;
        }
        agent_feed_kind(agent, TURN_EVENT_STALLED);
    }
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Most drains are over in microseconds: look often at first, and ever less often then. */
static uint64_t drain_pause_ns(void) {
    uint64_t elapsed_ns = clock_now_ns() - agent.drain_began_ns;
    return elapsed_ns < 100000 ? 0 : least(elapsed_ns / 16, 1000000);
}

/* ---- time -------------------------------------------------------------------------------------
 */

/* A need that was met may have been taken by another thread's call, and is counted from what is
 * there: with what is there it is told again. */
static void look_at_memory(uint64_t now_ms) {
    if (now_ms < agent.memory_report_at_ms) return;
    agent_report_devices(&agent);
    if (agent.turn.phase == TURN_RESTORING) look_at_mover(&agent); /* a free rings once a report */
    agent_tell_needs(&agent);
}

static void look_at_time(void) {
    uint64_t now_ms = clock_now_ms();
    agent.looked_at_ms = now_ms;
    look_at_memory(now_ms);
    if (agent.host_look_at_ms > 0 && now_ms >= agent.host_look_at_ms)
        agent_look_at_scarce_host(&agent);
    if (now_ms < turn_state_wake_ms(&agent.turn, now_ms)) return;
    if (!turn_state_wants_samples(&agent.turn)) {
        struct turn_event tick = {.kind = TURN_EVENT_TICK, .memory_away = agent_memory_is_away()};
        agent_feed(&agent, &tick);
        return;
    }
    struct turn_event event = {.kind = TURN_EVENT_SAMPLED};
    uint64_t activity = gate_activity(&event.busy);
    /* With the gate open a call that waits does so for memory, which others have to make room for.
     */
    event.busy |= activity != agent.activity_seen || wait_calls_waiting() > 0;
    agent.activity_seen = activity;
    agent_feed(&agent, &event);
}

/* Nanoseconds until something is due; UINT64_MAX for never. */
static uint64_t pause_ns(void) {
    uint64_t now_ms = clock_now_ms();
    uint64_t wake_ms = turn_state_wake_ms(&agent.turn, now_ms);
    wake_ms = least(wake_ms, session_wake_ms(&agent.session));
    /* Not what is late by now: it may have come due since the look. */
    if (agent.memory_report_at_ms > agent.looked_at_ms)
        wake_ms = least(wake_ms, agent.memory_report_at_ms);
    if (agent.host_look_at_ms > 0) wake_ms = least(wake_ms, agent.host_look_at_ms);
    if (agent.remake_at_ms > 0) wake_ms = least(wake_ms, agent.remake_at_ms);
    uint64_t pause = UINT64_MAX;
    if (wake_ms != UINT64_MAX) pause = wake_ms > now_ms ? (wake_ms - now_ms) * 1000000 : 0;
    if (agent.draining) pause = least(pause, drain_pause_ns());
    /* Nobody can wake the agent while there is no descriptor to be had: it has to look. */
    return bell_fd() < 0 ? least(pause, DEAF_PAUSE_NS) : pause;
}

static void pause_until_news(void) {
    struct pollfd descriptors[2] = {
        {.fd = bell_fd(), .events = POLLIN},
        {.fd = agent.session.link.socket.fd, .events = POLLIN},
    };
    if (agent.session.link.unsent_bytes > 0) descriptors[1].events |= POLLOUT;
    uint64_t ns = pause_ns();
    struct timespec timeout = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    ppoll(descriptors, 2, ns == UINT64_MAX ? NULL : &timeout, NULL);
}

/* ---- the thread -------------------------------------------------------------------------------
 */

static void begin(void) {
    pthread_setname_np(pthread_self(), "gpushare");
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); /* drains are polled in steps of microseconds */
    const struct driver *cuda = driver_get();
    if (cuda) driver_relaxed_begin(cuda); /* for good: our queries never disturb a capture */
}

static void *run(void *nothing) {
    begin();
    for (;;) {
        bell_clear();
        look_at_news(&agent);
        agent_converse(&agent);
        look_at_time();
        step_drain(&agent);
        /* After the turn that ends with the cell, if nothing was left to drain: the scheduler
         * serves who waits for the turn, and looks at the cell then. */
        tell_cell_end(&agent);
        session_flush(&agent.session);
        agent_publish(&agent);
        pause_until_news();
    }
    return nothing;
}

static void prepare_state(void) {
    const struct options *options = options_get();
    struct turn_settings settings = {
        .turns = true,
        .idle_ms = 50,
        .reconnect_s = options->reconnect_s,
        .fallback = (enum fallback)options->fallback,
    };
    agent = (struct agent){.drain_stall_ms = 200, .window_ms = 20};
    turn_state_start(&agent.turn, &settings, clock_now_ms());
    session_start(&agent.session);
}

/* The agent's thread, and all that it needs, with LOCK_AGENT held. */
static bool start(void) {
    if (!options_take_part() || !driver_get()) return false;
    lifetime_watch();
    prepare_state();
    residency_start();
    if (bell_open() && own_thread_start(run, NULL)) return true;
    log_error(
        "the GPU sharing of this process could not start, so it takes no turns. "
        "Raise its limits of threads and open files and restart it.");
    residency_set_mode(false, 0);
    return false;
}

void agent_start(const char *cause) {
    if (bell_is_heard()) return;
    HOLD(LOCK_AGENT);
    if (bell_is_heard()) return;
    gate_prepare();
    if (start())
        log_debug("start: %s", cause);
    else
        gate_open(false);
    bell_set_heard();
}

void agent_after_fork(void) {
    if (bell_is_heard()) link_close(&agent.session.link);
}
