#include "base/driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/locks.h"
#include "base/log.h"
#include "base/symbols.h"

struct driver_row {
    size_t offset;
    const char *name;
    const char *older_name; /* tried next; NULL for none */
};

#define ROW(member, name) {offsetof(struct driver, member), name, NULL}
#define ROW_OR(member, name, older) {offsetof(struct driver, member), name, older}

static const struct driver_row ROWS[] = {
    ROW(context_get_current, "cuCtxGetCurrent"),
    ROW(context_push, "cuCtxPushCurrent_v2"),
    ROW(context_pop, "cuCtxPopCurrent_v2"),
    ROW(context_get_device, "cuCtxGetDevice"),
    ROW(context_get_id, "cuCtxGetId"),
    ROW(primary_get_state, "cuDevicePrimaryCtxGetState"),
    ROW(stream_query, "cuStreamQuery"),
    ROW(stream_is_capturing, "cuStreamIsCapturing"),
    ROW(stream_get_context, "cuStreamGetCtx"),
    ROW(stream_get_flags, "cuStreamGetFlags"),
    ROW(stream_create, "cuStreamCreate"),
    ROW(event_create, "cuEventCreate"),
    ROW(event_record, "cuEventRecord"),
    ROW(event_query, "cuEventQuery"),
    ROW(event_destroy, "cuEventDestroy_v2"),
    ROW(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode"),
    ROW(device_get, "cuDeviceGet"),
    ROW_OR(device_get_uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid"),
    ROW(device_get_name, "cuDeviceGetName"),
    ROW(device_total_bytes, "cuDeviceTotalMem_v2"),
    ROW(error_name, "cuGetErrorName"),
};

/* Without one of these the process takes turns all the same, but its memory stays where it is. */
static const struct driver_row MOVING_ROWS[] = {
    ROW(address_reserve, "cuMemAddressReserve"),
    ROW(address_free, "cuMemAddressFree"),
    ROW(memory_create, "cuMemCreate"),
    ROW(memory_release, "cuMemRelease"),
    ROW(memory_map, "cuMemMap"),
    ROW(memory_unmap, "cuMemUnmap"),
    ROW(memory_set_access, "cuMemSetAccess"),
    ROW(memory_get_info, "cuMemGetInfo_v2"),
    ROW(copy_to_host, "cuMemcpyDtoHAsync_v2"),
    ROW(copy_to_device, "cuMemcpyHtoDAsync_v2"),
    ROW(pool_attribute, "cuMemPoolGetAttribute"),
    ROW(device_pool, "cuDeviceGetMemPool"),
    ROW(copy_box, "cuMemcpy3DPeer"),
    ROW(copy_box_per_thread, "cuMemcpy3DPeer_ptds"),
    ROW(copy_box_in_stream, "cuMemcpy3DPeerAsync"),
    ROW(copy_box_in_stream_per_thread, "cuMemcpy3DPeerAsync_ptsz"),
    ROW(pointer_attribute, "cuPointerGetAttribute"),
    ROW(stream_destroy, "cuStreamDestroy_v2"),
    ROW(host_register, "cuMemHostRegister_v2"),
    ROW(host_unregister, "cuMemHostUnregister"),
};

/* Without these movable memory cannot be given to other processes. */
static const struct driver_row SHARING_ROWS[] = {
    ROW(memory_export, "cuMemExportToShareableHandle"),
    ROW(memory_import, "cuMemImportFromShareableHandle"),
};

static struct driver driver;
static _Atomic(const struct driver *) driver_ready;
static bool driver_complained; /* guarded by LOCK_DRIVER */
static bool moving;            /* MOVING_ROWS are all there; does not change once it is ready */
static bool sharing;           /* likewise SHARING_ROWS */

static bool resolve_row(const struct driver_row *row) {
    void *function = symbols_real(row->name);
    if (function == NULL && row->older_name) function = symbols_real(row->older_name);
    memcpy((char *)&driver + row->offset, &function, sizeof(function));
    return function != NULL;
}

static bool resolve_all(const struct driver_row *rows, size_t count, const char *so) {
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        if (resolve_row(&rows[i])) continue;
        all = false;
        log_debug("driver: no %s, so memory %s", rows[i].name, so);
    }
    return all;
}

/* Fills the table; false where a function is missing. */
static bool resolve(void) {
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        if (!resolve_row(&ROWS[i])) {
            if (i > 0 && !driver_complained) {
                driver_complained = true;
                log_error(
                    "the CUDA driver has no %s, so this process takes no turns. "
                    "Update the NVIDIA driver to 12.0 or later.",
                    ROWS[i].name);
            }
            return false;
        }
    }
    moving =
        resolve_all(MOVING_ROWS, sizeof(MOVING_ROWS) / sizeof(MOVING_ROWS[0]), "stays where it is");
    sharing = resolve_all(SHARING_ROWS, sizeof(SHARING_ROWS) / sizeof(SHARING_ROWS[0]),
                          "is not given to other processes");
    return true;
}

bool driver_can_move(const struct driver *cuda) {
    return cuda != NULL && moving;
}

bool driver_can_share(const struct driver *cuda) {
    return cuda != NULL && sharing;
}

/* Apart from driver_get, which every launch in a window calls. */
__attribute__((noinline, cold)) static const struct driver *make_ready(void) {
    lock_take(LOCK_DRIVER);
    /* Another thread may have been faster, and read the table already. */
    if (atomic_load_explicit(&driver_ready, memory_order_relaxed) == NULL && resolve())
        atomic_store_explicit(&driver_ready, &driver, memory_order_release);
    lock_release(LOCK_DRIVER);
    return atomic_load_explicit(&driver_ready, memory_order_acquire);
}

const struct driver *driver_get(void) {
    const struct driver *ready = atomic_load_explicit(&driver_ready, memory_order_acquire);
    return ready ? ready : make_ready();
}

CUstreamCaptureMode driver_relaxed_begin(const struct driver *cuda) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuda->exchange_capture_mode(&mode);
    return mode;
}

void driver_relaxed_end(const struct driver *cuda, CUstreamCaptureMode mode) {
    cuda->exchange_capture_mode(&mode);
}
