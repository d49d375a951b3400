/* Contexts: one primary per device and any number of others. */
#ifndef GPUSHARE_SIM_CONTEXT_H
#define GPUSHARE_SIM_CONTEXT_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "machine/segment.h"
#include "process/objects.h"

struct stream;

struct context {
    struct object object;
    int ordinal;     /* CUdevice, as this process counts */
    uint32_t device; /* index in the segment */
    bool primary;
    unsigned flags;
    uint64_t id;
    uint64_t footprint_bytes;
    _Atomic int sticky;     /* CUresult that every further call answers; 0: none */
    _Atomic uint64_t order; /* of work in blocking streams and the legacy stream */
    _Atomic uint32_t peers; /* bit per segment index: access enabled to that device's memory */
    _Atomic int captures;   /* captures under way in blocking streams */
    struct stream *legacy;  /* set at creation, dropped at the end */
    struct stream *streams; /* all of them, the legacy one too; guarded by contexts_lock */
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache_config;
};

#pragma GCC visibility push(hidden)

/* Guards the list of contexts, primary counts and each context's list of streams. */
extern pthread_mutex_t contexts_lock;
extern struct object_pool context_pool;

/* The calling thread's current context, usable: CUDA_ERROR_INVALID_CONTEXT when there is none, its
 * sticky error when it has one. */
CUresult context_current(struct context **context);

/* The thread's stack of contexts, of which the top one is current. NULL: it is empty. */
struct context *context_top(void);
struct context *context_pop(void);
/* CUDA_ERROR_OUT_OF_MEMORY when it is full. */
CUresult context_push(struct context *context);

/* This thread runs host functions, which may not call the driver. */
void context_forbid_calls(void);
bool context_calls_are_forbidden(void);

/* The usable state of a context: sticky error, device lost, destroyed. */
CUresult context_state(const struct context *context);

/* The context's first sticky error stands. */
void context_fail(struct context *context, CUresult error);

/* The context of a handle; NULL when it is none. */
struct context *context_check(CUcontext handle);

/* True when `ordinal` is a device of this process. */
bool device_check(CUdevice ordinal);
const struct sim_device *device_row(CUdevice ordinal);

#pragma GCC visibility pop
#endif
