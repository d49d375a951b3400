/* Streams: rings of work with one executor at the far end. */
#ifndef GPUSHARE_SIM_STREAM_H
#define GPUSHARE_SIM_STREAM_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "machine/engine.h"
#include "memory/pool.h"
#include "process/objects.h"
#include "streams/in_use.h"
#include "streams/op.h"

#define STREAM_RING_OPS 4096u /* work that may wait in a stream; a further call waits for room */
#define STREAM_NOBODY_WAITS UINT64_MAX
#define STREAM_WAITS_KEPT 16u /* the newest waits for other streams, which pools look at */

struct capture;

/* Sequence numbers count the work of a stream from 1; work n is done when completed >= n. */
struct stream {
    struct object object;
    struct context *context;
    uint32_t number; /* in the process; 0 is the legacy stream of the first context */
    unsigned flags;
    int priority;
    bool legacy;
    bool blocking;                  /* takes part in the order with the legacy stream */
    _Atomic uint64_t id;            /* written once, while others look for another one */
    struct stream *next_in_context; /* guarded by contexts_lock */

    pthread_mutex_t lock; /* producers: guards the ring's free end */
    struct op *ring;
    struct pool_order waits[STREAM_WAITS_KEPT]; /* guarded by the lock */
    uint64_t waits_noted;
    _Atomic uint64_t submitted;
    _Atomic uint64_t completed; /* written by the executor alone */
    _Atomic uint64_t wanted;    /* the first sequence that somebody waits for */
    _Atomic uint32_t bell;      /* futex of those who wait */
    _Atomic bool doomed;        /* destroyed by its user; ends when its work is done */

    struct capture *_Atomic capture; /* written under capture_lock */

    struct {
        struct stream *next;
        bool running;
        uint64_t started_ns;
        uint64_t graph_started_ns;
        uint64_t graph_next; /* which node of the graph at the head comes next */
        uint64_t bytes_done;
        enum sim_engine_kind engine;
        struct engine_job job;
        struct in_use use;          /* what the job touches */
        bool recheck;               /* somebody rang: the job may end earlier than planned */
        _Atomic uint32_t host_done; /* written by the host function thread */
    } execution;                    /* owned by the executor */
};

#pragma GCC visibility push(hidden)

extern struct object_pool stream_pool;

/* Queues a copy of `op`, whatever the stream captures; its sequence number. */
uint64_t stream_queue(struct stream *stream, struct op *op);

/* The stream with this id, with a reference; NULL when it is gone, and its work is done. */
struct stream *stream_by_id(uint64_t id);

/* Copies the waits that the stream has made lately; how many. */
size_t stream_waits(struct stream *stream, struct pool_order waits[STREAM_WAITS_KEPT]);

/* Waits until the stream's work up to `sequence` is done. The context's sticky error, if any. */
CUresult stream_wait(struct stream *stream, uint64_t sequence);

/* Somebody has waited for the stream's work up to `sequence`: pools look at what they keep. */
void stream_note_synchronised(struct stream *stream, uint64_t sequence);

bool stream_is_done(const struct stream *stream, uint64_t sequence);

/* Work that the legacy stream would wait for is under way: in blocking streams, in threads' own
 * default streams, and in such as were destroyed meanwhile. */
bool stream_others_are_busy(const struct stream *legacy);

struct stream *stream_open(struct context *context, unsigned flags, int priority, bool legacy);
/* Ends the user's handle; the work goes on. Again is no error. */
void stream_close(struct stream *stream);

/* True while any stream of this process has work that is not done. */
bool stream_any_is_busy(void);

/* Streams that the executor does not know yet, linked by execution.next: it takes all of them. */
struct stream *stream_take_incoming(void);
bool stream_any_incoming(void);

/* The executor has retired it: its context need not wait for it any more. */
void stream_forget(struct stream *stream);

/* Waits for everything queued in a context so far, in destroyed streams too. */
CUresult stream_wait_context(struct context *context);

#pragma GCC visibility pop
#endif
