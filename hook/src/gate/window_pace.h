/* How often a launching thread records an event, how many of them may be under way, and which it
 * asks the driver about. PURE: time is an argument. The bound is time: events under way x launches
 * per event x launch time stays below the window. A group is the launches between two events. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WINDOW_EVENTS 4              /* most events of a stream and thread under way */
#define WINDOW_LAUNCHES_PER_EVENT 16 /* from here on an event costs little beside them */
#define WINDOW_GROUPS_BEHIND 16 /* after so many it is tried again whether the device keeps up */

struct window_pace {
    uint64_t group_ns_max;       /* slowest group of late; fades */
    uint32_t launches_per_event; /* 1 at start, so that the first recall is bounded too */
    uint32_t depth;              /* events that may be under way; 1 until a group was measured */
    uint32_t groups_quick;       /* groups in a row that leave room for twice as many launches */
    uint32_t groups_behind;      /* so many more are asked about one by one */
};

void window_pace_start(struct window_pace *pace);

/* How many of the oldest groups to ask about at once, by the newest of their events: a query costs
 * half a launch, and where the device keeps up with the thread one answers for several. With so
 * many `under_way`, at least one. */
uint32_t window_pace_ask(struct window_pace *pace, uint32_t under_way);

/* More than one was asked about, and they were not done. */
void window_pace_behind(struct window_pace *pace);

/* Launches are so long that no more than one is to be under way. Where they are shorter, `depth` is
 * reached by and by: short groups that follow a long one would else let the device run dry. */
bool window_pace_is_one_at_a_time(const struct window_pace *pace);

/* A group took at most `group_ns` on the device. */
void window_pace_measured(struct window_pace *pace, uint64_t group_ns, uint64_t window_ns);
