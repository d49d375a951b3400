/* Streams that have freed memory of pools, and their events (pooled.h). */
#include <string.h>

#include "base/hold.h"
#include "memory/pooled.h"

void pooled_unuse(const struct freed *freed) {
    struct freer *freer = freed->freer;
    HOLD(LOCK_MEMORY);
    freer->users--;
    if (freed->idle > freer->idle) freer->idle = freed->idle;
}

struct freer *pooled_take_idle(struct pool *pool) {
    struct freer *freer;
    HOLD(LOCK_MEMORY);
    LIST_FOREACH(freer, &pool->space.freers, next)
    if (space_forget(freer)) break;
    return freer;
}

void *pooled_marked(const struct freed *freed, void *event, uint64_t point) {
    struct freer *freer = freed->freer;
    HOLD(LOCK_MEMORY);
    struct freed_mark *last = freer->marks_used > 0 ? &freer->marks[freer->marks_used - 1] : NULL;
    if (last != NULL && last->point >= point) return event;
    if (freer->marks_used < SPACE_MARKS) {
        freer->marks[freer->marks_used++] = (struct freed_mark){event, point};
        return NULL;
    }
    if (freer->users > 1) return event;
    void *before = last->event;
    *last = (struct freed_mark){event, point};
    return before;
}

void *pooled_mark_done(const struct freed *freed, void *event) {
    struct freer *freer = freed->freer;
    HOLD(LOCK_MEMORY);
    if (freer->users > 1 || freer->marks_used == 0 || freer->marks[0].event != event) return NULL;
    freer->marks_used--;
    memmove(&freer->marks[0], &freer->marks[1], freer->marks_used * sizeof freer->marks[0]);
    return event;
}
