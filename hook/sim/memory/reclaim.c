#include "memory/reclaim.h"

#include "memory/descriptor.h"
#include "memory/pool.h"

bool reclaim_unused(void) {
    const bool closed = descriptor_look();
    return pool_make_room() || closed;
}
