/* Host memory by itself. By its argument it prints
 * - generations: of memory that was registered in a context whose handle an older context had, how
 *   often the driver has registered it: at first, when the older context is forgotten, and when its
 *   own is.
 * - refused: when a context cannot register any more while the next segment is begun, how many
 * bytes are begun, and how many stay when all was given back.
 * - looked: for one segment, at how many of many chunks it has looked.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/driver.h"
#include "base/ending.h"
#include "base/locks.h"
#include "base/log.h"
#include "device/contexts.h"
#include "device/failure.h"
#include "memory/chunks.h"
#include "swap/cgroup.h"
#include "swap/host_arena.h"
#include "swap/managed_room.h"
#include "swap/prefault.h"

#define OLDER 1
#define NEWER 2
#define HANDLE ((CUcontext)0x1000)

static int registrations;
static CUresult answer;
static size_t mapped_bytes;

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
    mapped_bytes += bytes;
    return (void *)syscall(SYS_mmap, at, bytes, access, flags, file, offset);
}

int munmap(void *at, size_t bytes) {
    mapped_bytes -= bytes;
    return (int)syscall(SYS_munmap, at, bytes);
}

static CUresult get_current(CUcontext *context) {
    *context = HANDLE;
    return CUDA_SUCCESS;
}

static CUresult register_host(void *host, size_t bytes, unsigned int flags) {
    (void)host, (void)bytes, (void)flags;
    registrations++;
    return answer;
}

const struct driver *driver_get(void) {
    static const struct driver driver = {
        .context_get_current = get_current,
        .host_register = register_host,
    };
    return &driver;
}

uint64_t contexts_current_generation(void) {
    return NEWER;
}

struct cgroup_host cgroup_look(uint64_t enough_bytes) {
    return (struct cgroup_host){.room_bytes = enough_bytes};
}

bool failure_is_sticky(int cu_result) {
    (void)cu_result;
    return false;
}

bool ending_driver_use_begin(void) {
    return true;
}

void ending_driver_use_end(void) {}

char *prefault_map(uint64_t bytes) {
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return base != MAP_FAILED ? base : NULL;
}

void prefault_begin(struct prefault *work, void *address, uint64_t bytes) {
    (void)work, (void)address, (void)bytes;
}

bool prefault_end(struct prefault *work) {
    (void)work;
    return true;
}

void lock_take(enum runtime_lock lock) {
    (void)lock;
}

void lock_release(enum runtime_lock lock) {
    (void)lock;
}

void log_line(enum log_level level, const char *format, ...) {
    (void)level, (void)format;
}

/* Those that are to leave, all on the first device, and how many of them were looked at. */
static int chunks, looks;

struct chunk_sums chunks_sums_of(int device) {
    const uint64_t bytes = device == 0 ? (uint64_t)chunks * CHUNK_BYTES_MAX : 0;
    return (struct chunk_sums){.bytes_resident = bytes, .bytes_movable = bytes};
}

bool chunks_visit_leaving(int device, bool (*visit)(const struct chunk *, void *), void *argument) {
    const struct chunk chunk = {.bytes = CHUNK_BYTES_MAX, .device = device};
    for (int i = 0; device == 0 && i < chunks; i++, looks++)
        if (!visit(&chunk, argument)) return false;
    return true;
}

/* Memory is taken, and given back; how often it was registered by then. */
static void use(void) {
    void *host = host_arena_take(CHUNK_GRANULE);
    if (host == NULL) exit(1);
    host_arena_give(host, CHUNK_GRANULE);
    printf("%d\n", registrations);
}

uint64_t managed_room_bytes(const struct chunk *chunk) {
    return chunk->bytes;
}

static int generations(void) {
    if (!host_arena_prepare(CHUNK_GRANULE, 0, CHUNK_GRANULE, 0)) return 1;
    use();
    host_arena_forget_context(OLDER);
    use();
    host_arena_forget_context(NEWER);
    use();
    use();
    return 0;
}

static int refused(void) {
    answer = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    chunks = 4;
    if (host_arena_prepare(4 * HOST_ARENA_SEGMENT_BYTES, 0, CHUNK_BYTES_MAX, 0)) return 1;
    printf("%llu\n", (unsigned long long)host_arena_begun());
    host_arena_trim(0, true);
    printf("%zu\n", mapped_bytes);
    return 0;
}

static int looked(void) {
    chunks = 100000;
    if (!host_arena_prepare(4 * HOST_ARENA_SEGMENT_BYTES, 0, CHUNK_BYTES_MAX, 0)) return 1;
    printf("%d\n", looks);
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (strcmp(what, "looked") == 0) return looked();
    return strcmp(what, "refused") == 0 ? refused() : generations();
}
