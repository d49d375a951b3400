/* Device time: processor sharing among all jobs of all processes on one engine of one device.
 * The functions here take the segment's lock, except those that end in _locked. */
#ifndef GPUSHARE_SIM_ENGINE_H
#define GPUSHARE_SIM_ENGINE_H

#include "machine/segment.h"

#define ENGINE_NEVER UINT64_MAX

/* One job of the calling process. Owned by its executor. */
struct engine_job {
    uint64_t ends_virtual_ns; /* ENGINE_NEVER: ends when somebody says so */
    uint64_t check_at_ns;     /* the earliest real time at which it can have ended */
};

#pragma GCC visibility push(hidden)

/* A job of `work_ns` begins now. */
void engine_begin(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                  enum sim_engine_kind kind, uint64_t work_ns, struct engine_job *job);

/* The job goes on with `work_ns` more, counted from when it ended: lateness is made up for. */
void engine_extend(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                   enum sim_engine_kind kind, uint64_t work_ns, struct engine_job *job);

/* True when the job has had its time. Else check_at_ns tells when to look again. */
bool engine_has_ended(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                      enum sim_engine_kind kind, struct engine_job *job);

/* The job leaves the engine; executors whose jobs end earlier by that are woken. */
void engine_end(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                enum sim_engine_kind kind);
void engine_end_locked(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                       enum sim_engine_kind kind);

/* Wakes the executor of a process. */
void engine_ring(struct sim_process *process);

#pragma GCC visibility pop
#endif
