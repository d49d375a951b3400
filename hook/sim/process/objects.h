/* Handles that can be checked: objects of one type live in one address range, so that a handle is
 * known to be one before it is followed, and a destroyed one is told apart for a long while. */
#ifndef GPUSHARE_SIM_OBJECTS_H
#define GPUSHARE_SIM_OBJECTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first member of every object. */
struct object {
    _Atomic uint32_t live;  /* handed out and not destroyed by its user */
    _Atomic uint32_t kills; /* destroyed: a call that follows its handle ends the process */
    _Atomic uint32_t references;
    struct object *next_free;
};

struct object_pool {
    size_t object_bytes;
    size_t capacity;
    pthread_mutex_t lock; /* guards the rest; base is read without it */
    _Atomic uintptr_t base;
    size_t fresh; /* objects that were never handed out begin here */
    struct object *free_first;
    struct object *free_last;
    size_t free_count;
};

#define OBJECT_POOL(type, objects) \
    {.object_bytes = sizeof(type), .capacity = (objects), .lock = PTHREAD_MUTEX_INITIALIZER}

#pragma GCC visibility push(hidden)

/* A zeroed object, live, with one reference; NULL when the pool is empty. */
void *object_take(struct object_pool *pool);

/* Drops a reference; the last one gives the object back. `object_hold` takes one more. */
void object_drop(struct object_pool *pool, void *object);
void object_hold(void *object);
/* For objects found by their index: false when nobody has a reference. It may be another object
 * than the one that was looked for. */
bool object_hold_unless_gone(void *object);

/* For whoever counts the references itself, and has dropped the last one: gives the object back. */
void object_end(struct object_pool *pool, void *object);

/* How many objects were ever handed out, and each of them; look at `live` before anything else. */
size_t object_count(struct object_pool *pool);
void *object_at(const struct object_pool *pool, size_t index);
size_t object_index(const struct object_pool *pool, const void *object);

/* The object of a user's handle when it is one and is live, else NULL. Ends the process if the
 * object was left to kill. */
void *object_check(struct object_pool *pool, const void *handle);

/* Ends the process, as a real driver may that follows a destroyed handle. */
void object_die_of(const void *handle);

/* It is destroyed: from here on until its handle is given out again, whoever asks for it dies, as
 * a real driver does that follows such a handle. */
void object_leave_to_kill(void *object);

#pragma GCC visibility pop
#endif
