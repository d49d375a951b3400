/* What the process has in its contexts: streams, captures, and events that outlive the stream they
 * were recorded in. Each names its context by the generation (contexts.h), and goes with it.
 * LOCK_STREAMS guards the tables; it is held for single queries of the driver, so that a stream or
 * context is not destroyed under them, and never across a wait. */
#ifndef GPUSHARE_STREAMS_H
#define GPUSHARE_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct stream_entry {
    void *stream;
    uint64_t context;
    uint64_t number; /* never used twice */
    void *mark;      /* event of the work before a capture of this stream began, or NULL */
    bool draining;   /* drain.c: not seen done since the gate was shut */
};

/* An event whose stream or thread is gone; its work may still run. */
struct orphan_entry {
    uint64_t context;
    void *event;
};

struct streams {
    struct stream_entry *streams;
    uint32_t streams_used, streams_room;
    struct orphan_entry *orphans;
    uint32_t orphans_used, orphans_room;
    struct orphan_entry *spares; /* events that nobody uses now */
    uint32_t spares_used, spares_room;
    void **captures; /* streams whose capture began and did not end */
    uint32_t captures_used, captures_room;
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
 * be told. */
uint64_t streams_number(void *stream, void **context);

/* Before the driver is called (cuStreamBeginCapture of any kind), so that what the stream has in
 * flight can still be marked; where the driver then refuses, and after every cuStreamEndCapture
 * whatever it answered, `_ended` follows. */
void streams_capture_beginning(void *stream);
void streams_capture_ended(void *stream);
/* True when the calling thread's launch into this stream would be captured. */
bool streams_is_capturing(void *stream);

/* The thread that made the event ends, or forgets it: kept until it is done (`pending`), or at
 * once given to whoever needs one next. */
void streams_adopt_event(uint64_t context, void *event, bool pending);
/* Whether all before this event of the context is done; false too when the context is gone. */
bool streams_event_is_done(uint64_t context, void *event);
/* An event of this context, used before; NULL when there is none. */
void *streams_spare_event(uint64_t context);

/* ---- with the tables locked ---- */

struct streams *streams_tables(void);
void streams_forget_context(uint64_t context);

/* In a child after fork nothing of this is left. */
void streams_after_fork(void);

#pragma GCC visibility pop
#endif
