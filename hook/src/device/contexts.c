#include "device/contexts.h"

#include "base/array.h"
#include "base/bell.h"
#include "base/driver.h"
#include "base/hold.h"
#include "base/symbols.h"
#include "device/devices.h"
#include "device/failure.h"
#include "device/peers.h"
#include "device/streams.h"

typedef CUresult (*context_from_green_function)(CUcontext *context, CUgreenCtx green_context);

/* An array: a process has a handful of contexts, and the launch path does not come here. */
static struct context *contexts;
static uint32_t contexts_used, contexts_room;
static uint64_t last_generation;

_Atomic uint32_t contexts_open;
_Atomic uint32_t contexts_failed;
_Atomic uint32_t contexts_leaving;

/* ---- the table; with the lock held ------------------------------------------------------------
 */

struct context *contexts_table(uint32_t *used) {
    *used = contexts_used;
    return contexts;
}

struct context *contexts_find(uint64_t generation) {
    for (uint32_t i = 0; i < contexts_used && generation != 0; i++)
        if (contexts[i].generation == generation) return &contexts[i];
    return NULL;
}

struct context *contexts_find_handle(const void *handle) {
    for (uint32_t i = 0; i < contexts_used; i++)
        if (contexts[i].handle == handle) return &contexts[i];
    return NULL;
}

static struct context *find_primary(int ordinal) {
    for (uint32_t i = 0; i < contexts_used; i++)
        if (contexts[i].kind == CONTEXT_PRIMARY && contexts[i].ordinal == ordinal)
            return &contexts[i];
    return NULL;
}

static struct context *find_green(const void *green) {
    for (uint32_t i = 0; i < contexts_used; i++)
        if (contexts[i].kind == CONTEXT_GREEN && contexts[i].green == green) return &contexts[i];
    return NULL;
}

bool contexts_may_ask(const struct context *context) {
    return context != NULL && context->failed_result == 0 && context->leaving == 0;
}

static bool is_open(int ordinal) {
    for (uint32_t i = 0; i < contexts_used; i++)
        if (contexts[i].ordinal == ordinal) return true;
    return false;
}

static void count(void) {
    uint32_t failed = 0;
    for (uint32_t i = 0; i < contexts_used; i++)
        failed += contexts[i].failed_result != 0;
    atomic_store(&contexts_failed, failed);
    atomic_store(&contexts_open, contexts_used);
}

static struct context *add(const struct context *fresh) {
    if (!ARRAY_MAKE_ROOM(contexts, contexts_used, 1, contexts_room)) return NULL;
    struct context *context = &contexts[contexts_used++];
    *context = *fresh;
    context->generation = ++last_generation;
    count();
    devices_set_open(context->ordinal, true);
    return context;
}

static void forget(struct context *context) {
    const int ordinal = context->ordinal;
    streams_forget_context(context->generation);
    peers_forget_context(context->generation);
    *context = contexts[--contexts_used];
    count();
    if (!is_open(ordinal)) devices_set_open(ordinal, false);
}

static struct context_end end_of(const struct context *context) {
    if (context == NULL) return (struct context_end){0};
    return (struct context_end){context->generation, context->handle, context->ordinal};
}

/* ---- contexts begin ---------------------------------------------------------------------------
 */

/* A new context is in the table. A turn that is held does not cover a device that was not open: the
 * gate is shut before this returns. */
static void announce(bool opens_device) {
    if (!opens_device) return;
    bell_start_agent("a context");
    bell_ring_and_wait(NEWS_DEVICE_OPENED);
}

/* Enters it into the table, in the place of what had its handle. */
static struct context_end open(const struct context *fresh) {
    if (!devices_know(fresh->ordinal)) return (struct context_end){0};
    lock_take(LOCK_STREAMS);
    const bool opens_device = !is_open(fresh->ordinal);
    struct context *known = contexts_find_handle(fresh->handle);
    const struct context_end stale = end_of(known);
    if (known) forget(known);
    add(fresh);
    lock_release(LOCK_STREAMS);
    announce(opens_device);
    return stale;
}

struct context_end contexts_created(void *handle, int ordinal) {
    return open(&(struct context){
        .handle = handle, .ordinal = ordinal, .kind = CONTEXT_CREATED, .references = 1});
}

