/* The agent's own state, for the files that make it up: agent.c (thread, loop, drain), performer.c
 * (actions), conversation.c (messages), memory_talk.c (those about memory). Touched by the agent
 * thread alone. */
#pragma once

#include "agent/session.h"
#include "agent/turn_state.h"
#include "gate/drain.h"
#include "memory/registry.h"
#include "swap/residency.h"

struct agent_counters {
    uint64_t requests, grants, recalls, drops, stalls, reopenings, hold_answers;
};

struct agent {
    struct turn_state turn;
    struct session session;
    struct drain drain;
    bool draining;
    uint64_t drain_began_ns;
    uint64_t drain_progress_ms;
    uint32_t drain_stall_ms;
    uint32_t remake_stalls; /* of drains for memory that is to be made anew, in a row */
    uint64_t remake_at_ms;  /* not before */
    uint32_t window_ms;
    bool gate_is_open, gate_is_windowed;
    uint64_t request_id;
    uint64_t activity_seen;
    bool calls_wait_seen, cell_runs_seen, cell_end_untold;
    uint64_t cells_ended_seen;
    uint64_t memory_report_at_ms; /* not before; 0: at once */
    uint64_t looked_at_ms;        /* what was due by then was looked at */
    uint32_t queue_position;
    char holder[129];
    uint64_t hold_ends_ms; /* the turn is kept by hand until then; 0: not */
    struct agent_counters counters;
    /* What the scheduler was told last of each device's memory, and which claim's need. */
    uint64_t host_room_bytes;
    uint64_t host_look_at_ms;    /* that was too little: look again then; 0: it was enough */
    uint64_t host_busy_until_ms; /* until then more may come at any moment */
    struct residency_numbers told_numbers[REGISTRY_DEVICES_MAX];
    struct registry_sums told_kinds[REGISTRY_DEVICES_MAX];
    uint64_t told_unpinned_bytes, told_ready_rate;
    struct told_need {
        uint32_t number; /* 0: none */
        uint64_t bytes_resident;
    } told_needs[REGISTRY_DEVICES_MAX];
};

/* Hands an event to the turn state and performs what follows. */
void agent_feed(struct agent *agent, const struct turn_event *event);
void agent_feed_kind(struct agent *agent, enum turn_event_kind kind);
/* For events that say so. Stops the mover first, so that nothing leaves once this was answered; the
 * event that follows sets its goal anew. */
bool agent_memory_is_away(void);

/* Everything that has come from the scheduler, and what the devices have news of. */
void agent_converse(struct agent *agent);
void agent_report_devices(struct agent *agent);
/* Reports the memory of each device on which it is not as it was told last; with `all`, of all on
 * which there is any. */
void agent_report_memory(struct agent *agent, bool all);
/* There was less host memory than could be needed: tells when there is more. */
void agent_look_at_scarce_host(struct agent *agent);
/* Host memory was not to be had: tells when there is less than was told. */
void agent_look_at_short_host(struct agent *agent);
/* Claims that wait for budget, and requests for room, that the scheduler does not know of. */
void agent_tell_needs(struct agent *agent);
void agent_on_budget(struct agent *agent, const struct message_memory_budget *budget);
/* A context has failed: its memory cannot move any more. */
void agent_fix_failed_memory(void);
/* Nothing of what was told holds for the next connection; or when this device is opened again. */
void agent_forget_told(struct agent *agent);
void agent_forget_told_of(struct agent *agent, int device);
/* What the user wants by hand, as soon as there is a scheduler to hear it. */
void agent_tell_wishes(struct agent *agent);

/* Makes the state visible to agent_describe. */
void agent_publish(const struct agent *agent);
