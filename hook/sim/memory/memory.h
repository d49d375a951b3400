/* Memory: which addresses mean what, and the bytes behind them.
 *
 * A range is an address interval that device work may touch: an allocation, a mapping of a chunk,
 * managed memory, or host memory that is pinned. The table of ranges is guarded by a lock of its
 * own, which is held while bytes are moved, so that no range goes away under a copy's slice. */
#ifndef GPUSHARE_SIM_MEMORY_H
#define GPUSHARE_SIM_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY_GRANULE_BYTES (2ull << 20)

struct block;
struct chunk;
struct context;
struct graph_memory;
struct managed;
struct pool;

enum range_kind {
    RANGE_ALLOCATION, /* cuMemAlloc and relatives */
    RANGE_POOLED,     /* cuMemAllocAsync and relatives */
    RANGE_MAPPING,    /* cuMemMap */
    RANGE_MANAGED,
    RANGE_HOST,       /* cuMemAllocHost, cuMemHostAlloc */
    RANGE_REGISTERED, /* cuMemHostRegister */
};

struct range {
    enum range_kind kind;
    uint64_t start;
    uint64_t bytes;
    unsigned char *storage; /* where the bytes are; for host kinds the address itself */
    uint32_t device;        /* index in the segment */
    int ordinal;
    uint64_t id;
    struct context *context; /* owner; NULL for pools and mappings */
    uint64_t context_id;
    struct chunk *chunk;        /* of a mapping: a reference */
    struct pool *pool;          /* of a pooled range */
    struct block *block;        /* which of its blocks that is; guarded by the pool's lock */
    struct graph_memory *graph; /* of a pooled range: the memory of a graph that it is */
    uint64_t file_offset;       /* of a pooled range: where a file has its bytes; 0: in none */
    struct managed *managed;    /* of managed memory: where it is */
    uint32_t access_mask;       /* of a mapping: bit per segment device that may touch it */
    uint32_t reader_mask;       /* those of them that may not write */
    unsigned flags;
    bool read_only;
    bool freed; /* of a pooled range: it is not allocated any more, but work that came before its
                   free still has it */
    bool sync_memops; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: a mark, since copies that wait always do
                       */
    struct range *next_removed; /* those that one call took out */
};

#pragma GCC visibility push(hidden)

/* Adds a range to the table, which then owns it; false when out of memory. */
bool memory_insert(struct range *range);

/* Takes the range that begins at `start` out of the table; NULL when none does, or when it is of
 * another kind than `kinds` (bits 1 << kind). */
struct range *memory_remove(uint64_t start, unsigned kinds);

/* Adds a pooled range in place of all freed ones before `end`: they are cut, or go (`gone`). */
bool memory_take_over(struct range *range, uint64_t end, struct range **gone);

/* Copies the description of the range that holds `address`. The first passes over what is freed,
 * and over memory of graphs that no launch has brought yet. */
bool memory_find(uint64_t address, struct range *found);
bool memory_find_any(uint64_t address, struct range *found);

/* It is memory of a graph that no launch has brought yet: work that is captured may name it. */
bool memory_awaits_launch(uint64_t address);

/* Moves bytes between a device address and a host buffer, across adjacent ranges, on behalf of a
 * context. False when any byte is out of its reach; what came before has then been moved. */
bool memory_read(const struct context *context, uint64_t address, void *to, size_t bytes);
bool memory_write(const struct context *context, uint64_t address, const void *from, size_t bytes);

/* True when all of it is within reach. */
bool memory_reachable(const struct context *context, uint64_t address, uint64_t bytes);

/* The same for copy engines, which need no peer access: what a copy's arguments are checked for,
 * and what it needs while it runs. */
bool memory_copyable(uint64_t address, uint64_t bytes);
bool memory_is_there(uint64_t address, uint64_t bytes);

/* True when the context's device has access to every mapping and pooled allocation in the interval.
 * Plain allocations do not count: a copy engine reaches them from every device. */
bool memory_mappings_reachable(const struct context *context, uint64_t address, uint64_t bytes);

/* Frees what a destroyed context owned. */
void memory_release_context(struct context *context);

/* Storage: zeroed or poisoned, never what another allocation left there. */
unsigned char *memory_storage_take(size_t bytes);
void memory_storage_give(unsigned char *storage, size_t bytes);
/* Address space for bytes that take memory where they are written. */
unsigned char *memory_storage_reserve(size_t bytes);
/* What is there is lost: poisoned, or zero. */
void memory_storage_wipe(unsigned char *storage, size_t bytes);
/* Moves what is in storage into the file, and the file under its address, while nobody touches the
 * bytes. False when the machine has no memory for that. */
bool memory_storage_share(unsigned char *storage, size_t bytes, int fd);

/* Bytes of a file, shared with whoever has it. */
unsigned char *memory_storage_of_file(int fd, uint64_t offset, size_t bytes);
/* The file gives up its bytes there. */
void memory_storage_punch(int fd, uint64_t offset, size_t bytes);

/* Charges a device for an allocation as the driver does: small ones share granules. */
bool memory_charge(uint32_t device, uint64_t bytes);
void memory_discharge(uint32_t device, uint64_t bytes);

/* What a device may do with a range. */
CUmemAccess_flags memory_access_of(const struct range *range, uint32_t device);

/* Gives back everything that a range in nobody's table holds. */
void memory_free_range(struct range *range);

/* Calls `visit` for each range that overlaps [start, start + bytes), with the table locked for
 * writing, until it returns false. */
void memory_for_each(uint64_t start, uint64_t bytes, bool (*visit)(struct range *, void *),
                     void *argument);

uint64_t memory_next_id(void);
void memory_journal(uint32_t kind, uint32_t device, uint64_t bytes, const char *name);

#pragma GCC visibility pop
#endif