/* A process may have no other contexts than green ones. */
struct context_end contexts_green_created(void *green, int ordinal) {
    context_from_green_function context_from_green =
        (context_from_green_function)symbols_real("cuCtxFromGreenCtx");
    CUcontext context = NULL;
    if (context_from_green == NULL || context_from_green(&context, green) != CUDA_SUCCESS)
        return (struct context_end){0};
    return open(&(struct context){
        .handle = context, .ordinal = ordinal, .kind = CONTEXT_GREEN, .green = green});
}

static uint64_t id_of(void *handle) {
    unsigned long long id = 0;
    const struct driver *cuda = driver_get();
    return cuda && cuda->context_get_id(handle, &id) == CUDA_SUCCESS ? id : 0;
}

/* With the lock held: the primary context's record gets this number, in a place of its own or in
 * that of a context which was found before. */
static void add_primary(void *handle, int ordinal, uint64_t id) {
    const struct context fresh = {
        .handle = handle, .ordinal = ordinal, .kind = CONTEXT_PRIMARY, .id = id};
    struct context *found = contexts_find_handle(handle);
    if (found == NULL) found = add(&fresh);
    if (found == NULL) return;
    found->kind = CONTEXT_PRIMARY;
    found->id = id;
}

/* Another thread may reset the primary context, and release and retain it, meanwhile. The record is
 * read first and the driver's number asked for then: where they differ, the record's context is
 * gone. */
struct context_end contexts_retained(void *handle, int ordinal) {
    struct context_end stale = {0};
    bool done = !devices_know(ordinal), opens_device = false;
    while (!done) {
        lock_take(LOCK_STREAMS);
        const struct context *known = find_primary(ordinal);
        const struct context_end before = end_of(known);
        const uint64_t id_before = known ? known->id : 0;
        lock_release(LOCK_STREAMS);
        const uint64_t id = id_of(handle);
        if (before.generation != 0 && (id == 0 || id == id_before)) return stale;
        lock_take(LOCK_STREAMS);
        opens_device = opens_device || !is_open(ordinal);
        struct context *gone = contexts_find(before.generation);
        if (gone) {
            stale = before;
            forget(gone);
        }
        done = find_primary(ordinal) == NULL;
        if (done) add_primary(handle, ordinal, id);
        lock_release(LOCK_STREAMS);
    }
    announce(opens_device);
    return stale;
}

void contexts_attached(void *handle) {
    HOLD(LOCK_STREAMS);
    struct context *context = contexts_find_handle(handle);
    if (context) context->references++;
}

bool contexts_know(void *handle) {
    const struct driver *cuda = driver_get();
    CUcontext popped;
    CUdevice ordinal;
    if (contexts_generation(handle) != 0) return true;
    /* One that another thread has destroyed stays current in this one, and could be pushed. */
    if (handle == NULL || id_of(handle) == 0) return false;
    if (cuda->context_push(handle) != CUDA_SUCCESS) return false;
    const bool found = cuda->context_get_device(&ordinal) == CUDA_SUCCESS;
    cuda->context_pop(&popped);
    if (!found || !devices_know(ordinal)) return false;
    const struct context fresh = {.handle = handle, .ordinal = ordinal, .kind = CONTEXT_FOUND};
    lock_take(LOCK_STREAMS);
    const bool opens_device = !is_open(ordinal);
    const bool known = contexts_find_handle(handle) != NULL || add(&fresh) != NULL;
    lock_release(LOCK_STREAMS);
    announce(opens_device && known);
    return known;
}

void *contexts_current(void) {
    const struct driver *cuda = driver_get();
    CUcontext context = NULL;
    return cuda && cuda->context_get_current(&context) == CUDA_SUCCESS ? context : NULL;
}

bool contexts_know_current(void **handle) {
    void *current = contexts_current();
    if (current != NULL) *handle = current;
    return contexts_know(current);
}

/* ---- contexts end -----------------------------------------------------------------------------
 */

/* With the lock held. */
static struct context_end leave(struct context *context) {
    if (context) {
        context->leaving++;
        atomic_fetch_add(&contexts_leaving, 1);
    }
    return end_of(context);
}

