#include "agent/turn_state.h"

#include <stddef.h>

/* Without a scheduler, until memory is all here. */
#define LOOK_AGAIN_MS 1000

/* Guards: what else has to be true for a transition. */
typedef bool (*turn_guard)(const struct turn_state *state);

static bool is_our_turn(const struct turn_state *state) {
    return state->turn_id == state->event.turn_id;
}

static bool can_reopen(const struct turn_state *state) {
    return is_our_turn(state) && state->recalled && !state->memory_away;
}

static bool can_give_back(const struct turn_state *state) {
    return state->connected;
}

static bool ends_with_the_cell(const struct turn_state *state) {
    return state->connected && !state->held_by_hand;
}

static bool has_outlived_its_cell(const struct turn_state *state) {
    return state->connected && state->cell_ended_held;
}

static bool cell_ended_away(const struct turn_state *state) {
    return state->cell_ended_away && !state->cell_runs;
}

static bool was_lost(const struct turn_state *state) {
    return state->event.turn_lost;
}

static bool is_idle(const struct turn_state *state) {
    return !state->event.busy && state->waiters > 0 && state->connected && !state->held_by_hand;
}

static bool memory_is_away(const struct turn_state *state) {
    return state->event.memory_away;
}

static bool must_restore(const struct turn_state *state) {
    return state->event.memory_away || state->event.remakes;
}

/* Nobody asked for the turn, so a call that wants it back may have it without a round trip. */
static bool is_ours_to_keep(const struct turn_state *state) {
    return !state->recalled && !state->is_too_small && !state->memory_away && state->turn_id != 0 &&
           state->reason != DROP_REASON_CONTEXT_FAILED && state->reason != DROP_REASON_CLOSING &&
           state->calls_wait;
}

/* Only the scheduler knows whether the gate may open again with the devices of that turn. */
static bool is_ours_to_report(const struct turn_state *state) {
    return state->recalled || (state->calls_wait && !state->memory_away);
}

/* It ended with the connection, or there was none: calls that wait need a new one. */
static bool has_no_turn(const struct turn_state *state) {
    return state->turn_id == 0 && state->connected && state->calls_wait;
}

static bool is_ours_to_keep_alone(const struct turn_state *state) {
    return is_ours_to_keep(state) && state->waiters == 0 && !state->remakes;
}

/* Who waited for the memory does so no more. */
static bool was_in_vain(const struct turn_state *state) {
    return state->remakes && !state->recalled && !state->is_too_small && state->turn_id != 0 &&
           state->reason == DROP_REASON_IDLE;
}

static bool goes_on_with_memory(const struct turn_state *state) {
    return is_ours_to_keep(state) && state->remakes;
}

/* Memory is never brought back without the scheduler's word that there is room. */
static bool may_run_alone(const struct turn_state *state) {
    return !state->connected && state->settings.fallback == FALLBACK_RUN &&
           !state->event.memory_away;
}

static bool must_wait_on(const struct turn_state *state) {
    return !state->connected && !may_run_alone(state) && !state->said_waiting;
}

struct turn_row {
    enum turn_phase from;
    enum turn_event_kind event;
    turn_guard guard; /* NULL: always */
    enum turn_phase to;
    unsigned actions;
    enum drop_reason reason; /* for rows that lead to CLOSING; 0 keeps what there is */
};

/* The whole machine. The first row that fits is taken; an event without one changes nothing. A row
 * that drops leads on to ASKED, and asks, when calls still wait (take). */
