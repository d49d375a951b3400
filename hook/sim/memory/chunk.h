/* Chunks: physical memory, which is mapped at addresses. */
#ifndef GPUSHARE_SIM_CHUNK_H
#define GPUSHARE_SIM_CHUNK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "process/objects.h"

/* The object's references are those of handles, mappings and calls together. */
struct chunk {
    struct object object;
    uint64_t bytes;
    uint64_t id; /* of the bytes, at whatever addresses they are mapped */
    uint32_t device;
    CUmemAllocationProp properties;
    unsigned char *storage;
    _Atomic uint32_t handles; /* cuMemCreate and cuMemRetainAllocationHandle, less cuMemRelease */
    bool shared;   /* the storage is in a file, `fd`, that other processes may have too */
    bool imported; /* from another process, which is charged for it */
    int fd;
    uint64_t share_key; /* in the segment; 0: not there, and this process alone is charged */
};

#pragma GCC visibility push(hidden)

/* The chunk of a handle, or NULL. A handle is a small number, no address. It can be looked at and
 * mapped while the chunk lives, if only by its mappings; whoever asks for it afterwards dies. */
struct chunk *chunk_find(CUmemGenericAllocationHandle handle);
/* NULL where nobody has the handle any more: a second release is refused, and kills nobody. */
struct chunk *chunk_to_release(CUmemGenericAllocationHandle handle);
/* As `chunk_find`, with a reference of its own, for what other threads release meanwhile. */
struct chunk *chunk_hold(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle chunk_handle(const struct chunk *chunk);
/* A new chunk with one handle, all else zero; NULL when there are too many. */
struct chunk *chunk_new(CUmemGenericAllocationHandle *handle);
/* Takes a new chunk back that was given no bytes. */
void chunk_give_up(struct chunk *chunk);

/* Drops a mapping's, a handle's or a call's hold on a chunk; the last one gives its bytes back. */
void chunk_drop(struct chunk *chunk);

#pragma GCC visibility pop
#endif
