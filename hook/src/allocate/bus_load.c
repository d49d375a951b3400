#include "allocate/bus_load.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "base/bell.h"
#include "base/clock.h"
#include "memory/blocks.h"

/* A twentieth of what a bus of 55 GB/s moves in that time. */
#define MUCH_BYTES ((uint64_t)256 << 20)
#define LOOK_NS 100000000u
#define TELL_NS 50000000u

/* Threads that copy at once may lose some of each other's bytes: it is no account. */
static _Atomic uint64_t counted_from_ns, counted_bytes, told_ns;

void bus_load_copied(uint64_t bytes) {
    if (bytes < BUS_COPY_BYTES_MIN) return;
    const uint64_t now_ns = clock_now_ns();
    if (now_ns - atomic_load(&counted_from_ns) > LOOK_NS) {
        atomic_store(&counted_from_ns, now_ns);
        atomic_store(&counted_bytes, 0);
    }
    if (atomic_fetch_add(&counted_bytes, bytes) + bytes < MUCH_BYTES) return;
    if (now_ns - atomic_load(&told_ns) < TELL_NS) return;
    atomic_store(&told_ns, now_ns);
    bell_ring(NEWS_BUS_USED);
}

void bus_load_line(uint64_t to, uint64_t from, uint64_t bytes) {
    struct allocated found;
    if (bytes < BUS_COPY_BYTES_MIN) return;
    if (blocks_find(to, &found) != blocks_find(from, &found)) bus_load_copied(bytes);
}

static bool is_host(CUmemorytype type) {
    return type == CU_MEMORYTYPE_HOST;
}

void bus_load_flat(const CUDA_MEMCPY2D *flat) {
    if (flat == NULL || is_host(flat->srcMemoryType) == is_host(flat->dstMemoryType)) return;
    bus_load_copied(flat->WidthInBytes * flat->Height);
}

void bus_load_box(const CUDA_MEMCPY3D *box) {
    if (box == NULL || is_host(box->srcMemoryType) == is_host(box->dstMemoryType)) return;
    bus_load_copied(box->WidthInBytes * box->Height * box->Depth);
}
