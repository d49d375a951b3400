/* The one record of each context of this process. What belongs to a context (streams, events, peer
 * access, blocks, mappings of another process's memory) names it by its generation, because the
 * driver gives a handle out again. LOCK_STREAMS guards the table.
 *
 * A call that may end a context has two halves. Before the driver's call the context *leaves*: from
 * then on none of our threads uses it, and it counts as work in flight. After the driver's call it
 * is looked whether the context is gone; if not, everything goes on. A handle of a destroyed
 * context must never reach the driver, which crashes. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum context_kind {
    CONTEXT_FOUND,   /* seen current or as a stream's; nobody was told that it was made */
    CONTEXT_CREATED, /* cuCtxCreate */
    CONTEXT_PRIMARY, /* cuDevicePrimaryCtxRetain */
    CONTEXT_GREEN,   /* a share of a primary context, to which its memory belongs */
};

struct context {
    void *handle;
    uint64_t generation; /* never used twice; 0 is none */
    uint64_t id;         /* PRIMARY: the driver's number, never used twice either */
    void *green;         /* GREEN: the CUgreenCtx */
    enum context_kind kind;
    int ordinal;
    uint32_t references;       /* CREATED: cuCtxCreate, and each cuCtxAttach */
    uint32_t leaving;          /* calls on their way that may end it */
    int failed_result;         /* the sticky error, or 0 */
    uint64_t unknown_since_ns; /* drain.c: the driver's answers tell nothing; 0: they do */
    void *mark;                /* drain.c: event for the legacy stream, or NULL */
    bool marked;               /* drain.c: it was recorded since the gate was shut */
    void *beside;              /* drain.c: a blocking stream of ours, and */
    void *beside_mark;         /* the event in it, or NULL */
    bool beside_marked;        /* drain.c: it was recorded since the gate was shut */
    bool draining;             /* drain.c: the default streams are not seen done */
};

/* A context that may end, or has. */
struct context_end {
    uint64_t generation; /* 0: none that is known */
    void *handle;
    int ordinal;
};

/* How many there are, how many of them have a sticky error, and how many calls that may end one are
 * on their way: meanwhile nothing of ours begins that uses a context. */
extern _Atomic uint32_t contexts_open;
extern _Atomic uint32_t contexts_failed;
extern _Atomic uint32_t contexts_leaving;

/* ---- what the wrappers tell ---- */

/* The driver has made it, or retained it. Returns what had its place in the table, is gone, and was
 * not seen to end. */
struct context_end contexts_created(void *handle, int ordinal);
struct context_end contexts_retained(void *handle, int ordinal);
struct context_end contexts_green_created(void *green, int ordinal);
void contexts_attached(void *handle);

/* A call that may end it is on its way: a context, a device's primary one, or a green one. */
enum contexts_name { CONTEXTS_HANDLE, CONTEXTS_PRIMARY, CONTEXTS_GREEN };
struct context_end contexts_leave(enum contexts_name by, void *name);
struct context_end contexts_leave_detached(void *handle);
/* The call has answered: whether the context is gone. Then it is in no table any more. */
bool contexts_is_gone(const struct context_end *end, int cu_result);
/* And what belonged to it is forgotten, where it is. */
void contexts_leave_over(const struct context_end *end);

/* ---- what everybody asks ---- */

/* The calling thread's current context, as the driver says; NULL where there is none. */
void *contexts_current(void);
/* The calling thread has a current context, which the table knows from now on at the latest: a
 * context may have been made by a way that no wrapper sees. */
bool contexts_know_current(void **handle);
/* The same for a context that need not be current. */
bool contexts_know(void *handle);
/* What is known of it now; all 0 when nothing is. */
struct context contexts_copy(const void *handle);
/* 0 when it is not known. */
uint64_t contexts_generation(void *handle);
/* The same of the calling thread's current context. */
uint64_t contexts_current_generation(void);
/* The same where memory that is allocated in the context lives as long as the context; else 0. */
uint64_t contexts_owner(void *handle);

/* Notes a sticky error; true the first time for this context. Gives the device. */
bool contexts_fails(uint64_t generation, int cu_result, int *ordinal);
bool contexts_has_failed(void *handle);
/* One of the device that can be used; NULL: there is none. */
void *contexts_of_device(int ordinal);
/* Handles of those that have failed, or of those that can be used. */
uint32_t contexts_list(bool failed, void *handles[], uint32_t max);

/* In a child after fork nothing of this is left. */
void contexts_after_fork(void);

/* ---- with LOCK_STREAMS held ---- */

struct context *contexts_table(uint32_t *used);
struct context *contexts_find(uint64_t generation);
struct context *contexts_find_handle(const void *handle);
/* It is there, has not failed and does not leave: the driver may be asked about it. */
bool contexts_may_ask(const struct context *context);
