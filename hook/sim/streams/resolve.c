#define _GNU_SOURCE
#include "streams/resolve.h"

#include <pthread.h>
#include <stdlib.h>

#include "process/context.h"
#include "process/process.h"
#include "streams/stream.h"

/* A thread's own default stream in a context, made at first use, closed when the thread ends. */
struct own_stream {
    struct own_stream *next;
    struct context *context;
    uint64_t context_id; /* a context object may be reused; its id is not */
    struct stream *stream;
    uint64_t stream_id;
};

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

/* The context may be gone, and its streams with it. */
static void close_all(void *list) {
    struct own_stream *own = list;
    while (own != NULL) {
        struct own_stream *next = own->next;
        bool alive = atomic_load(&own->context->object.live) &&
                     own->context->id == own->context_id &&
                     atomic_load(&own->stream->object.live) && own->stream->id == own->stream_id;
        if (alive) stream_close(own->stream);
        free(own);
        own = next;
    }
}

static void make_key(void) {
    pthread_key_create(&key, close_all);
}

static struct stream *per_thread_stream(struct context *context) {
    pthread_once(&key_once, make_key);
    struct own_stream *first = pthread_getspecific(key);
    for (struct own_stream *own = first; own != NULL; own = own->next) {
        if (own->context == context && own->context_id == context->id) return own->stream;
    }
    struct own_stream *own = calloc(1, sizeof *own);
    if (own == NULL) return NULL;
    own->stream = stream_open(context, 0, 0, false);
    if (own->stream == NULL) {
        free(own);
        return NULL;
    }
    own->next = first;
    own->context = context;
    own->context_id = context->id;
    own->stream_id = own->stream->id;
    pthread_setspecific(key, own);
    return own->stream;
}

CUresult stream_resolve(CUstream handle, struct stream **result) {
    bool per_thread = handle == CU_STREAM_PER_THREAD;
    if (handle == NULL) per_thread = process_default_stream_is_per_thread;
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        struct context *context = NULL;
        CUresult state = context_current(&context);
        if (state != CUDA_SUCCESS) return state;
        *result = per_thread ? per_thread_stream(context) : context->legacy;
        return *result == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    struct stream *stream = object_check(&stream_pool, handle);
    if (stream == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (context_calls_are_forbidden()) return CUDA_ERROR_NOT_PERMITTED;
    *result = stream;
    return context_state(stream->context);
}
