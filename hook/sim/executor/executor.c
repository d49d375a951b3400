#define _GNU_SOURCE
#include "executor/executor.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "executor/execute.h"
#include "executor/host_thread.h"
#include "machine/futex.h"
#include "memory/descriptor.h"
#include "memory/graph_memory.h"
#include "memory/pooled.h"
#include "process/context.h"
#include "process/process.h"
#include "streams/event.h"
#include "streams/graph.h"
#include "streams/stream.h"

#define SPIN_NS 8000u /* shorter waits are spent awake */
#define REAP_INTERVAL_NS                                                    \
    100000000u /* a dead process's jobs slow the others no longer than that \
                */
#define DESCRIPTORS_INTERVAL_NS 10000000u /* how often it looks whether some were closed */
#define OPS_PER_VISIT 64

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static _Atomic bool started;
static _Atomic bool stopping;
static _Atomic uint64_t passes; /* how often all streams were looked at */

/* The rest belongs to the executor's thread. */
static struct stream *streams;
static uint64_t idle_since_ns;
static uint64_t reaped_ns;
static uint64_t looked_ns; /* when descriptors were looked at */

static void adopt_incoming(void) {
    struct stream *stream = stream_take_incoming();
    while (stream != NULL) {
        struct stream *next = stream->execution.next;
        stream->execution.next = streams;
        streams = stream;
        stream = next;
    }
}

static struct op *head_of(const struct stream *stream) {
    uint64_t completed = atomic_load_explicit(&stream->completed, memory_order_relaxed);
    if (completed == atomic_load_explicit(&stream->submitted, memory_order_acquire)) return NULL;
    return &stream->ring[completed % STREAM_RING_OPS];
}

/* The legacy stream and the blocking ones of a context keep the order of submission. */
static bool order_allows(const struct stream *stream, const struct op *op) {
    if (op->order == 0) return true;
    for (const struct stream *other = streams; other != NULL; other = other->execution.next) {
        bool ordered = stream->legacy ? other->blocking : other->legacy;
        if (!ordered || other->context != stream->context) continue;
        if (other->execution.running) return false;
        const struct op *head = head_of(other);
        if (head != NULL && head->order < op->order) return false;
    }
    return true;
}

static void complete_head(struct stream *stream, const struct op *op) {
    uint64_t sequence = atomic_load_explicit(&stream->completed, memory_order_relaxed) + 1;
    op_release(op);
    atomic_store(&stream->completed, sequence);
    if (atomic_load(&stream->wanted) > sequence) return;
    atomic_store(&stream->wanted, STREAM_NOBODY_WAITS);
    atomic_fetch_add(&stream->bell, 1);
    futex_wake(&stream->bell);
}

/* The op at work: the head itself, or the node of the graph at the head. */
static const struct op *current_op(const struct stream *stream, const struct op *head) {
    if (head->kind != OP_GRAPH) return head;
    return graph_plan_op(head->plan, stream->execution.graph_next);
}

/* The part that is over was a node: the head goes on unless it was the last. */
static bool head_is_over(struct stream *stream, const struct op *head) {
    stream->execution.running = false;
    if (head->kind != OP_GRAPH) return true;
    stream->execution.graph_next++;
    if (graph_plan_op(head->plan, stream->execution.graph_next) != NULL) return false;
    stream->execution.graph_next = 0;
    execute_journal(stream, head, stream->execution.graph_started_ns, segment_now_ns());
    return true;
}

/* Memory is freed also by work that is given up: nobody else would do it. */
static void free_for(const struct stream *stream, const struct op *head) {
    if (head->kind == OP_FREE) pooled_release(head->free.pool, head->free.ticket);
    if (head->kind == OP_GRAPH_FREE) graph_memory_end(head->memory);
    if (head->kind != OP_GRAPH) return;
    const struct op *op;
    for (uint64_t i = stream->execution.graph_next; (op = graph_plan_op(head->plan, i)) != NULL;
         i++)
        if (op->kind == OP_GRAPH_FREE) graph_memory_end(op->memory);
}

static void abandon_head(struct stream *stream, const struct op *head) {
    const struct op *op = current_op(stream, head);
    if (stream->execution.running && op != NULL) execute_abandon(stream, op);
    free_for(stream, head);
    if (head->kind == OP_EVENT_RECORD)
        event_note_reached(head->record.event, head->record.sequence, segment_now_ns());
    stream->execution.running = false;
    stream->execution.graph_next = 0;
}

static bool begin_head(struct stream *stream, const struct op *head, uint64_t *look_again_ns) {
    bool inside_graph = head->kind == OP_GRAPH && stream->execution.graph_next > 0;
    if (!inside_graph && !order_allows(stream, head)) return false;
    const struct op *op = current_op(stream, head);
    if (head->kind == OP_GRAPH && !inside_graph)
        stream->execution.graph_started_ns = segment_now_ns();
    if (op == NULL) return true; /* an empty graph */
    if (!execute_is_ready(stream, op, look_again_ns)) return false;
    stream->execution.running = true;
    execute_begin(stream, op);
    return true;
}

/* One step of a stream: true when anything changed. */
static bool step(struct stream *stream, uint64_t *look_again_ns) {
    struct op *head = head_of(stream);
    if (head == NULL) return false;
    if (context_state(stream->context) != CUDA_SUCCESS) {
        abandon_head(stream, head);
        complete_head(stream, head);
        return true;
    }
    bool began = false;
    if (!stream->execution.running) {
        if (!begin_head(stream, head, look_again_ns)) return false;
        began = true;
    }
    const struct op *op = current_op(stream, head);
    if (op != NULL && !execute_continue(stream, op, look_again_ns)) return began;
    if (head_is_over(stream, head)) complete_head(stream, head);
    return true;
}

