/* Tables that grow: an array, how many of its items are used, and how many there is room for. */
#pragma once

#include <stdbool.h>
#include <stdlib.h>

/* Makes room for `more` items behind those that are used; false where there is no memory, and
 * nothing has changed then. `items` and `room` are variables. */
#define ARRAY_MAKE_ROOM(items, used, more, room)                                       \
    __extension__({                                                                    \
        size_t room_ = (room);                                                         \
        void *grown_ = array_grown((items), (used) + (more), &room_, sizeof *(items)); \
        if (grown_ != NULL) {                                                          \
            (items) = grown_;                                                          \
            (room) = (__typeof__(room))room_;                                          \
        }                                                                              \
        grown_ != NULL;                                                                \
    })

static inline void *array_grown(void *items, size_t needed, size_t *room, size_t item_bytes) {
    if (needed <= *room) return items;
    size_t wanted = *room > 0 ? 2 * *room : 16;
    if (wanted < needed) wanted = needed;
    void *grown = realloc(items, wanted * item_bytes);
    if (grown != NULL) *room = wanted;
    return grown;
}
