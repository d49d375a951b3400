/* Finds out when nothing of this process is in flight any more. For the agent; never blocks: each
 * step looks once.
 *
 * First the calls inside the gate have to leave. Then every stream is asked, and every event that
 * stands for work which cannot be asked for; none of this adds an order between streams, so that
 * work which waits for other work of the process can still go on if the gate opens again. The
 * default streams come last, because an event in the legacy stream does add one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum drain_answer {
    DRAIN_BUSY,     /* nothing has changed since the last step */
    DRAIN_PROGRESS, /* less is left */
    DRAIN_DONE,     /* the gate may be reported as shut and empty */
};

struct drain {
    enum drain_phase { DRAIN_LEAVING, DRAIN_STREAMS, DRAIN_DEFAULTS, DRAIN_OVER } phase;
    uint32_t left; /* of the phase, at the last step */
    uint64_t closed_at_ns;
    uint64_t drained_at_ns;
};

/* The gate was shut just now. */
void drain_begin(struct drain *drain);
enum drain_answer drain_step(struct drain *drain);

/* With the gate open: the device still works for this process. */
bool drain_device_busy(void);
