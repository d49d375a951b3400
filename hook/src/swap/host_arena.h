/* Host memory for parked chunks: segments of at most 64 MiB, as large as the chunks that fill them
 * or, where little is left, as one chunk, in huge pages, prefaulted in parallel, registered with
 * the driver once, used again and given back. Never more than the cgroup leaves (cgroup.h). It
 * holds what was on the device, so pages leave it for the system alone, which wipes them. Guarded
 * by LOCK_MEMORY; nothing of the driver is called under it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HOST_ARENA_SEGMENT_BYTES ((uint64_t)64 << 20)
/* Where the system leaves less than so much, others may soon be short of what is free here. */
#define HOST_ARENA_LITTLE_BYTES (16 * HOST_ARENA_SEGMENT_BYTES)

/* Memory of `bytes` (a multiple of CHUNK_GRANULE, at most CHUNK_BYTES_MAX), or NULL when there is
 * none to be had: registered, or where the driver registers no more, not. The calling thread has a
 * current context. */
void *host_arena_take(uint64_t bytes);
void host_arena_give(void *host, uint64_t bytes);

/* For the mover alone. The calling thread has a current context.
 * Makes segments ready until `bytes` are free, or until the system would leave less than
 * `left_bytes` to others; one segment a call: false when nothing was left to do. It is for the
 * chunks of a device (-1: of any) that leave next and find no place, from one of `chunk_bytes` on
 * (0: from the first); where little is left, for that one alone. */
bool host_arena_prepare(uint64_t bytes, int device, uint64_t chunk_bytes, uint64_t left_bytes);
/* For the mover alone. Gives free segments back to the system while more than `bytes` are free;
 * without a current context those that are registered nowhere. */
void host_arena_trim(uint64_t bytes, bool has_context);

/* So much could be parked now: what is free, and what may still be taken from the system; but what
 * lies in pieces that are too small for the chunks on the device only where all of these find room.
 */
uint64_t host_arena_room(void);
uint64_t host_arena_free(void);
/* Of a segment that was begun ahead of need. It may stay so: what it was for can change. */
uint64_t host_arena_begun(void);
/* What the system leaves for this process and for others, and whose limit says so (cgroup.h), as it
 * was at the last look. */
uint64_t host_arena_system_room(void);
uint64_t host_arena_limit(void);
/* How fast host memory of late became ready, pages and registration together, in bytes a second; 0:
 * not known. What is parked in memory that the driver would not register. */
uint64_t host_arena_ready_rate(void);
uint64_t host_arena_unpinned(void);
/* The system runs short of memory: what is free here should go back. */
bool host_arena_is_short(void);

/* Registrations made in the context of this generation end with it; they are renewed when next
 * used. */
void host_arena_forget_context(uint64_t context);

/* The child has none of it (MADV_DONTFORK). */
void host_arena_after_fork(void);