struct context_end contexts_leave(enum contexts_name by, void *name) {
    HOLD(LOCK_STREAMS);
    return leave(by == CONTEXTS_HANDLE    ? contexts_find_handle(name)
                 : by == CONTEXTS_PRIMARY ? find_primary((int)(intptr_t)name)
                                          : find_green(name));
}

struct context_end contexts_leave_detached(void *handle) {
    HOLD(LOCK_STREAMS);
    struct context *context = contexts_find_handle(handle);
    if (context && context->references > 1 && --context->references > 0) context = NULL;
    return leave(context);
}

/* The driver counts the holders of a primary context, and resets end it whatever the count: so only
 * the driver knows. Once gone, a context stays so. */
static bool primary_is_gone(const struct context *context) {
    const struct driver *cuda = driver_get();
    unsigned int flags;
    int active = 0;
    if (cuda == NULL || cuda->primary_get_state(context->ordinal, &flags, &active) != CUDA_SUCCESS)
        return false;
    if (!active) return true;
    const uint64_t id = id_of(context->handle);
    return id != 0 && id != context->id;
}

/* After a sticky error the driver answers it and ends the context all the same. */
static bool has_ended(int cu_result) {
    return cu_result == CUDA_SUCCESS || failure_is_sticky(cu_result);
}

bool contexts_is_gone(const struct context_end *end, int cu_result) {
    lock_take(LOCK_STREAMS);
    struct context *context = contexts_find(end->generation);
    const struct context copy = context ? *context : (struct context){0};
    lock_release(LOCK_STREAMS);
    if (copy.generation == 0) return false; /* another thread saw it first */
    if (copy.kind == CONTEXT_PRIMARY ? !primary_is_gone(&copy) : !has_ended(cu_result))
        return false;
    HOLD(LOCK_STREAMS);
    context = contexts_find(end->generation);
    if (context) forget(context);
    return context != NULL;
}

void contexts_leave_over(const struct context_end *end) {
    if (end->generation == 0) return;
    lock_take(LOCK_STREAMS);
    struct context *context = contexts_find(end->generation);
    if (context) context->leaving--;
    atomic_fetch_sub(&contexts_leaving, 1);
    lock_release(LOCK_STREAMS);
    bell_ring(NEWS_DEVICE_CLOSED);
}

/* ---- what is asked ----------------------------------------------------------------------------
 */

struct context contexts_copy(const void *handle) {
    HOLD(LOCK_STREAMS);
    const struct context *context = contexts_find_handle(handle);
    return context ? *context : (struct context){0};
}

uint64_t contexts_generation(void *handle) {
    return contexts_copy(handle).generation;
}

uint64_t contexts_current_generation(void) {
    return contexts_generation(contexts_current());
}

uint64_t contexts_owner(void *handle) {
    const struct context context = contexts_copy(handle);
    const bool owns = context.kind == CONTEXT_CREATED || context.kind == CONTEXT_PRIMARY;
    return owns ? context.generation : 0;
}

bool contexts_fails(uint64_t generation, int cu_result, int *ordinal) {
    HOLD(LOCK_STREAMS);
    struct context *context = contexts_find(generation);
    if (context == NULL || context->failed_result != 0) return false;
    context->failed_result = cu_result;
    *ordinal = context->ordinal;
    count();
    return true;
}

bool contexts_has_failed(void *handle) {
    return contexts_copy(handle).failed_result != 0;
}

void *contexts_of_device(int ordinal) {
    HOLD(LOCK_STREAMS);
    for (uint32_t i = 0; i < contexts_used; i++)
        if (contexts[i].ordinal == ordinal && contexts_may_ask(&contexts[i]))
            return contexts[i].handle;
    return NULL;
}

uint32_t contexts_list(bool failed, void *handles[], uint32_t max) {
    uint32_t listed = 0;
    HOLD(LOCK_STREAMS);
    for (uint32_t i = 0; i < contexts_used && listed < max; i++)
        if (failed ? contexts[i].failed_result != 0 : contexts_may_ask(&contexts[i]))
            handles[listed++] = contexts[i].handle;
    return listed;
}

void contexts_after_fork(void) {
    contexts_used = 0;
    atomic_store(&contexts_leaving, 0);
    count();
    streams_after_fork();
    peers_after_fork();
}
