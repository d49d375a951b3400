#include "allocate/memory.h"

#include "allocate/pooling.h"
#include "allocate/shortage.h"
#include "base/bell.h"
#include "base/driver.h"
#include "device/contexts.h"
#include "device/devices.h"
#include "device/streams.h"
#include "memory/graph_memory.h"
#include "memory/pools.h"
#include "swap/residency.h"

/* What a call that is no allocation may take: a module, local memory, a context. */
#define ROOM_BYTES_UNKNOWN ((uint64_t)512 << 20)
/* What the driver may take for an allocation beyond its size: a pool grows by 32 MiB. */
#define ROOM_BYTES_EXTRA ((uint64_t)32 << 20)
/* Not less is asked for at first, and twice as much each time that it did not do. */
#define ROOM_BYTES_LEAST ((uint64_t)8 << 20)

int memory_current_device(void) {
    const struct driver *cuda = driver_get();
    CUdevice device = 0;
    if (cuda == NULL || cuda->context_get_device(&device) != CUDA_SUCCESS)
        return MEMORY_NOT_ON_DEVICE;
    return (int)device;
}

void memory_tell(int device) {
    if (device < 0) return;
    if (devices_memory_changed(device, registry_bytes_allocated(device)))
        bell_ring(NEWS_MEMORY_CHANGED);
    residency_memory_changed();
}

uint64_t memory_used_by_tenant(int device, uint64_t *cap_bytes) {
    uint64_t others_bytes = 0;
    devices_limit(device, cap_bytes, &others_bytes);
    return registry_bytes_allocated(device) + others_bytes;
}

/* What this process alone may have: the cap less what the tenant's other processes have. */
static uint64_t limit_of_process(int device, uint64_t *cap_bytes) {
    uint64_t others_bytes = 0;
    devices_limit(device, cap_bytes, &others_bytes);
    if (*cap_bytes == 0) return UINT64_MAX;
    return *cap_bytes > others_bytes ? *cap_bytes - others_bytes : 0;
}

void memory_refused(enum refusal_kind kind, int device, uint64_t bytes, const char *function) {
    struct refusal refusal = {
        .kind = kind, .device = device, .bytes = bytes, .call_name = function};
    if (kind == REFUSAL_CAP) {
        refusal.used_bytes = memory_used_by_tenant(device, &refusal.limit_bytes);
    } else {
        refusal.used_bytes = registry_bytes_allocated(device);
        refusal.limit_bytes = residency_usable(device);
    }
    refusal_tell(&refusal);
}

