/* Bounding the work in flight of this process while another tenant is registered on its device.
 *
 * Each thread has a ring of events per stream that it launches into; it records them itself and
 * waits for old ones itself, so nothing here takes a lock on the launch path. A ring belongs to its
 * thread: it is written only while that thread is inside the gate, and read by the agent only while
 * the gate is shut and nobody is inside. */
#pragma once

#include "gate/gate.h"
#include "gate/window_pace.h"

#define WINDOW_RINGS 16 /* streams that a thread launches into without re-measuring */

enum window_stream_kind {
    WINDOW_STREAM_CREATED,    /* has a handle of its own; known to streams.c */
    WINDOW_STREAM_LEGACY,     /* the default stream of a context */
    WINDOW_STREAM_PER_THREAD, /* the default stream of this thread in a context */
};

struct window_ring {
    void *stream;  /* NULL: this ring is unused */
    void *context; /* where the events live */
    enum window_stream_kind kind;
    uint32_t streams_epoch;      /* the ring was checked against the stream table at this epoch */
    uint64_t stream_number;      /* streams.c: tell a stream or context from a later one */
    uint64_t context_number;     /* at the same address */
    uint32_t turn_epoch;         /* the ring's events are of this turn; older ones are all done */
    void *events[WINDOW_EVENTS]; /* made when first used */
    uint32_t oldest;             /* index of the oldest event under way */
    uint32_t under_way;          /* events recorded and not seen done */
    uint32_t uncovered;          /* launches since the last event */
    bool is_refused;             /* the driver refused the event of the newest launches */
    bool waived;                 /* the oldest event stalls: one more group goes without it */
    uint32_t waivers;            /* how often, since an event was seen done */
    uint32_t let_go;             /* launches that did not wait for what was under way */
    uint32_t let_go_done;        /* of those, the ones that were seen done */
    uint32_t let_go_max;         /* so many at a time may, for the work may wait for them */
    struct window_pace pace;
    uint64_t group_started_ns[WINDOW_EVENTS]; /* first launch of each event's group */
    uint32_t group_stalls[WINDOW_EVENTS];     /* of the process, when the event was recorded */
    uint32_t group_let_go[WINDOW_EVENTS];     /* of the ring */
    uint64_t next_group_started_ns;
    uint64_t ahead_done_ns_min; /* the group ahead of the oldest was not done before this */
    uint64_t pending_ns;        /* the oldest was last seen pending then; 0: not waited for */
    uint64_t done_seen_ns;      /* a wait saw the oldest done then; 0: none did */
};

struct thread_record;

/* Settings; any thread may read them. `active` is false where the gate is open without a window. */
void window_configure(uint32_t window_ms, uint32_t stall_ms);
void window_set_active(bool active);

/* Calls wait from here on, and what is under way may wait for them: it is no measure. */
void window_gate_shuts(void);

/* A turn's work has drained: all events of earlier turns are done. */
void window_turn_drained(void);

/* For a thread inside the gate that is about to launch: true when it may. Otherwise it has waited
 * for room, outside the gate, and has to look at the gate word again. */
bool window_admit(struct thread_record *thread, const struct gate_call *call);

/* The same in short, for a launch that follows another in one group: true when the thread's last
 * one is in this stream and has no event yet, and nothing has changed that would be looked at. */
bool window_joins(const struct thread_record *thread, const void *stream,
                  enum gate_stream_variant variant);

/* The launch that window_admit counted was accepted by the driver. */
void window_launched(struct thread_record *thread, struct window_ring *ring);

/* Events of rings that the agent may need: the ring's work of this turn is done when `*event` is.
 * False when there is no such work, or when its last launches have no event. */
bool window_last_event(const struct window_ring *ring, void **event);

/* The thread ends: its events go to the stream table. */
void window_thread_ends(struct thread_record *thread);
