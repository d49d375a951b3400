/* What the process has on its devices: contexts, streams, captures, and events that outlive the
 * stream they were recorded in. LOCK_STREAMS guards the tables; it is held for single queries of
 * the driver, so that a stream or context is not destroyed under them, and never across a wait. */
#ifndef GPUSHARE_STREAMS_H
#define GPUSHARE_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct stream_entry {
    void *stream;
    void *context;
    uint64_t number; /* never used twice */
    void *mark;      /* event of the work before a capture of this stream began, or NULL */
    bool draining;   /* drain.c: not seen done since the gate was shut */
};

struct context_entry {
    void *context;
    uint64_t number; /* never used twice */
    int ordinal;
    int failed_result; /* the sticky error, or 0 */
    void *mark;        /* drain.c: event for the legacy stream, or NULL */
    bool marked;       /* drain.c: it was recorded since the gate was shut */
    bool draining;     /* drain.c: the default streams are not seen done */
};

/* An event whose stream or thread is gone; its work may still run. */
struct orphan_entry {
    void *context;
    void *event;
};

struct streams {
    struct context_entry *contexts;
    uint32_t contexts_used, contexts_room;
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
/* How many contexts are open, and how many of them have a sticky error. */
extern _Atomic uint32_t streams_contexts_open;
extern _Atomic uint32_t streams_contexts_failed;
/* How many contexts the driver is taking down just now. */
extern _Atomic uint32_t streams_contexts_closing;

/* Takes LOCK_STREAMS and gives the tables; streams_unlock gives it back. */
struct streams *streams_lock(void);
void streams_unlock(void);

/* Context known from now on. True when it was not before and is the first on its device. */
bool streams_context_opened(void *context, int ordinal);
/* Forgets it, its streams and events; false when it was not known. Until streams_context_closed it
 * counts as one that still has work. */
bool streams_context_closing(void *context);
/* The driver has taken it down. True when no context is left on its device. */
bool streams_context_closed(int ordinal);
/* Notes a sticky error; true the first time for this context. Gives the device. */
bool streams_context_fails(void *context, int cu_result, int *ordinal);
bool streams_context_has_failed(void *context);

void streams_opened(void *stream, void *context);
void streams_closing(void *stream);
/* The number and context of a created stream, which becomes known if it was not; 0 when it cannot
 * be told. */
uint64_t streams_number(void *stream, void **context);
/* The number of a context; 0 when it is not known. */
uint64_t streams_context_number(void *context);

void streams_capture_beginning(void *stream);
void streams_capture_ended(void *stream);
/* True when the calling thread's launch into this stream would be captured. */
bool streams_is_capturing(void *stream);

/* The thread that made the event ends, or forgets it: kept until it is done (`pending`), or at
 * once given to whoever needs one next. */
void streams_adopt_event(void *context, void *event, bool pending);
/* Whether all before this event of the context is done; false too when the context is gone. */
bool streams_event_is_done(void *context, void *event);
/* An event of this context, used before; NULL when there is none. */
void *streams_spare_event(void *context);

/* In a child after fork nothing of this is left. */
void streams_after_fork(void);

#pragma GCC visibility pop
#endif