static int claim_under_cap(struct memory_claim *claim, int device, uint64_t bytes,
                           const char *function) {
    if (device == MEMORY_CURRENT_DEVICE) device = memory_current_device();
    *claim = (struct memory_claim){.device = device, .bytes = bytes};
    if (device < 0) return CUDA_SUCCESS;
    uint64_t cap_bytes = 0;
    const uint64_t limit_bytes = limit_of_process(device, &cap_bytes);
    if (registry_claim(device, bytes, limit_bytes)) return CUDA_SUCCESS;
    memory_refused(REFUSAL_CAP, device, bytes, function);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

int memory_captured(struct memory_claim *claim, int device, uint64_t bytes, const char *function) {
    const int refused = claim_under_cap(claim, device, bytes, function);
    if (refused != CUDA_SUCCESS) return refused;
    if (claim->device >= 0) {
        residency_unclaim(claim->device, bytes, false);
        residency_memory_changed(); /* others may have been made to wait for its room */
    }
    claim->device = MEMORY_NOT_ON_DEVICE;
    graph_memory_seen();
    return CUDA_SUCCESS;
}

static bool inside_gate(void) {
    return gate_self != NULL &&
           (atomic_load_explicit(&gate_self->sequence, memory_order_relaxed) & 1) != 0;
}

/* This thread's claim. A handler of SIGINT may leave any wait of its call by a jump, and never come
 * back to end it: the thread's next claim does. */
static _Thread_local struct memory_claim mine
    __attribute__((tls_model("initial-exec"))) = {.device = MEMORY_NOT_ON_DEVICE};

void memory_claim_ended(const struct memory_claim *claim) {
    memory_tell(claim->device);
    mine.device = MEMORY_NOT_ON_DEVICE;
}

int memory_claim(struct memory_claim *claim, int device, uint64_t bytes, const char *function) {
    if (!inside_gate()) memory_unclaim(&mine);
    const int refused = claim_under_cap(claim, device, bytes, function);
    if (refused != CUDA_SUCCESS || claim->device < 0) return refused;
    mine = *claim;
    mine.waits = true;
    const enum residency_answer answer =
        residency_claim(claim->device, bytes, function, inside_gate());
    claim->stands = answer == RESIDENCY_FITS;
    claim->waits = mine.waits = !claim->stands;
    if (claim->stands || answer == RESIDENCY_AT_GATE) return CUDA_SUCCESS;
    memory_unclaim(claim);
    if (answer == RESIDENCY_CANCELLED) return GATE_CANCELLED_RESULT;
    memory_refused(REFUSAL_BUDGET, claim->device, bytes, function);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

enum gate_answer memory_enter(struct memory_claim *claim, struct gate_call call) {
    if (claim->stands) call.kind = GATE_CLAIM;
    const enum gate_answer answer = gate_enter(call);
    if (answer == GATE_CANCELLED || !claim->waits) return answer;
    residency_claim_passed(claim->device, claim->bytes);
    claim->stands = true;
    claim->waits = mine.waits = false;
    return answer;
}

static int room_for(const struct shortage *shortage, bool *waits) {
    if (!residency_swaps() || inside_gate() || shortage->device < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const enum shortage_answer answer = shortage_ask(shortage);
    *waits = answer != SHORTAGE_OVER && answer != SHORTAGE_ALONE;
    switch (answer) {
        case SHORTAGE_OVER:
        case SHORTAGE_AT_GATE:
            return CUDA_SUCCESS;
        case SHORTAGE_CANCELLED:
            return GATE_CANCELLED_RESULT;
        case SHORTAGE_STAYS:
            memory_refused(REFUSAL_ROOM, shortage->device, shortage->bytes, shortage->call_name);
            break;
        case SHORTAGE_ALONE:
            break;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static int room_for_unknown(int device, bool opens_context, const char *function) {
    const struct shortage shortage = {
        .device = device,
        .bytes_extra = ROOM_BYTES_EXTRA,
        .bytes_least = ROOM_BYTES_UNKNOWN,
        .opens_context = opens_context,
        .call_name = function,
    };
    bool waits;
    return room_for(&shortage, &waits);
}

int memory_room_for(const char *function) {
    return room_for_unknown(memory_current_device(), false, function);
}

int memory_room_for_context(int device, const char *function) {
    return room_for_unknown(device, true, function);
}

/* Its memory counts already, but the driver may take more, and what graphs have of it may be in
 * use. */
int memory_room_for_graph(void *executable, const char *function) {
    struct shortage shortage = {
        .bytes_extra = ROOM_BYTES_EXTRA, .bytes_least = ROOM_BYTES_LEAST, .call_name = function};
    bool waits;
    if (!graph_memory_of(executable, &shortage.device, &shortage.bytes))
        return memory_room_for(function);
    return room_for(&shortage, &waits);
}

static int room_for_claim(struct memory_claim *claim, uint64_t extra_bytes, uint64_t least_bytes,
                          const char *function) {
    const struct shortage shortage = {
        .device = claim->device,
        .bytes = claim->bytes,
        .bytes_extra = extra_bytes,
        .bytes_least = claim->bytes != 0 ? least_bytes : ROOM_BYTES_UNKNOWN,
        .has_claim = claim->stands,
        .call_name = function,
    };
    bool waits = false;
    mine.waits = claim->stands; /* in there it is suspended */
    const int answer = room_for(&shortage, &waits);
    claim->waits = mine.waits = claim->stands && waits;
    claim->stands = claim->stands && !waits;
    return answer;
}

int memory_room_for_claim(struct memory_claim *claim, const char *function) {
    return room_for_claim(claim, ROOM_BYTES_EXTRA, ROOM_BYTES_LEAST, function);
}

int memory_room_for_block(struct memory_claim *claim, uint32_t tries, const char *function) {
    return room_for_claim(claim, 0, ROOM_BYTES_LEAST << tries, function);
}

void memory_unclaim(const struct memory_claim *claim) {
    if (claim->device < 0) return;
    residency_unclaim(claim->device, claim->bytes, claim->waits);
    memory_claim_ended(claim); /* it may have been told, and others may wait for its room */
}

void memory_keep(const struct memory_claim *claim, enum registry_kind kind, uint64_t key,
                 uint64_t bytes) {
    if (claim->device < 0) return;
    const struct allocation allocation = {
        .key = key,
        .bytes = bytes,
        .context = contexts_current_generation(),
        .device = claim->device,
        .space = kind == KIND_ARRAYS ? REGISTRY_ARRAY : REGISTRY_ADDRESS,
        .kind = (uint8_t)kind,
    };
    registry_keep(&allocation, claim->bytes);
    memory_claim_ended(claim);
}

void memory_freed(const struct allocation *taken, int cu_result) {
    if (cu_result != CUDA_SUCCESS) registry_add(taken);
    memory_tell(taken->device);
}

void memory_pool_created(uint64_t pool, int device) {
    const struct allocation record = {
        .key = pool,
        .device = device,
        .space = REGISTRY_POOL,
    };
    registry_add(&record);
}

void memory_pool_destroyed(uint64_t pool) {
    struct allocation record;
    if (registry_take(REGISTRY_POOL, pool, &record)) memory_tell(record.device);
}

int memory_pool_device(uint64_t pool) {
    struct allocation record;
    return registry_find(REGISTRY_POOL, pool, &record) ? record.device : MEMORY_CURRENT_DEVICE;
}

int memory_stream_device(void *stream) {
    void *handle = NULL;
    if (!streams_is_created(stream) || streams_number(stream, &handle) == 0)
        return memory_current_device();
    const struct context context = contexts_copy(handle);
    return context.generation != 0 ? context.ordinal : MEMORY_NOT_ON_DEVICE;
}

void *memory_pool_of(int device) {
    const struct driver *cuda = driver_get();
    CUmemoryPool pool = NULL;
    if (device < 0 || !driver_can_move(cuda) || cuda->device_pool(&pool, device) != CUDA_SUCCESS)
        return NULL;
    return pool;
}

uint64_t memory_beyond_pool(void *pool, uint64_t bytes) {
    const uint64_t kept_bytes = pools_kept_bytes(pool);
    return bytes > kept_bytes ? bytes - kept_bytes : 0;
}

void memory_pools_changed(void) {
    if (streams_capture_anywhere()) return;
    pools_look(memory_tell);
    graph_memory_look(memory_tell);
}

/* It counts from here on, so that nothing is between the claim and the launch, which waits at the
 * gate by itself. What is reserved counts as idle: by the driver's figures a graph uses its memory
 * until the next launch of any. */
int memory_claim_graph(void *executable, const char *function) {
    uint64_t bytes;
    int device;
    if (!graph_memory_of(executable, &device, &bytes)) return CUDA_SUCCESS;
    const uint64_t counted_bytes = graph_memory_counted(device);
    if (bytes <= counted_bytes) return CUDA_SUCCESS;
    const uint64_t needed_bytes = bytes - counted_bytes;
    struct memory_claim claim;
    pooling_make_room(device, needed_bytes);
    const int refused = memory_claim(&claim, device, needed_bytes, function);
    if (refused != CUDA_SUCCESS) return refused;
    if (claim.waits) residency_claim_passed(device, needed_bytes);
    graph_memory_expect(device, needed_bytes);
    memory_claim_ended(&claim);
    return CUDA_SUCCESS;
}

void memory_keep_from_pool(const struct memory_claim *claim, void *pool, uint64_t key,
                           uint64_t bytes) {
    pools_seen(pool, claim->device);
    memory_pools_changed();
    memory_keep(claim, KIND_DRIVER_POOLS, key, bytes);
}

bool memory_is_captured(void *stream, enum gate_stream_variant variant) {
    if (stream == NULL && variant == GATE_STREAM_PER_THREAD) stream = DRIVER_STREAM_PER_THREAD;
    if (stream == NULL || stream == DRIVER_STREAM_LEGACY) return false; /* cannot be captured */
    const struct driver *cuda = driver_get();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (cuda == NULL || cuda->stream_is_capturing(stream, &status) != CUDA_SUCCESS) return false;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static uint64_t bytes_per_element(unsigned int format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return 1;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return 4;
        default: /* 16 bits, and block-compressed or video formats, which have no simple size */
            return 2;
    }
}

static uint64_t at_least_one(uint64_t value) {
    return value != 0 ? value : 1;
}

uint64_t memory_array_bytes(uint64_t width, uint64_t height, uint64_t depth, unsigned int format,
                            unsigned int channels, unsigned int levels) {
    uint64_t bytes = 0;
    for (unsigned int level = 0; level < levels && level < 32; level++)
        bytes += at_least_one(width >> level) * at_least_one(height >> level) *
                 at_least_one(depth >> level);
    return bytes * bytes_per_element(format) * at_least_one(channels);
}

void memory_report(int device, uint64_t *bytes_free, uint64_t *bytes_total) {
    if (device < 0) return;
    uint64_t cap_bytes = 0;
    const uint64_t used_bytes = memory_used_by_tenant(device, &cap_bytes);
    const uint64_t usable_bytes = residency_usable(device);
    if (cap_bytes != 0 && *bytes_total > cap_bytes) *bytes_total = cap_bytes;
    /* What others have there now will make room, so that the driver's own number does not count. */
    const bool follows_turn = usable_bytes != RESIDENCY_UNLIMITED;
    if (cap_bytes == 0 && !follows_turn) return;
    uint64_t limit_bytes = *bytes_total;
    if (follows_turn && usable_bytes < limit_bytes) limit_bytes = usable_bytes;
    const uint64_t left_bytes = limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
    if (follows_turn || *bytes_free > left_bytes) *bytes_free = left_bytes;
}