static const struct turn_row ROWS[] = {
    {TURN_NONE, TURN_EVENT_CALLS_WAIT, NULL, TURN_ASKED, TURN_ACT_ASK, 0},
    /* A grant that crossed the withdrawal of its request goes straight back. */
    {TURN_NONE, TURN_EVENT_GRANTED, NULL, TURN_CLOSING, TURN_ACT_SHUT, DROP_REASON_IDLE},

    {TURN_ASKED, TURN_EVENT_NO_CALLS_WAIT, NULL, TURN_NONE, TURN_ACT_WITHDRAW, 0},
    {TURN_ASKED, TURN_EVENT_CONNECTED, NULL, TURN_ASKED, TURN_ACT_ASK, 0},
    {TURN_ASKED, TURN_EVENT_GRANTED, must_restore, TURN_RESTORING, TURN_ACT_RESTORE, 0},
    {TURN_ASKED, TURN_EVENT_GRANTED, NULL, TURN_HELD, TURN_ACT_OPEN, 0},
    {TURN_ASKED, TURN_EVENT_TICK, may_run_alone, TURN_UNSCHEDULED,
     TURN_ACT_OPEN | TURN_ACT_SAY_RUNNING, 0},
    {TURN_ASKED, TURN_EVENT_TICK, must_wait_on, TURN_ASKED, TURN_ACT_SAY_WAITING, 0},

    /* Nothing is in flight and nobody is inside, so there is nothing to drain: whatever ends the
     * turn here ends it at once, with as much memory back as there is. */
    {TURN_RESTORING, TURN_EVENT_RESTORED, NULL, TURN_HELD, TURN_ACT_OPEN, 0},
    {TURN_RESTORING, TURN_EVENT_GRANTED, NULL, TURN_RESTORING, TURN_ACT_RESTORE, 0},
    {TURN_RESTORING, TURN_EVENT_RESTORE_FAILED, NULL, TURN_NONE, TURN_ACT_DROP,
     DROP_REASON_MEMORY_SHORT},
    {TURN_RESTORING, TURN_EVENT_RECALLED, is_our_turn, TURN_NONE, TURN_ACT_DROP,
     DROP_REASON_RECALL},
    {TURN_RESTORING, TURN_EVENT_NO_CALLS_WAIT, NULL, TURN_NONE, TURN_ACT_DROP, DROP_REASON_IDLE},
    {TURN_RESTORING, TURN_EVENT_CELL_ENDED, ends_with_the_cell, TURN_NONE, TURN_ACT_DROP,
     DROP_REASON_CELL_END},
    {TURN_RESTORING, TURN_EVENT_HOLD_ENDED, has_outlived_its_cell, TURN_NONE, TURN_ACT_DROP,
     DROP_REASON_CELL_END},
    {TURN_RESTORING, TURN_EVENT_DEVICE_OPENED, NULL, TURN_NONE, TURN_ACT_DROP, DROP_REASON_IDLE},
    {TURN_RESTORING, TURN_EVENT_LAST_DEVICE_CLOSED, NULL, TURN_NONE, TURN_ACT_DROP,
     DROP_REASON_CLOSING},
    {TURN_RESTORING, TURN_EVENT_CONTEXT_FAILED, NULL, TURN_NONE, TURN_ACT_DROP,
     DROP_REASON_CONTEXT_FAILED},
    /* Without a scheduler nothing more may come back, so the turn would be of no use. */
    {TURN_RESTORING, TURN_EVENT_DISCONNECTED, NULL, TURN_NONE, TURN_ACT_DROP, DROP_REASON_RECALL},

    {TURN_HELD, TURN_EVENT_GRANTED, NULL, TURN_HELD, TURN_ACT_OPEN, 0},
    {TURN_HELD, TURN_EVENT_CONTENTION, NULL, TURN_HELD, TURN_ACT_OPEN, 0},
    {TURN_HELD, TURN_EVENT_SETTINGS, NULL, TURN_HELD, TURN_ACT_OPEN, 0},
    {TURN_HELD, TURN_EVENT_RECALLED, is_our_turn, TURN_CLOSING, TURN_ACT_SHUT, DROP_REASON_RECALL},
    {TURN_HELD, TURN_EVENT_CELL_ENDED, ends_with_the_cell, TURN_CLOSING, TURN_ACT_SHUT,
     DROP_REASON_CELL_END},
    {TURN_HELD, TURN_EVENT_HOLD_ENDED, has_outlived_its_cell, TURN_CLOSING, TURN_ACT_SHUT,
     DROP_REASON_CELL_END},
    {TURN_HELD, TURN_EVENT_CONNECTED, cell_ended_away, TURN_CLOSING, TURN_ACT_SHUT,
     DROP_REASON_CELL_END},
    {TURN_HELD, TURN_EVENT_DISCONNECTED, was_lost, TURN_CLOSING, TURN_ACT_SHUT, DROP_REASON_RECALL},
    /* The turn covers the devices that were open when it was granted, so a further one needs a
     * new turn. */
    {TURN_HELD, TURN_EVENT_DEVICE_OPENED, can_give_back, TURN_CLOSING, TURN_ACT_SHUT,
     DROP_REASON_IDLE},
    {TURN_HELD, TURN_EVENT_LAST_DEVICE_CLOSED, NULL, TURN_CLOSING, TURN_ACT_SHUT,
     DROP_REASON_CLOSING},
    {TURN_HELD, TURN_EVENT_CONTEXT_FAILED, NULL, TURN_CLOSING, TURN_ACT_SHUT,
     DROP_REASON_CONTEXT_FAILED},
    {TURN_HELD, TURN_EVENT_REMAKE, NULL, TURN_CLOSING, TURN_ACT_SHUT, DROP_REASON_IDLE},
    {TURN_HELD, TURN_EVENT_SAMPLED, is_idle, TURN_HELD, TURN_ACT_PROBE, 0},
    {TURN_HELD, TURN_EVENT_PROBED, is_idle, TURN_CLOSING, TURN_ACT_SHUT, DROP_REASON_IDLE},

    {TURN_CLOSING, TURN_EVENT_RECALLED, is_our_turn, TURN_CLOSING, 0, 0},
    {TURN_CLOSING, TURN_EVENT_GRANTED, memory_is_away, TURN_RESTORING, TURN_ACT_RESTORE, 0},
    {TURN_CLOSING, TURN_EVENT_GRANTED, NULL, TURN_HELD, TURN_ACT_OPEN, 0},
    {TURN_CLOSING, TURN_EVENT_REOPENED, can_reopen, TURN_HELD, TURN_ACT_OPEN, 0},
    {TURN_CLOSING, TURN_EVENT_CALLS_WAIT, is_ours_to_keep_alone, TURN_HELD, TURN_ACT_OPEN, 0},
    {TURN_CLOSING, TURN_EVENT_NO_CALLS_WAIT, was_in_vain, TURN_HELD, TURN_ACT_OPEN, 0},
    /* Work in flight may wait for a call that waits at the gate: each stall leads on. */
    {TURN_CLOSING, TURN_EVENT_STALLED, has_no_turn, TURN_CLOSING, TURN_ACT_ASK, 0},
    {TURN_CLOSING, TURN_EVENT_STALLED, is_ours_to_keep, TURN_HELD, TURN_ACT_OPEN, 0},
    {TURN_CLOSING, TURN_EVENT_STALLED, is_ours_to_report, TURN_CLOSING, TURN_ACT_STALL, 0},
    {TURN_CLOSING, TURN_EVENT_TICK, may_run_alone, TURN_UNSCHEDULED,
     TURN_ACT_OPEN | TURN_ACT_SAY_RUNNING, 0},
    {TURN_CLOSING, TURN_EVENT_CONTEXT_FAILED, NULL, TURN_CLOSING, 0, DROP_REASON_CONTEXT_FAILED},
    {TURN_CLOSING, TURN_EVENT_DRAINED, goes_on_with_memory, TURN_RESTORING, TURN_ACT_RESTORE, 0},
    {TURN_CLOSING, TURN_EVENT_DRAINED, NULL, TURN_NONE, TURN_ACT_DROP, 0},

    {TURN_UNSCHEDULED, TURN_EVENT_CONNECTED, NULL, TURN_CLOSING, TURN_ACT_SHUT, DROP_REASON_IDLE},
};

