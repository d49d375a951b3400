/* What the process has in its contexts: streams, captures, and events that outlive the stream they
 * were recorded in. Each names its context by the generation (contexts.h), and goes with it.
 * LOCK_STREAMS guards the tables; it is held for single queries of the driver, so that a stream or
 * context is not destroyed under them, and never across a wait. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct stream_entry {
    void *stream;
    uint64_t context;
    uint64_t number; /* never used twice */
    bool is_marked;  /* a capture of this stream began: what it had in flight then is known, */
    void *mark;      /* and done when this event is; NULL: it had nothing */
    bool blocking;   /* keeps order with the legacy stream */
    bool draining;   /* drain.c: not seen done since the gate was shut */
};

/* A capture that began and did not end. The threads' own default streams have one name, and are
 * told apart by thread and context. */
struct capture_entry {
    void *stream;
    uint64_t context;
    uint64_t owner;    /* the stream's number, or the context of a thread's own; 0: not known */
    uint64_t asked_ns; /* when its thread looked who the owner is */
    uint64_t since_ns;
    pthread_t thread;
    bool blocking;
};

/* An event whose stream or thread is gone; its work may still run. */
struct orphan_entry {
    uint64_t context;
    void *event;
    uint64_t number; /* counts with those of streams */
};

struct streams {
    uint64_t last_number;
    struct stream_entry *streams;
    uint32_t streams_used, streams_room;
    struct orphan_entry *orphans;
    uint32_t orphans_used, orphans_room;
    struct orphan_entry *spares; /* events that nobody uses now */
    uint32_t spares_used, spares_room;
    struct capture_entry *captures;
    uint32_t captures_used, captures_room;
    bool own_joined; /* a thread's own default stream may have joined one of them */
};

/* Counts up whenever a stream or context goes, so that threads check what they remember. */
extern _Atomic uint32_t streams_epoch;
/* How many captures are under way in this process. */
extern _Atomic uint32_t streams_captures;
static inline bool streams_capture_anywhere(void) {
    return atomic_load(&streams_captures) > 0;
}

/* True for a handle of its own. The default streams have none: NULL, or one of two fixed values. */
static inline bool streams_is_created(const void *stream) {
    return (uintptr_t)stream > 2;
}

/* A stream was made, or goes. */
void streams_opened(void *stream);
void streams_closing(void *stream);
/* The number and context of a created stream, which becomes known if it was not; 0 when it cannot
 * be told. Only for the stream of the program's own call: the driver is asked about a handle that
 * the table lacks, and crashes on one that was destroyed. */
uint64_t streams_number(void *stream, void **context);
/* The same without the driver: 0 when the table lacks the stream. */
uint64_t streams_known_number(void *stream, void **context);

/* The created stream with this number keeps order with the legacy one. */
bool streams_is_blocking(uint64_t number);

/* How many streams are being destroyed: their work is in no table. */
extern _Atomic uint32_t streams_leaving;

/* Before the driver is called (cuStreamBeginCapture of any kind), so that what the stream has in
 * flight can still be marked. The owner, for `_begun` after the driver, which may have refused. */
uint64_t streams_capture_beginning(void *stream);
void streams_capture_begun(void *stream, uint64_t owner, bool is_refused);
/* Before the driver is called (cuStreamEndCapture): who has the captures of this created stream, or
 * of the calling thread's own. */
uint64_t streams_capture_owner(void *stream);
/* A capture of this owner is over; which one of them does not matter. The driver is not asked:
 * another thread may know of the end, and have destroyed the stream, or capture in one that has its
 * handle now, which is another owner. */
void streams_capture_ended(const void *stream, uint64_t owner);
/* Forgets captures in created streams that the driver does not know: a signal's handler has jumped
 * out of the call that began or ended them. One that just begins comes back by `_begun`. */
void streams_forget_stale_captures(void);
/* The calling thread ends, and a capture in its own default stream with it. */
void streams_thread_ends(void);
/* Before the stream waits for an event: by that a thread's own default stream may join a capture.
 */
void streams_joining(const void *stream);
/* True when the calling thread's launch into this stream would be captured. */
bool streams_is_capturing(void *stream);

/* The thread that made the event ends, or forgets it: kept until it is done (`pending`), or at
 * once given to whoever needs one next. */
void streams_adopt_event(uint64_t context, void *event, bool pending);
/* Whether all before this event of the context is done; false too when the context is gone. */
bool streams_event_is_done(uint64_t context, void *event);
/* An event of this context, used before; NULL when there is none, or where somebody has the lock.
 */
void *streams_spare_event(uint64_t context);
/* `spare`, or one that it makes, behind what is in the stream of the current context now, and
 * disturbs no capture; NULL where the driver refuses. */
void *streams_record_in(uint64_t context, void *stream, void *spare);

/* ---- with the tables locked ---- */

struct streams *streams_tables(void);
struct stream_entry *streams_find_number(uint64_t number);
/* The capture that was begun in this created stream. It is there from before the driver knows of it
 * until after the driver has ended it. */
struct capture_entry *streams_find_capture(const void *stream);
/* An event that is not needed any more. */
void streams_keep_spare(uint64_t context, void *event);
/* A blocking stream of the context captures, or may do so: then nobody may touch its legacy stream.
 * A mere query of that ends the capture (measured), whatever the mode of both threads. */
bool streams_blocking_captures(uint64_t context);
void streams_forget_context(uint64_t context);

/* ---- without the lock, which recording must not hold: it waits where a queue is full ---- */

/* For who looks at a stream that its own thread uses: captures alone wait for it. */
#define STREAMS_NO_CONTEXT UINT64_MAX

/* Until streams_recording_ends of this place, no stream of the context ends, nor itself, and no
 * capture begins; the second one is false while a capture is active. Who looks afterwards whether
 * what it uses is still there is waited for. Never with the lock: where all places are taken, their
 * owners may wait for it. */
uint32_t streams_use_begins(uint64_t context);
bool streams_recording_begins(uint64_t context, uint32_t *place);
void streams_recording_ends(uint32_t place);

/* An event behind what is in the stream of this number, or (0) in the legacy stream of the context,
 * which is current. NULL: there is no such stream, or no event. */
void *streams_record(uint64_t context, uint64_t number);

/* The context or a stream of it ends, and is in the tables as such: nobody else records in it any
 * more. Who does just now is let through, however long: the driver's own call would wait as well.
 */
void streams_let_others_record(uint64_t context);

/* In a child after fork nothing of this is left. */
void streams_after_fork(void);
