/* Performs what the turn state decides: the gate, the drain, and the messages that follow. */

#include "agent/agent_state.h"
#include "base/bell.h"
#include "base/clock.h"
#include "base/ending.h"
#include "base/log.h"
#include "base/wait.h"
#include "gate/gate_control.h"
#include "memory/chunks.h"
#include "swap/mover.h"
#include "swap/mover_host.h"

static void shut(struct agent *agent) {
    residency_set_turn(false, false);
    gate_shut();
    agent->gate_is_open = false;
    agent->draining = true;
    agent->drain_began_ns = clock_now_ns();
    agent->drain_progress_ms = clock_now_ms();
    drain_begin(&agent->drain);
    log_debug("shut: turn %lu, %s", agent->turn.turn_id, DROP_REASON_NAMES[agent->turn.reason]);
}

static void open_gate(struct agent *agent) {
    bool windowed = turn_state_windowed(&agent->turn);
    agent->draining = false;
    if (!chunks_all_confirmed()) {
        log_error("the gate stays shut because memory is away. Please report this.");
        return;
    }
    residency_set_turn(true, agent->turn.phase == TURN_UNSCHEDULED);
    if (agent->gate_is_open && agent->gate_is_windowed == windowed) return;
    agent->gate_is_open = true;
    agent->gate_is_windowed = windowed;
    agent_publish(agent); /* first, so that a call that gets through is described as one */
    gate_open(windowed);
    log_debug("open: turn %lu, %s", agent->turn.turn_id, windowed ? "windowed" : "unbounded");
}

/* Nothing is in flight, because the gate was not opened. */
static void restore(struct agent *agent) {
    agent->draining = false;
    agent->drain.closed_at_ns = agent->drain.drained_at_ns = agent->drain_began_ns = clock_now_ns();
    log_debug("restore: turn %lu", agent->turn.turn_id);
}

/* The scheduler learns how much is there before it learns that the turn is given back, and from
 * then on that is the budget. */
static void settle_memory(struct agent *agent) {
    mover_set_goal(MOVER_REST);
    residency_set_turn(false, false);
    if (residency_swaps()) agent_report_memory(agent, true);
    residency_turn_dropped();
}

static void send_drop(struct agent *agent) {
    struct message message = {.type = MESSAGE_TURN_DROPPED};
    message.turn_dropped.turn_id = agent->turn.dropped_turn_id;
    message.turn_dropped.reason = agent->turn.dropped_reason;
    message.turn_dropped.closed_at_ns = agent->drain.closed_at_ns;
    message.turn_dropped.drained_at_ns = agent->drain.drained_at_ns;
    session_send(&agent->session, &message);
    agent->counters.drops++;
    log_debug("drop: turn %lu, %s, closed in %.3f ms, drained in %.3f ms",
              agent->turn.dropped_turn_id, DROP_REASON_NAMES[agent->turn.dropped_reason],
              (double)(agent->drain.closed_at_ns - agent->drain_began_ns) / 1e6,
              (double)(agent->drain.drained_at_ns - agent->drain_began_ns) / 1e6);
}

static void send_stall(struct agent *agent) {
    struct message message = {.type = MESSAGE_DRAIN_STALLED};
    message.drain_stalled.turn_id = agent->turn.turn_id;
    message.drain_stalled.calls_waiting = wait_calls_waiting();
    session_send(&agent->session, &message);
    agent->counters.stalls++;
    log_debug("stall: turn %lu, %u left, %u calls wait", agent->turn.turn_id, agent->drain.left,
              message.drain_stalled.calls_waiting);
}

static void send_request(struct agent *agent) {
    struct message message = {.type = MESSAGE_TURN_REQUESTED};
    message.turn_requested.request_id = ++agent->request_id;
    codec_set_text(message.turn_requested.cause, sizeof(message.turn_requested.cause),
                   wait_cause());
    session_send(&agent->session, &message);
    agent->counters.requests++;
    log_debug("request: %lu, %s", agent->request_id, wait_cause());
}

static void send_withdrawal(struct agent *agent) {
    struct message message = {.type = MESSAGE_REQUEST_WITHDRAWN};
    message.request_withdrawn.request_id = agent->request_id;
    session_send(&agent->session, &message);
    log_debug("withdraw: %lu", agent->request_id);
}

static void probe(struct agent *agent) {
    struct turn_event event = {.kind = TURN_EVENT_PROBED, .busy = true};
    if (ending_driver_use_begin()) {
        event.busy = drain_device_busy();
        ending_driver_use_end();
    }
    agent_feed(agent, &event);
}

static void tell_user(const struct agent *agent, const char *what) {
    const char *problem = agent->session.problem;
    log_error("%s %s", problem[0] ? problem : "The GPU scheduler does not answer.", what);
}

static bool has_turn(enum turn_phase phase) {
    return phase != TURN_NONE && phase != TURN_ASKED;
}

static enum mover_goal goal_of(enum turn_phase phase) {
    if (phase == TURN_RESTORING) return MOVER_RESTORE;
    return has_turn(phase) ? MOVER_REST : MOVER_PARK;
}

static void perform(struct agent *agent, enum turn_phase phase_before, unsigned actions) {
    if (actions & TURN_ACT_SHUT) shut(agent);
    if (actions & TURN_ACT_OPEN) open_gate(agent);
    if (actions & TURN_ACT_RESTORE) restore(agent);
    if (has_turn(phase_before) && !has_turn(agent->turn.phase)) settle_memory(agent);
    if (actions & TURN_ACT_DROP) send_drop(agent);
    if (actions & TURN_ACT_STALL) send_stall(agent);
    if (actions & TURN_ACT_ASK) send_request(agent);
    if (actions & TURN_ACT_WITHDRAW) send_withdrawal(agent);
    if (actions & TURN_ACT_SAY_WAITING)
        tell_user(agent, "Until then the GPU work of this process waits; interrupt it to stop.");
    if (actions & TURN_ACT_SAY_RUNNING)
        tell_user(agent, "Until then the GPU work of this process runs without taking turns.");
    mover_set_goal(goal_of(agent->turn.phase));
    /* What a call waits for may have become clear only with the turn. */
    if (actions & TURN_ACT_OPEN) agent_tell_needs(agent);
    if (actions & TURN_ACT_PROBE) probe(agent);
}

/* Host copies of memory that is all here are given up at once: the gate needs to wait for nothing,
 * not even for the mover, which may be busy with host memory. */
bool agent_memory_is_away(void) {
    mover_set_goal(MOVER_REST);
    if (chunks_all_confirmed()) return false;
    /* With this goal the mover claims nothing. */
    for (int device = 0; device < REGISTRY_DEVICES_MAX && chunks_all_here(); device++)
        mover_host_confirm(device, false);
    bell_ring(NEWS_MEMORY_MOVED);
    return !chunks_all_confirmed();
}

void agent_feed(struct agent *agent, const struct turn_event *event) {
    enum turn_phase phase_before = agent->turn.phase;
    perform(agent, phase_before, turn_state_handle(&agent->turn, event, clock_now_ms()));
}

void agent_feed_kind(struct agent *agent, enum turn_event_kind kind) {
    struct turn_event event = {.kind = kind};
    agent_feed(agent, &event);
}