void turn_state_start(struct turn_state *state, const struct turn_settings *settings,
                      uint64_t now_ms) {
    *state = (struct turn_state){.away_since_ms = now_ms};
    turn_state_configure(state, settings);
}

void turn_state_configure(struct turn_state *state, const struct turn_settings *settings) {
    state->settings = *settings;
    state->idle.idle_ms = settings->idle_ms;
}

/* What the event says about the world, whatever the phase is. */
static void note_facts(struct turn_state *state, const struct turn_event *event, uint64_t now_ms) {
    switch (event->kind) {
        case TURN_EVENT_CALLS_WAIT:
            state->calls_wait = true;
            if (!state->connected) state->away_since_ms = now_ms;
            break;
        case TURN_EVENT_NO_CALLS_WAIT:
            state->calls_wait = false;
            break;
        case TURN_EVENT_CONNECTED:
            state->connected = true;
            state->said_waiting = false;
            break;
        case TURN_EVENT_DISCONNECTED:
            if (state->connected) state->away_since_ms = now_ms;
            state->connected = false;
            state->waiters = 0;
            /* A hold is the scheduler's promise: whoever welcomes us next says whether it stands.
             */
            if (state->cell_ended_held) state->cell_ended_away = true;
            state->held_by_hand = false;
            if (event->turn_lost) state->turn_id = 0;
            break;
        case TURN_EVENT_CONTENTION:
            if (state->waiters == 0) state->idle.busy_ms = now_ms;
            state->waiters = event->waiters;
            state->idle.told_ms = event->idle_ms;
            state->tenants = event->tenants;
            break;
        case TURN_EVENT_GRANTED:
            state->waiters = event->waiters;
            state->memory_away = event->memory_away;
            state->is_too_small = false;
            state->idle.busy_ms = now_ms;
            break;
        case TURN_EVENT_CELL_BEGAN:
            state->cell_runs = true;
            state->cell_ended_away = false;
            state->cell_ended_held = false;
            break;
        case TURN_EVENT_CELL_ENDED:
            state->cell_runs = false;
            state->cell_ended_away = !state->connected;
            state->cell_ended_held = state->held_by_hand;
            break;
        case TURN_EVENT_HOLD_BEGAN:
            state->held_by_hand = true;
            break;
        case TURN_EVENT_HOLD_ENDED:
            state->held_by_hand = false;
            state->idle.busy_ms = now_ms;
            break;
        case TURN_EVENT_RESTORED:
            state->memory_away = false;
            state->idle.busy_ms = now_ms;
            break;
        case TURN_EVENT_DEVICE_OPENED:
            state->is_too_small = state->turn_id != 0 && state->connected;
            break;
        case TURN_EVENT_SAMPLED:
            state->sample_at_ms = now_ms;
            if (event->busy) state->idle.busy_ms = now_ms;
            break;
        case TURN_EVENT_TICK:
            state->ticked_at_ms = now_ms;
            break;
        case TURN_EVENT_PROBED:
            state->probing = false;
            if (event->busy) state->idle.busy_ms = now_ms;
            break;
        default:
            break;
    }
}

