#define _GNU_SOURCE
#include "memory/chunk.h"

#include <sys/mman.h>
#include <unistd.h>

#include "machine/journal.h"
#include "memory/memory.h"
#include "process/process.h"

static struct object_pool chunk_pool = OBJECT_POOL(struct chunk, 1 << 20);

void chunk_drop(struct chunk *chunk) {
    if (atomic_fetch_sub(&chunk->object.references, 1) != 1) return;
    if (chunk->shared) {
        munmap(chunk->storage, chunk->bytes); /* not to be kept for others */
        close(chunk->fd);
    } else {
        memory_storage_give(chunk->storage, chunk->bytes);
    }
    if (chunk->share_key != 0) {
        segment_lock(process_segment);
        segment_share_drop(process_segment, process_row, chunk->share_key);
        segment_unlock(process_segment);
    } else if (!chunk->imported)
        segment_discharge(process_segment, process_row, chunk->device, chunk->bytes);
    memory_journal(JOURNAL_FREE, chunk->device, chunk->imported ? 0 : chunk->bytes,
                   chunk->imported ? "import" : "chunk");
    atomic_store(&chunk->object.references, 1);
    object_drop(&chunk_pool, chunk);
}

struct chunk *chunk_find(CUmemGenericAllocationHandle handle) {
    return object_check(&chunk_pool, (const void *)(uintptr_t)handle);
}

struct chunk *chunk_check(CUmemGenericAllocationHandle handle) {
    struct chunk *chunk = chunk_find(handle);
    return chunk != NULL && atomic_load(&chunk->handles) > 0 ? chunk : NULL;
}

struct chunk *chunk_new(CUmemGenericAllocationHandle *handle) {
    struct chunk *chunk = object_take(&chunk_pool);
    if (chunk == NULL) return NULL;
    atomic_store(&chunk->handles, 1);
    chunk->id = memory_next_id();
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)chunk;
    return chunk;
}

void chunk_give_up(struct chunk *chunk) {
    object_drop(&chunk_pool, chunk);
}
