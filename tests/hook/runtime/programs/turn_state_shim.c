/* The hook's pure parts behind plain functions, for ctypes. */
#include <stdlib.h>

#include "agent/turn_state.h"
#include "gate/window_pace.h"

struct turn_state *ts_new(unsigned idle_ms, unsigned reconnect_s, int fallback, int turns,
                          uint64_t now_ms) {
    struct turn_settings settings = {turns != 0, idle_ms, reconnect_s, (enum fallback)fallback};
    struct turn_state *state = malloc(sizeof(*state));
    turn_state_start(state, &settings, now_ms);
    return state;
}

void ts_free(struct turn_state *state) {
    free(state);
}

unsigned ts_event(struct turn_state *state, int kind, uint64_t now_ms, uint64_t turn_id,
                  unsigned waiters, unsigned tenants, unsigned idle_ms, int busy, int turn_lost,
                  int memory_away, int remakes) {
    struct turn_event event = {(enum turn_event_kind)kind,
                               turn_id,
                               waiters,
                               tenants,
                               idle_ms,
                               busy != 0,
                               turn_lost != 0,
                               memory_away != 0,
                               remakes != 0};
    return turn_state_handle(state, &event, now_ms);
}

int ts_phase(const struct turn_state *state) {
    return (int)state->phase;
}

uint64_t ts_turn_id(const struct turn_state *state) {
    return state->turn_id;
}

int ts_dropped_reason(const struct turn_state *state) {
    return (int)state->dropped_reason;
}

uint64_t ts_dropped_turn_id(const struct turn_state *state) {
    return state->dropped_turn_id;
}

uint64_t ts_wake_ms(struct turn_state *state, uint64_t now_ms) {
    return turn_state_wake_ms(state, now_ms);
}

int ts_wants_samples(const struct turn_state *state) {
    return turn_state_wants_samples(state);
}

int ts_windowed(const struct turn_state *state) {
    return turn_state_windowed(state);
}

struct window_pace *pace_new(void) {
    struct window_pace *pace = malloc(sizeof(*pace));
    window_pace_start(pace);
    return pace;
}

void pace_free(struct window_pace *pace) {
    free(pace);
}

void pace_measured(struct window_pace *pace, uint64_t group_ns, uint64_t window_ns) {
    window_pace_measured(pace, group_ns, window_ns);
}

uint32_t pace_ask(struct window_pace *pace, uint32_t under_way) {
    return window_pace_ask(pace, under_way);
}

void pace_behind(struct window_pace *pace) {
    window_pace_behind(pace);
}

unsigned pace_launches_per_event(const struct window_pace *pace) {
    return pace->launches_per_event;
}

unsigned pace_depth(const struct window_pace *pace) {
    return pace->depth;
}