/* Time gates two kinds of rows, which their guards cannot see. */
static bool is_due(struct turn_state *state, const struct turn_event *event, uint64_t now_ms) {
    if (event->kind == TURN_EVENT_TICK)
        return now_ms >= state->away_since_ms + (uint64_t)state->settings.reconnect_s * 1000;
    if (event->kind == TURN_EVENT_SAMPLED) return now_ms >= idle_rule_over_ms(&state->idle, now_ms);
    return true;
}

static unsigned take(struct turn_state *state, const struct turn_row *row,
                     const struct turn_event *event, uint64_t now_ms) {
    unsigned actions = row->actions;
    state->phase = row->to;
    if (row->reason) state->reason = row->reason;
    if (event->kind == TURN_EVENT_GRANTED) state->turn_id = event->turn_id;
    if (event->kind == TURN_EVENT_RECALLED) state->recalled = true;
    if (row->to == TURN_HELD && row->from != TURN_HELD) state->recalled = false;
    state->remakes =
        row->to == TURN_CLOSING && (state->remakes || event->kind == TURN_EVENT_REMAKE);
    if (actions & TURN_ACT_SAY_WAITING) state->said_waiting = true;
    if (actions & TURN_ACT_PROBE) state->probing = true;
    if (actions & TURN_ACT_DROP) {
        state->dropped_turn_id = state->turn_id;
        state->dropped_reason = state->recalled && state->reason != DROP_REASON_CONTEXT_FAILED
                                    ? DROP_REASON_RECALL
                                    : state->reason;
        if (state->dropped_reason == DROP_REASON_IDLE) state->idle.released_ms = now_ms;
        /* Without a turn there is nothing to give back: the gate was open by itself. */
        if (state->turn_id == 0) actions &= ~(unsigned)TURN_ACT_DROP;
        state->turn_id = 0;
        state->recalled = false;
        state->is_too_small = false;
        state->memory_away = false;
        if (state->calls_wait) {
            state->phase = TURN_ASKED;
            actions |= TURN_ACT_ASK;
        }
    }
    if (state->phase == TURN_ASKED && row->from != TURN_ASKED)
        idle_rule_asked(&state->idle, now_ms);
    /* Nobody is there to be told; what matters is said again at the next connection. */
    if (!state->connected)
        actions &= ~(unsigned)(TURN_ACT_DROP | TURN_ACT_STALL | TURN_ACT_ASK | TURN_ACT_WITHDRAW);
    return actions;
}

