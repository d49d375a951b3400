/* Where a client stands with its turn, and what follows from what happens. PURE: events and the
 * time in, actions out; no clock, no thread, no CUDA, no socket. The agent performs the actions.
 *
 *   NONE         no turn, nobody waits                             gate shut
 *   ASKED        a call waits, the scheduler has been or will be asked   gate shut
 *   RESTORING    the turn is held, and memory comes back first     gate shut
 *   HELD         the turn is held                                  gate open
 *   CLOSING      the turn is on its way back: work drains          gate shut
 *   UNSCHEDULED  no scheduler, and the fallback is to run          gate open
 */
#pragma once

#include "agent/idle_rule.h"
#include "agent/messages.h"

#define TURN_NEVER UINT64_MAX

enum turn_phase {
    TURN_NONE,
    TURN_ASKED,
    TURN_HELD,
    TURN_CLOSING,
    TURN_UNSCHEDULED,
    TURN_RESTORING,
    TURN_PHASES,
};

enum turn_event_kind {
    TURN_EVENT_CALLS_WAIT,         /* a call waits at the gate, none did before */
    TURN_EVENT_NO_CALLS_WAIT,      /* no call waits any more */
    TURN_EVENT_CONNECTED,          /* the scheduler has welcomed us */
    TURN_EVENT_DISCONNECTED,       /* the scheduler went away; `turn_lost` when it freed our turn */
    TURN_EVENT_SETTINGS,           /* the settings changed */
    TURN_EVENT_GRANTED,            /* turn_id, waiters, memory_away */
    TURN_EVENT_RECALLED,           /* turn_id */
    TURN_EVENT_REOPENED,           /* turn_id */
    TURN_EVENT_CONTENTION,         /* waiters, tenants, idle_ms */
    TURN_EVENT_CELL_BEGAN,         /* the first of the running cells */
    TURN_EVENT_CELL_ENDED,         /* the last of them */
    TURN_EVENT_DEVICE_OPENED,      /* a device that the turn does not cover yet */
    TURN_EVENT_LAST_DEVICE_CLOSED, /* no context is left */
    TURN_EVENT_CONTEXT_FAILED,     /* a sticky error */
    TURN_EVENT_SAMPLED,            /* busy: calls were made, or are under way */
    TURN_EVENT_PROBED,             /* busy: the device still works for us */
    TURN_EVENT_DRAINED,            /* nothing is in flight, nobody inside */
    TURN_EVENT_STALLED,            /* the drain makes no progress */
    TURN_EVENT_TICK,               /* time has passed; memory_away */
    TURN_EVENT_HOLD_BEGAN,         /* the user keeps the turn by hand */
    TURN_EVENT_HOLD_ENDED,         /* no longer */
    TURN_EVENT_RESTORED,           /* all memory is back */
    TURN_EVENT_RESTORE_FAILED,     /* there is no room for it; what had come is gone again */
    TURN_EVENT_REMAKE,             /* memory is to be made anew, which takes a drain */
};

struct turn_event {
    enum turn_event_kind kind;
    uint64_t turn_id;
    uint32_t waiters, tenants, idle_ms;
    bool busy;
    bool turn_lost;
    bool memory_away; /* some of it is parked, or on its way */
    bool remakes;     /* GRANTED: some is to be made anew, before the gate opens */
};

/* What the agent is to do, as bits; in this order where there are several. */
enum turn_action {
    TURN_ACT_SHUT = 1 << 0,        /* shut the gate and begin to drain */
    TURN_ACT_OPEN = 1 << 1,        /* open the gate, with a window when turn_state_windowed */
    TURN_ACT_DROP = 1 << 2,        /* send TurnDropped for dropped_turn_id, dropped_reason */
    TURN_ACT_STALL = 1 << 3,       /* send DrainStalled */
    TURN_ACT_ASK = 1 << 4,         /* send TurnRequested */
    TURN_ACT_WITHDRAW = 1 << 5,    /* send RequestWithdrawn */
    TURN_ACT_PROBE = 1 << 6,       /* find out whether the device still works for us */
    TURN_ACT_SAY_WAITING = 1 << 7, /* tell the user: no scheduler, calls go on waiting */
    TURN_ACT_SAY_RUNNING = 1 << 8, /* tell the user: no scheduler, calls go through */
    TURN_ACT_RESTORE = 1 << 9,     /* bring the memory back, then RESTORED or RESTORE_FAILED */
};

struct turn_settings {
    bool turns;
    uint32_t idle_ms;
    uint32_t reconnect_s;
    enum fallback fallback;
};

struct turn_state {
    enum turn_phase phase;
    uint64_t turn_id;        /* of the turn held, restoring or closing; 0 for none */
    enum drop_reason reason; /* why it is closing */
    bool recalled;           /* the scheduler asked for it back */
    bool is_too_small;       /* a device was opened since it was granted */
    bool memory_away;        /* it was granted while memory was away, which is not all back */
    bool remakes;            /* it is closing to make memory anew, and is to go on then */
    bool connected;
    bool calls_wait;
    bool cell_runs;
    bool cell_ended_away; /* a cell ended while there was no scheduler to give the turn to */
    bool held_by_hand;    /* neither a cell's end nor idleness gives the turn back */
    bool cell_ended_held; /* a cell ended meanwhile, and none has begun since */
    bool said_waiting;
    bool probing;
    uint32_t waiters;
    uint32_t tenants;       /* 0: not told yet */
    uint64_t away_since_ms; /* looking for a scheduler since, for the calls that wait */
    uint64_t sample_at_ms;
    uint64_t ticked_at_ms;
    struct turn_event event; /* the latest */
    struct turn_settings settings;
    struct idle_rule idle;
    /* The turn that the latest TURN_ACT_DROP is about. */
    uint64_t dropped_turn_id;
    enum drop_reason dropped_reason;
};

void turn_state_start(struct turn_state *state, const struct turn_settings *settings,
                      uint64_t now_ms);
void turn_state_configure(struct turn_state *state, const struct turn_settings *settings);

/* The one way to change the state. Returns the actions. */
unsigned turn_state_handle(struct turn_state *state, const struct turn_event *event,
                           uint64_t now_ms);

/* When to come again with TURN_EVENT_TICK, or with TURN_EVENT_SAMPLED while
 * turn_state_wants_samples; TURN_NEVER when only events matter. */
uint64_t turn_state_wake_ms(struct turn_state *state, uint64_t now_ms);
bool turn_state_wants_samples(const struct turn_state *state);

/* Whether an open gate bounds the work in flight. */
bool turn_state_windowed(const struct turn_state *state);

const char *turn_phase_name(enum turn_phase phase);
