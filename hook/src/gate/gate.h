/* The gate: what every gated call passes. See ARCHITECTURE.md, "The hook inside a process".
 *
 * The fast path is here, inline: a thread-local mark, one load, a predictable branch. Everything
 * else is in gate.c. This header names no CUDA type: results are ints, streams are void pointers.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gate_word {
    GATE_OPEN = 0,     /* the turn is held and nobody else is registered on the device */
    GATE_WINDOWED = 1, /* the turn is held; work in flight is bounded */
    GATE_SHUT = 2,     /* no turn, or not asked for yet: calls wait. The state at start */
};

/* What a gated call does; the slow paths differ by it. */
enum gate_kind {
    GATE_LAUNCH, /* a launch, graph launch, host function, asynchronous copy or memset: leaves work
                    in `stream` */
    GATE_SYNC,   /* a copy or memset that is done when it returns (no stream argument) */
    GATE_ALLOC,  /* an allocation: needs the turn, leaves no work */
    GATE_CLAIM,  /* one with a claim that fits: the turn is not given back before it has ended */
    GATE_LOOK,   /* the driver looks up addresses, of whatever context: as GATE_ALLOC */
};

/* Which stream the handle NULL means in this ABI variant. */
enum gate_stream_variant {
    GATE_STREAM_LEGACY,     /* plain names */
    GATE_STREAM_PER_THREAD, /* names that end in _ptsz or _ptds */
};

enum gate_answer {
    GATE_PASS = 0,      /* call the driver, then gate_leave */
    GATE_NESTED = 1,    /* inside another gated call: call the driver, no gate_leave */
    GATE_CANCELLED = 2, /* the wait was cancelled: return GATE_CANCELLED_RESULT, no gate_leave */
};

/* CUDA_ERROR_NOT_PERMITTED: not sticky, never taken for out-of-memory. */
#define GATE_CANCELLED_RESULT 800

/* A gated call on its way. The fast path hands it on by value, so that nothing of it is written to
 * memory before a slow path needs it. */
struct gate_call {
    enum gate_kind kind;
    enum gate_stream_variant variant;
    void *stream;     /* as passed by the caller; NULL where there is none */
    const char *name; /* exported name, for requests and logs */
};

/* The part of a thread's record that the fast path touches. Written by its thread alone; read by
 * the agent while it closes the gate. */
struct gate_thread {
    _Atomic uint64_t sequence; /* odd while the thread is inside a gated call */
};

extern _Atomic uint32_t gate_word __attribute__((visibility("hidden")));
/* A call has named its thread's own default stream, in which only that thread can record. */
extern _Atomic bool gate_saw_per_thread __attribute__((visibility("hidden")));
extern _Thread_local struct gate_thread *gate_self
    __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* Everything that is not the fast path. */
enum gate_answer gate_enter_slow(const struct gate_call *call)
    __attribute__((visibility("hidden")));
void gate_leave_slow(const struct gate_call *call, int cu_result)
    __attribute__((visibility("hidden")));

/* Whether a handle names the calling thread's own default stream, which is CU_STREAM_PER_THREAD. */
__attribute__((always_inline)) static inline bool gate_per_thread(
    const void *stream, enum gate_stream_variant variant) {
    return (uintptr_t)stream == 2 || (stream == NULL && variant == GATE_STREAM_PER_THREAD);
}

/* The one name that the thread's own default stream has with us. */
static inline void *gate_stream(void *stream, enum gate_stream_variant variant) {
    return gate_per_thread(stream, variant) ? (void *)2 : stream;
}

/* The gate is open and the thread was outside: it is inside now. Else nothing has changed. The
 * first call that names a thread's own default stream goes the slow way, which notes it: while
 * others capture, a drain cannot ask such a stream what this gate let pass. */
__attribute__((always_inline)) static inline bool gate_enter_open(
    const void *stream, enum gate_stream_variant variant) {
    struct gate_thread *thread = gate_self;
    if (__builtin_expect(thread == NULL, 0)) return false;
    if (gate_per_thread(stream, variant) && !atomic_load(&gate_saw_per_thread)) return false;
    uint64_t sequence = atomic_load_explicit(&thread->sequence, memory_order_relaxed);
    if (__builtin_expect(sequence & 1, 0)) return false;
    atomic_store_explicit(&thread->sequence, sequence + 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* the closer's membarrier does the rest */
    if (__builtin_expect(atomic_load_explicit(&gate_word, memory_order_acquire) == GATE_OPEN, 1))
        return true;
    atomic_store_explicit(&thread->sequence, sequence + 2, memory_order_release);
    return false;
}

/* The gate is windowed, and the launch is one of a group that the thread has begun: it is inside
 * now. Else nothing has changed. */
bool gate_enter_group(void *stream, enum gate_stream_variant variant)
    __attribute__((visibility("hidden")));

/* Ends a call that the open gate let pass, where it is still open and the driver has accepted the
 * call. Else nothing has changed, and gate_leave_slow ends the call. */
__attribute__((always_inline)) static inline bool gate_leave_open(int cu_result) {
    struct gate_thread *thread = gate_self;
    if (__builtin_expect(
            cu_result != 0 || atomic_load_explicit(&gate_word, memory_order_relaxed) != GATE_OPEN,
            0))
        return false;
    uint64_t sequence = atomic_load_explicit(&thread->sequence, memory_order_relaxed);
    atomic_store_explicit(&thread->sequence, sequence + 1, memory_order_release);
    return true;
}

/* Passes the gate, or waits at it. A call inside a call goes through and leaves the mark alone. */
__attribute__((always_inline)) static inline enum gate_answer gate_enter(struct gate_call call) {
    if (gate_enter_open(call.stream, call.variant)) return GATE_PASS;
    const struct gate_call in_memory = call;
    return gate_enter_slow(&in_memory);
}

/* Ends a call that gate_enter let pass. `cu_result` is what the driver answered. */
__attribute__((always_inline)) static inline void gate_leave(struct gate_call call, int cu_result) {
    if (gate_leave_open(cu_result)) return;
    const struct gate_call in_memory = call;
    gate_leave_slow(&in_memory, cu_result);
}