unsigned turn_state_handle(struct turn_state *state, const struct turn_event *event,
                           uint64_t now_ms) {
    state->event = *event;
    note_facts(state, event, now_ms);
    if (!is_due(state, event, now_ms)) return 0;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        const struct turn_row *row = &ROWS[i];
        if (row->from == state->phase && row->event == event->kind &&
            (row->guard == NULL || row->guard(state)))
            return take(state, row, event, now_ms);
    }
    return 0;
}

bool turn_state_wants_samples(const struct turn_state *state) {
    return state->phase == TURN_HELD && state->connected && state->waiters > 0 && !state->probing &&
           !state->held_by_hand;
}

uint64_t turn_state_wake_ms(struct turn_state *state, uint64_t now_ms) {
    if (turn_state_wants_samples(state)) {
        uint64_t period_ms = state->settings.idle_ms / 4;
        uint64_t next_ms = state->sample_at_ms + (period_ms ? period_ms : 1);
        uint64_t over_ms = idle_rule_over_ms(&state->idle, now_ms);
        return next_ms < over_ms || over_ms <= state->sample_at_ms ? next_ms : over_ms;
    }
    const bool may_run = state->phase == TURN_CLOSING && may_run_alone(state);
    if ((state->phase != TURN_ASKED && !may_run) || state->connected) return TURN_NEVER;
    if (!state->said_waiting)
        return state->away_since_ms + (uint64_t)state->settings.reconnect_s * 1000;
    /* What is away may be here again: a copy out that was in vain, or what was parked is freed. */
    return state->settings.fallback == FALLBACK_RUN ? state->ticked_at_ms + LOOK_AGAIN_MS
                                                    : TURN_NEVER;
}

bool turn_state_windowed(const struct turn_state *state) {
    return state->phase == TURN_HELD && state->settings.turns && state->tenants != 1;
}

const char *turn_phase_name(enum turn_phase phase) {
    static const char *const NAMES[TURN_PHASES] = {
        [TURN_NONE] = "none",
        [TURN_ASKED] = "asked",
        [TURN_HELD] = "held",
        [TURN_CLOSING] = "closing",
        [TURN_UNSCHEDULED] = "unscheduled",
        [TURN_RESTORING] = "restoring",
    };
    return phase < TURN_PHASES ? NAMES[phase] : "?";
}
