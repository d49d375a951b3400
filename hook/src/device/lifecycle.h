/* What the wrappers tell the runtime (agent, gate, window) about the process's use of CUDA.
 *
 * The wrappers (wrappers.c, generated code) call these after the driver has answered with success,
 * except where a name says `_closing` (and capture, see there): those come before the driver is
 * called. Handles are void
 * pointers and devices are ordinals, so that this header names no CUDA type. None of these blocks
 * on the device. All are hidden symbols. */
#ifndef GPUSHARE_LIFECYCLE_H
#define GPUSHARE_LIFECYCLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* cuInit answered success for the first time in this process (again after a fork). */
void lifecycle_cuda_opened(void);

/* A context exists (created, or a primary context retained for the first time). */
void lifecycle_context_opened(void *context, int device_ordinal);
/* A context is about to be destroyed, or a primary context released for the last time or reset. */
bool lifecycle_context_closing(void *context, int device_ordinal);
/* The driver has taken down a context for which `_closing` said true: it was known. */
void lifecycle_context_closed(int device_ordinal);

/* The calling thread's current context is about to be another one. */
void lifecycle_context_switches(void);

/* A stream exists in the calling thread's current context. */
void lifecycle_stream_opened(void *stream, unsigned int flags);
void lifecycle_stream_closing(void *stream);

/* Stream capture: counted per process; while any is active, streams are asked one by one.
 * `_began` comes BEFORE the driver is called (cuStreamBeginCapture of any kind), so that what the
 * stream had in flight can still be marked; where the driver then refuses, and after every
 * cuStreamEndCapture whatever it answered, `_ended` follows. */
void lifecycle_capture_began(void *stream);
void lifecycle_capture_ended(void *stream);

/* A thread is about to wait for the device (synchronise calls), or has done so. A thread that
 * waits so is busy, not idle. `cu_result` may tell of a sticky error. */
void lifecycle_synchronise_began(void);
void lifecycle_synchronise_ended(int cu_result);

/* Device memory of this process changed on a device (registry.c has the sums). */
void lifecycle_memory_changed(int device_ordinal, uint64_t bytes_allocated, uint64_t bytes_fixed);

/* The tenant's cap on a device (0: none) and what its other processes have allocated there. */
void lifecycle_memory_limit(int device_ordinal, uint64_t *cap_bytes, uint64_t *others_bytes);

/* The program wants to know how much memory there is. It may ask before the scheduler has said what
 * the tenant may have; then this waits for the answer, once for each device and a second at most.
 */
void lifecycle_learn_memory_limit(int device_ordinal);

/* For a process that uses NVML and no CUDA: asks the scheduler on a connection of its own, waiting
 * at most a second. False when there is no answer: then NVML's own numbers stand. */
struct memory_answer;
bool lifecycle_ask_memory(const uint8_t device_uuid[16], struct memory_answer *answer);

/* True when the hook takes part in this process at all (not GPUSHARE_DISABLE, socket and token
 * given). Cheap; callable before anything else. */
bool lifecycle_enabled(void);

#pragma GCC visibility pop
#endif
