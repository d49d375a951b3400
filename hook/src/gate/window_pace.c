#include "gate/window_pace.h"

void window_pace_start(struct window_pace *pace) {
    *pace = (struct window_pace){.launches_per_event = 1, .depth = 1};
}

uint32_t window_pace_ask(struct window_pace *pace, uint32_t under_way) {
    if (pace->groups_behind > 0) {
        pace->groups_behind--;
        return 1;
    }
    /* The newest of all was recorded a moment ago. */
    return under_way == WINDOW_EVENTS ? WINDOW_EVENTS - 1 : 1;
}

void window_pace_behind(struct window_pace *pace) {
    pace->groups_behind = WINDOW_GROUPS_BEHIND;
}

bool window_pace_is_one_at_a_time(const struct window_pace *pace) {
    return pace->depth == 1 && pace->launches_per_event == 1;
}

void window_pace_measured(struct window_pace *pace, uint64_t group_ns, uint64_t window_ns) {
    /* The slowest group counts, and fades by an eighth a group: one long launch among many short
     * ones must not be forgotten before it comes again in the next step of a training loop. */
    uint64_t faded = pace->group_ns_max - pace->group_ns_max / 8;
    uint64_t slowest = group_ns > faded ? group_ns : faded;

    if (slowest * WINDOW_EVENTS > window_ns) {
        pace->groups_quick = 0;
        if (pace->launches_per_event > 1) pace->launches_per_event /= 2;
    } else if (slowest * WINDOW_EVENTS * 2 <= window_ns) {
        pace->groups_quick++;
    } else {
        pace->groups_quick = 0;
    }
    if (pace->groups_quick >= WINDOW_EVENTS &&
        pace->launches_per_event < WINDOW_LAUNCHES_PER_EVENT) {
        pace->groups_quick = 0;
        pace->launches_per_event *= 2;
        slowest *= 2;
    }
    pace->group_ns_max = slowest;

    uint64_t depth = slowest ? window_ns / slowest : WINDOW_EVENTS;
    if (depth < 1) depth = 1;
    if (depth > WINDOW_EVENTS) depth = WINDOW_EVENTS;
    pace->depth = (uint32_t)depth;
}
