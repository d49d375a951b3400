#define _GNU_SOURCE
#include "process/objects.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "process/process.h"

#define FREE_QUEUE_MIN 1024 /* a destroyed handle is not reused before that many others */

static bool reserve(struct object_pool *pool) {
    if (atomic_load(&pool->base) != 0) return true;
    void *address = mmap(NULL, pool->object_bytes * pool->capacity, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return false;
    atomic_store(&pool->base, (uintptr_t)address);
    return true;
}

static struct object *take_free(struct object_pool *pool) {
    struct object *object = pool->free_first;
    pool->free_first = object->next_free;
    if (pool->free_first == NULL) pool->free_last = NULL;
    pool->free_count--;
    return object;
}

void *object_take(struct object_pool *pool) {
    struct object *object = NULL;
    pthread_mutex_lock(&pool->lock);
    if (reserve(pool)) {
        if (pool->free_count > FREE_QUEUE_MIN || pool->fresh == pool->capacity) {
            if (pool->free_first != NULL) object = take_free(pool);
        } else {
            object =
                (struct object *)(atomic_load(&pool->base) + pool->object_bytes * pool->fresh++);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    if (object == NULL) return NULL;
    memset((char *)object + sizeof *object, 0, pool->object_bytes - sizeof *object);
    object->next_free = NULL;
    atomic_store(&object->references, 1);
    atomic_store(&object->kills, 0);
    atomic_store(&object->live, 1);
    return object;
}

void object_hold(void *object) {
    atomic_fetch_add(&((struct object *)object)->references, 1);
}

bool object_hold_unless_gone(void *object) {
    _Atomic uint32_t *references = &((struct object *)object)->references;
    uint32_t count = atomic_load(references);
    while (count != 0 && !atomic_compare_exchange_weak(references, &count, count + 1)) {
    }
    return count != 0;
}

void object_drop(struct object_pool *pool, void *handle) {
    struct object *object = handle;
    if (atomic_fetch_sub(&object->references, 1) == 1) object_end(pool, object);
}

void object_end(struct object_pool *pool, void *handle) {
    struct object *object = handle;
    atomic_store(&object->live, 0);
    pthread_mutex_lock(&pool->lock);
    object->next_free = NULL;
    if (pool->free_last != NULL) pool->free_last->next_free = object;
    if (pool->free_first == NULL) pool->free_first = object;
    pool->free_last = object;
    pool->free_count++;
    pthread_mutex_unlock(&pool->lock);
}

void *object_check(struct object_pool *pool, const void *handle) {
    uintptr_t base = atomic_load_explicit(&pool->base, memory_order_relaxed);
    uintptr_t at = (uintptr_t)handle - base;
    if (base == 0 || at >= pool->object_bytes * pool->capacity || at % pool->object_bytes != 0)
        return NULL;
    struct object *object = (struct object *)handle;
    if (atomic_load_explicit(&object->live, memory_order_acquire)) return object;
    if (atomic_load(&object->kills)) object_die_of(handle);
    return NULL;
}

void object_die_of(const void *handle) {
    fprintf(stderr, "simulated driver: %s of the destroyed handle %p\n", process_call, handle);
    raise(SIGSEGV);
}

void object_leave_to_kill(void *object) {
    atomic_store(&((struct object *)object)->kills, 1);
}

size_t object_count(struct object_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    const size_t count = pool->fresh;
    pthread_mutex_unlock(&pool->lock);
    return count;
}

size_t object_index(const struct object_pool *pool, const void *object) {
    return ((uintptr_t)object - atomic_load(&pool->base)) / pool->object_bytes;
}

void *object_at(const struct object_pool *pool, size_t index) {
    return (void *)(atomic_load(&pool->base) + pool->object_bytes * index);
}