static void retire(struct stream **link) {
    struct stream *stream = *link;
    *link = stream->execution.next;
    stream_forget(stream);
    munmap(stream->ring, STREAM_RING_OPS * sizeof(struct op));
    stream->ring = NULL;
    object_drop(&stream_pool, stream);
}

static bool visit_all(uint64_t *look_again_ns) {
    bool changed = false;
    for (struct stream **link = &streams; *link != NULL;) {
        struct stream *stream = *link;
        for (int i = 0; i < OPS_PER_VISIT && step(stream, look_again_ns); i++)
            changed = true;
        bool over =
            atomic_load_explicit(&stream->doomed, memory_order_acquire) && head_of(stream) == NULL;
        if (over) {
            retire(link); /* what was submitted there counts no more: see count_submitted */
            changed = true;
        } else {
            link = &stream->execution.next;
        }
    }
    return changed;
}

/* A sum that changes whenever there is something new to do. */
static uint64_t count_submitted(void) {
    uint64_t submitted = 0;
    for (const struct stream *s = streams; s != NULL; s = s->execution.next) {
        submitted += atomic_load(&s->submitted) + (atomic_load(&s->doomed) ? 1 : 0);
        submitted += atomic_load(&s->execution.host_done);
    }
    return submitted;
}

/* Sleeping was announced before this looks: whoever publishes work later rings. */
static bool anything_new(uint64_t submitted_before, bool watches) {
    return stream_any_incoming() || count_submitted() != submitted_before ||
           (!watches && descriptor_any_watched());
}

static void reap_the_dead(uint64_t now_ns) {
    if (now_ns - reaped_ns < REAP_INTERVAL_NS) return;
    reaped_ns = now_ns;
    segment_lock(process_segment);
    segment_reap(process_segment);
    segment_unlock(process_segment);
}

/* Those who close descriptors tell nobody, and a busy device is no reason to wait for longer. */
static void look_at_descriptors(void) {
    if (!descriptor_any_watched()) return;
    const uint64_t now_ns = segment_now_ns();
    if (now_ns - looked_ns < DESCRIPTORS_INTERVAL_NS) return;
    looked_ns = now_ns;
    descriptor_look();
}

/* Nothing moved. Waits for a doorbell or until `look_again_ns`, awake when that is soon. */
static void rest(uint64_t look_again_ns, uint64_t submitted_before) {
    uint64_t now_ns = segment_now_ns();
    if (idle_since_ns == 0) idle_since_ns = now_ns;
    bool soon = look_again_ns != ENGINE_NEVER && look_again_ns < now_ns + SPIN_NS;
    if (soon || now_ns - idle_since_ns < SPIN_NS) {
        cpu_relax();
        return;
    }
    uint64_t until_ns = look_again_ns;
    if (look_again_ns != ENGINE_NEVER) {
        reap_the_dead(now_ns);
        if (until_ns > now_ns + REAP_INTERVAL_NS) until_ns = now_ns + REAP_INTERVAL_NS;
    }
    const bool watches = descriptor_any_watched();
    if (watches && until_ns > looked_ns + DESCRIPTORS_INTERVAL_NS)
        until_ns = looked_ns + DESCRIPTORS_INTERVAL_NS;
    atomic_store(&process_row->wakes_at_ns, until_ns);
    uint32_t bell = atomic_load(&process_row->doorbell);
    atomic_store(&process_row->sleeping, 1);
    if (!anything_new(submitted_before, watches) && !atomic_load(&stopping))
        futex_wait_shared(&process_row->doorbell, bell, until_ns);
    atomic_store(&process_row->sleeping, 0);
    for (struct stream *s = streams; s != NULL; s = s->execution.next)
        s->execution.recheck = true;
}

static void *run(void *unused) {
    (void)unused;
    prctl(PR_SET_NAME, "sim-gpu");
    prctl(PR_SET_TIMERSLACK, 1UL);
    while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
        uint64_t look_again_ns = ENGINE_NEVER;
        adopt_incoming();
        look_at_descriptors();
        uint64_t submitted_before = count_submitted();
        if (visit_all(&look_again_ns)) {
            idle_since_ns = 0;
        } else {
            rest(look_again_ns, submitted_before);
        }
        atomic_fetch_add(&passes, 1);
    }
    return NULL;
}

static bool start_thread(void) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool created = pthread_create(&thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return created;
}

CUresult executor_start(void) {
    pthread_mutex_lock(&start_lock);
    if (!started) started = host_thread_start() && start_thread();
    bool running = started;
    pthread_mutex_unlock(&start_lock);
    return running ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

/* The pass that is under way may have missed it; the next one has not. */
void executor_catch_up(void) {
    if (!atomic_load(&started) || !stream_any_is_busy()) return;
    uint64_t until = atomic_load(&passes) + 2;
    while (atomic_load(&passes) < until && !atomic_load(&stopping)) {
        process_wake();
        sched_yield();
    }
}

void executor_stop(void) {
    if (!started || pthread_equal(thread, pthread_self())) return;
    atomic_store(&stopping, true);
    engine_ring(process_row);
    pthread_join(thread, NULL);
}
