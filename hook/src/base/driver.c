#include "base/driver.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/hold.h"
#include "base/log.h"
#include "base/symbols.h"

enum driver_use { FOR_TURNS, FOR_MOVING, FOR_SHARING, DRIVER_USES };

struct driver_row {
    enum driver_use use;
    size_t offset;
    const char *name;
};

#define ROW(use, member, name) {use, offsetof(struct driver, member), name}

static const struct driver_row ROWS[] = {
    ROW(FOR_TURNS, context_get_current, "cuCtxGetCurrent"),
    ROW(FOR_TURNS, context_push, "cuCtxPushCurrent_v2"),
    ROW(FOR_TURNS, context_pop, "cuCtxPopCurrent_v2"),
    ROW(FOR_TURNS, context_get_device, "cuCtxGetDevice"),
    ROW(FOR_TURNS, context_get_id, "cuCtxGetId"),
    ROW(FOR_TURNS, primary_get_state, "cuDevicePrimaryCtxGetState"),
    ROW(FOR_TURNS, stream_query, "cuStreamQuery"),
    ROW(FOR_TURNS, stream_is_capturing, "cuStreamIsCapturing"),
    ROW(FOR_TURNS, stream_get_context, "cuStreamGetCtx"),
    ROW(FOR_TURNS, stream_get_flags, "cuStreamGetFlags"),
    ROW(FOR_TURNS, stream_create, "cuStreamCreate"),
    ROW(FOR_TURNS, event_create, "cuEventCreate"),
    ROW(FOR_TURNS, event_record, "cuEventRecord"),
    ROW(FOR_TURNS, event_query, "cuEventQuery"),
    ROW(FOR_TURNS, event_destroy, "cuEventDestroy_v2"),
    ROW(FOR_TURNS, exchange_capture_mode, "cuThreadExchangeStreamCaptureMode"),
    ROW(FOR_TURNS, device_get, "cuDeviceGet"),
    ROW(FOR_TURNS, device_get_uuid, "cuDeviceGetUuid_v2"),
    ROW(FOR_TURNS, device_get_name, "cuDeviceGetName"),
    ROW(FOR_TURNS, device_total_bytes, "cuDeviceTotalMem_v2"),
    ROW(FOR_TURNS, error_name, "cuGetErrorName"),
    /* Without one of these the process takes turns all the same, but its memory stays where it is.
     */
    ROW(FOR_MOVING, address_reserve, "cuMemAddressReserve"),
    ROW(FOR_MOVING, address_free, "cuMemAddressFree"),
    ROW(FOR_MOVING, memory_create, "cuMemCreate"),
    ROW(FOR_MOVING, memory_release, "cuMemRelease"),
    ROW(FOR_MOVING, memory_map, "cuMemMap"),
    ROW(FOR_MOVING, memory_unmap, "cuMemUnmap"),
    ROW(FOR_MOVING, memory_set_access, "cuMemSetAccess"),
    ROW(FOR_MOVING, memory_get_info, "cuMemGetInfo_v2"),
    ROW(FOR_MOVING, copy_to_host, "cuMemcpyDtoHAsync_v2"),
    ROW(FOR_MOVING, copy_to_device, "cuMemcpyHtoDAsync_v2"),
    ROW(FOR_MOVING, pool_attribute, "cuMemPoolGetAttribute"),
    ROW(FOR_MOVING, device_pool, "cuDeviceGetMemPool"),
    ROW(FOR_MOVING, device_default_pool, "cuDeviceGetDefaultMemPool"),
    ROW(FOR_MOVING, graph_memory, "cuDeviceGetGraphMemAttribute"),
    ROW(FOR_MOVING, graph_trim, "cuDeviceGraphMemTrim"),
    ROW(FOR_MOVING, graph_nodes, "cuGraphGetNodes"),
    ROW(FOR_MOVING, graph_node_type, "cuGraphNodeGetType"),
    ROW(FOR_MOVING, graph_allocation, "cuGraphMemAllocNodeGetParams"),
    ROW(FOR_MOVING, copy_box, "cuMemcpy3DPeer"),
    ROW(FOR_MOVING, copy_box_per_thread, "cuMemcpy3DPeer_ptds"),
    ROW(FOR_MOVING, copy_box_in_stream, "cuMemcpy3DPeerAsync"),
    ROW(FOR_MOVING, copy_box_in_stream_per_thread, "cuMemcpy3DPeerAsync_ptsz"),
    ROW(FOR_MOVING, pointer_attribute, "cuPointerGetAttribute"),
    ROW(FOR_MOVING, stream_destroy, "cuStreamDestroy_v2"),
    ROW(FOR_MOVING, stream_wait_event, "cuStreamWaitEvent"),
    ROW(FOR_MOVING, prefetch, "cuMemPrefetchAsync"),
    ROW(FOR_MOVING, range_attribute, "cuMemRangeGetAttribute"),
    ROW(FOR_MOVING, device_attribute, "cuDeviceGetAttribute"),
    ROW(FOR_MOVING, host_register, "cuMemHostRegister_v2"),
    ROW(FOR_MOVING, host_unregister, "cuMemHostUnregister"),
    /* Without these movable memory cannot be given to other processes. */
    ROW(FOR_SHARING, memory_export, "cuMemExportToShareableHandle"),
    ROW(FOR_SHARING, memory_import, "cuMemImportFromShareableHandle"),
};

static struct driver driver;
static _Atomic(const struct driver *) driver_ready;
static bool driver_complained;  /* guarded by LOCK_DRIVER */
static bool lacks[DRIVER_USES]; /* some of its functions; does not change once it is ready */

static void note_lack(const struct driver_row *row) {
    lacks[row->use] = true;
    if (row->use != FOR_TURNS) {
        log_debug("driver: no %s, so memory %s", row->name,
                  row->use == FOR_MOVING ? "stays where it is" : "is not given to other processes");
    } else if (row != ROWS && !driver_complained) { /* the first: it is not loaded */
        driver_complained = true;
        log_error(
            "the CUDA driver has no %s, so this process takes no turns. "
            "Update the NVIDIA driver to 12.0 or later.",
            row->name);
    }
}

/* Fills the table; false where a function is missing without which nothing goes. */
static bool resolve(void) {
    lacks[FOR_TURNS] = false;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]) && !lacks[FOR_TURNS]; i++) {
        void *function = symbols_real(ROWS[i].name);
        memcpy((char *)&driver + ROWS[i].offset, &function, sizeof(function));
        if (function == NULL) note_lack(&ROWS[i]);
    }
    return !lacks[FOR_TURNS];
}

bool driver_can_move(const struct driver *cuda) {
    return cuda != NULL && !lacks[FOR_MOVING];
}

bool driver_can_share(const struct driver *cuda) {
    return cuda != NULL && !lacks[FOR_SHARING];
}

/* Apart from driver_get, which every launch in a window calls. */
__attribute__((noinline, cold)) static const struct driver *make_ready(void) {
    HOLD(LOCK_DRIVER);
    /* Another thread may have been faster, and read the table already. */
    if (atomic_load_explicit(&driver_ready, memory_order_relaxed) == NULL && resolve())
        atomic_store_explicit(&driver_ready, &driver, memory_order_release);
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

CUresult driver_query_event(const struct driver *cuda, CUevent event) {
    const CUstreamCaptureMode mode = driver_relaxed_begin(cuda);
    const CUresult result = cuda->event_query(event);
    driver_relaxed_end(cuda, mode);
    return result;
}
