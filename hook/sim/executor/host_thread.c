#define _GNU_SOURCE
#include "executor/host_thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "process/context.h"
#include "process/process.h"

struct host_call {
    struct host_call *next;
    struct stream *stream; /* a reference */
    struct op op;
};

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the queue */
static pthread_cond_t queue_filled = PTHREAD_COND_INITIALIZER;
static struct host_call *queue_first;
static struct host_call *queue_last;

static void perform(const struct host_call *call) {
    if (call->op.kind == OP_HOST_FUNCTION) {
        call->op.host.function(call->op.host.argument);
        return;
    }
    int sticky = atomic_load(&call->stream->context->sticky);
    call->op.callback.function(call->op.callback.handle, (CUresult)sticky,
                               call->op.callback.argument);
}

static void *run(void *unused) {
    (void)unused;
    context_forbid_calls();
    for (;;) {
        pthread_mutex_lock(&queue_lock);
        while (queue_first == NULL)
            pthread_cond_wait(&queue_filled, &queue_lock);
        struct host_call *call = queue_first;
        queue_first = call->next;
        pthread_mutex_unlock(&queue_lock);
        perform(call);
        atomic_store(&call->stream->execution.host_done, 1);
        process_wake();
        object_drop(&stream_pool, call->stream);
        free(call);
    }
    return NULL;
}

bool host_thread_start(void) {
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) pthread_detach(thread);
    return started;
}

void host_thread_post(struct stream *stream, const struct op *op) {
    struct host_call *call = calloc(1, sizeof *call);
    if (call == NULL) { /* better never called than the stream stuck */
        context_fail(stream->context, CUDA_ERROR_OUT_OF_MEMORY);
        atomic_store(&stream->execution.host_done, 1);
        return;
    }
    object_hold(stream);
    call->stream = stream;
    call->op = *op;
    pthread_mutex_lock(&queue_lock);
    if (queue_first == NULL) {
        queue_first = call;
    } else {
        queue_last->next = call;
    }
    queue_last = call;
    pthread_cond_signal(&queue_filled);
    pthread_mutex_unlock(&queue_lock);
}
