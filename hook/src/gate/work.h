/* Waiting for a context's work. */
#pragma once

#include "base/driver.h"
#include "device/streams.h"

/* What the driver's answer to a question about a stream, an event or a context says of its work. */
enum work_state {
    WORK_OVER,    /* done, or what it was in is gone and has taken it along */
    WORK_FAILED,  /* a sticky error: over too */
    WORK_RUNS,    /* or a capture began there meanwhile */
    WORK_UNKNOWN, /* the answer tells nothing: the driver is asked again for WORK_UNKNOWN_NS */
};
#define WORK_UNKNOWN_NS 1000000000u
enum work_state work_state_of(CUresult answer);

/* Asks about what the stream has in flight, in its context. One that captures cannot be asked: what
 * was in it before is marked where its capture was begun; where it joined the capture of another
 * stream, only the end of that helps. */
CUresult work_ask_stream(const struct driver *cuda, const struct stream_entry *entry);

/* Waits for all work that the context has now, as cuMemFree does, unlike the calls that take mapped
 * memory down. Disturbs no capture: CUDA_ERROR_NOT_READY where one has begun and work cannot be
 * told from what comes after it. */
CUresult work_wait(uint64_t context);

/* Whether all that is in the stream with this number now is over (0: in the legacy stream of the
 * context). Adds nothing to it and waits for nothing; false too where it cannot be asked. */
bool work_of_stream_is_over(uint64_t context, uint64_t number);
/* The same, for the thread that uses the stream; false too beside a capture. */
bool work_stream_is_idle(void *stream);
/* An event behind what is in a stream of the context. NULL: it cannot be recorded, in the legacy
 * stream beside a capture. Waits where the stream's queue is full, so it is for a thread that uses
 * the stream. */
void *work_mark(uint64_t context, void *stream, bool is_legacy);
/* The stream waits on the device for an event of that context, which may end meanwhile. */
bool work_follow(uint64_t context, void *event, void *stream);
/* All work that the context has now is over. Waits for nothing. */
bool work_is_over(uint64_t context);
