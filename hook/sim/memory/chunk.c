#define _GNU_SOURCE
#include "memory/chunk.h"

#include <sys/mman.h>
#include <unistd.h>

#include "machine/journal.h"
#include "memory/descriptor.h"
#include "memory/memory.h"
#include "process/process.h"

#define CHUNKS_MAX (1u << 20)

static struct object_pool chunk_pool = OBJECT_POOL(struct chunk, CHUNKS_MAX);

static void drop_share(uint64_t share_key) {
    segment_lock(process_segment);
    segment_share_drop(process_segment, process_row, share_key);
    segment_unlock(process_segment);
}

/* The device has the memory back with the last descriptor of it. */
static void give_shared(struct chunk *chunk) {
    munmap(chunk->storage, chunk->bytes); /* not to be kept for others */
    if (chunk->share_key != 0) {
        if (descriptor_is_open(chunk->fd) &&
            descriptor_when_closed(chunk->fd, drop_share, chunk->share_key))
            return;
        drop_share(chunk->share_key);
    } else if (!chunk->imported) {
        segment_discharge(process_segment, process_row, chunk->device, chunk->bytes);
    }
    close(chunk->fd);
}

void chunk_drop(struct chunk *chunk) {
    if (atomic_fetch_sub(&chunk->object.references, 1) != 1) return;
    if (chunk->shared) {
        give_shared(chunk);
    } else {
        memory_storage_give(chunk->storage, chunk->bytes);
        segment_discharge(process_segment, process_row, chunk->device, chunk->bytes);
    }
    memory_journal(JOURNAL_FREE, chunk->device, chunk->imported ? 0 : chunk->bytes,
                   chunk->imported ? "import" : "chunk");
    object_leave_to_kill(chunk);
    object_end(&chunk_pool, chunk);
}

/* The one that has or had the handle, or NULL. */
static struct chunk *numbered(CUmemGenericAllocationHandle handle) {
    const bool is_one = handle != 0 && handle <= CHUNKS_MAX && atomic_load(&chunk_pool.base) != 0;
    return is_one ? object_at(&chunk_pool, handle - 1) : NULL;
}

struct chunk *chunk_find(CUmemGenericAllocationHandle handle) {
    struct chunk *chunk = numbered(handle);
    if (chunk == NULL || atomic_load(&chunk->object.live)) return chunk;
    if (atomic_load(&chunk->object.kills)) object_die_of((const void *)(uintptr_t)handle);
    return NULL;
}

CUmemGenericAllocationHandle chunk_handle(const struct chunk *chunk) {
    return object_index(&chunk_pool, chunk) + 1;
}

struct chunk *chunk_to_release(CUmemGenericAllocationHandle handle) {
    struct chunk *chunk = numbered(handle);
    const bool is_live = chunk != NULL && atomic_load(&chunk->object.live);
    return is_live && atomic_load(&chunk->handles) > 0 ? chunk : NULL;
}

struct chunk *chunk_hold(CUmemGenericAllocationHandle handle) {
    struct chunk *chunk = chunk_find(handle);
    return chunk != NULL && object_hold_unless_gone(chunk) ? chunk : NULL;
}

struct chunk *chunk_new(CUmemGenericAllocationHandle *handle) {
    struct chunk *chunk = object_take(&chunk_pool);
    if (chunk == NULL) return NULL;
    atomic_store(&chunk->handles, 1);
    chunk->id = memory_next_id();
    *handle = chunk_handle(chunk);
    return chunk;
}

void chunk_give_up(struct chunk *chunk) {
    object_drop(&chunk_pool, chunk);
}
