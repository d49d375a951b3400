/* All of CUDA that the runtime calls, with what it relies on. Real functions (never our wrappers),
 * resolved through symbols_real. One suite holds the simulated and the real driver to this. */
#pragma once

#include <cuda.h>
#include <stdbool.h>

struct driver {
    /* The calling thread's current context, NULL for none. Needs no initialised driver. */
    CUresult (*context_get_current)(CUcontext *context);
    /* Makes a live context current, and takes it off again. */
    CUresult (*context_push)(CUcontext context);
    CUresult (*context_pop)(CUcontext *context);
    /* The device of the current context. */
    CUresult (*context_get_device)(CUdevice *device);
    /* A number that no other context of the process has had. An error for a primary context that is
     * not active. */
    CUresult (*context_get_id)(CUcontext context, unsigned long long *id);
    CUresult (*primary_get_state)(CUdevice device, unsigned int *flags, int *active);

    /* 0 when all work of the stream is done, CUDA_ERROR_NOT_READY when not, or an earlier error.
     * Adds no work and no order between streams. Not for a capturing stream (that breaks the
     * capture), and not for the legacy stream while a blocking stream captures. */
    CUresult (*stream_query)(CUstream stream);
    /* Never disturbs a capture. Not for the legacy stream. */
    CUresult (*stream_is_capturing)(CUstream stream, CUstreamCaptureStatus *status);
    CUresult (*stream_get_context)(CUstream stream, CUcontext *context);
    CUresult (*stream_get_flags)(CUstream stream, unsigned int *flags);
    /* In the current context. */
    CUresult (*stream_create)(CUstream *stream, unsigned int flags);

    /* An event belongs to the context that is current when it is made, and dies with it. */
    CUresult (*event_create)(CUevent *event, unsigned int flags);
    /* The event is done when what is in the stream now is done. A second record moves it. */
    CUresult (*event_record)(CUevent event, CUstream stream);
    /* 0 when done or never recorded, CUDA_ERROR_NOT_READY when not, or an earlier error. */
    CUresult (*event_query)(CUevent event);
    CUresult (*event_destroy)(CUevent event);

    /* Swaps the calling thread's capture mode. In relaxed mode none of the calls here disturbs
     * captures of other threads. */
    CUresult (*exchange_capture_mode)(CUstreamCaptureMode *mode);

    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*device_get_uuid)(CUuuid *uuid, CUdevice device);
    CUresult (*device_get_name)(char *name, int bytes, CUdevice device);
    CUresult (*device_total_bytes)(size_t *bytes, CUdevice device);
    CUresult (*error_name)(CUresult result, const char **name);

    /* ---- memory that follows the turn; all of these are there where driver_can_move ---- */

    /* Addresses alone: nothing is on the device. */
    CUresult (*address_reserve)(CUdeviceptr *address, size_t bytes, size_t alignment,
                                CUdeviceptr wanted, unsigned long long flags);
    CUresult (*address_free)(CUdeviceptr address, size_t bytes);
    /* Takes device memory (multiples of 2 MiB); it goes back with the last of handle and maps. */
    CUresult (*memory_create)(CUmemGenericAllocationHandle *handle, size_t bytes,
                              const CUmemAllocationProp *properties, unsigned long long flags);
    CUresult (*memory_release)(CUmemGenericAllocationHandle handle);
    /* None of these four waits for the device, so its work has to be done before an unmap. */
    CUresult (*memory_map)(CUdeviceptr address, size_t bytes, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags);
    CUresult (*memory_unmap)(CUdeviceptr address, size_t bytes);
    CUresult (*memory_set_access)(CUdeviceptr address, size_t bytes,
                                  const CUmemAccessDesc *accesses, size_t count);
    /* Of the current context's device, whoever uses it. */
    CUresult (*memory_get_info)(size_t *free_bytes, size_t *total_bytes);

    /* Of the current context, to host memory that is registered: return before the copy is done. */
    CUresult (*copy_to_host)(void *host, CUdeviceptr address, size_t bytes, CUstream stream);
    CUresult (*copy_to_device)(CUdeviceptr address, const void *host, size_t bytes,
                               CUstream stream);
    /* What a pool has of its device, and the pool that allocations of a device come from. */
    CUresult (*pool_attribute)(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
    CUresult (*device_pool)(CUmemoryPool *pool, CUdevice device);
    CUresult (*device_default_pool)(CUmemoryPool *pool, CUdevice device);
    /* What graphs have of a device, and giving up what none uses; the nodes of a graph. */
    CUresult (*graph_memory)(CUdevice device, CUgraphMem_attribute attribute, void *value);
    CUresult (*graph_trim)(CUdevice device);
    CUresult (*graph_nodes)(CUgraph graph, CUgraphNode *nodes, size_t *count);
    CUresult (*graph_node_type)(CUgraphNode node, CUgraphNodeType *type);
    CUresult (*graph_allocation)(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params);
    /* Between any two ends, each in the context that it names; not in a capture, which it ends. */
    CUresult (*copy_box)(const CUDA_MEMCPY3D_PEER *box);
    CUresult (*copy_box_per_thread)(const CUDA_MEMCPY3D_PEER *box);
    CUresult (*copy_box_in_stream)(const CUDA_MEMCPY3D_PEER *box, CUstream stream);
    CUresult (*copy_box_in_stream_per_thread)(const CUDA_MEMCPY3D_PEER *box, CUstream stream);
    /* Of memory that the driver knows; an error for the rest of the host's. */
    CUresult (*pointer_attribute)(void *value, CUpointer_attribute attribute, CUdeviceptr address);
    CUresult (*stream_destroy)(CUstream stream);
    /* What comes after it in the stream comes after the event as it is recorded now. */
    CUresult (*stream_wait_event)(CUstream stream, CUevent event, unsigned int flags);

    /* Managed memory goes to a device or to the host (CU_DEVICE_CPU), in stream order. What the
     * device has no room for puts other managed memory out, of whatever process. */
    CUresult (*prefetch)(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream);
    /* What was said about such memory; an answer where all of the range has the same. */
    CUresult (*range_attribute)(void *value, size_t size, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t bytes);
    CUresult (*device_attribute)(int *value, CUdevice_attribute attribute, CUdevice device);

    /* Pins memory of the process for copies: about 40 GB/s where it is in huge pages already. */
    CUresult (*host_register)(void *host, size_t bytes, unsigned int flags);
    CUresult (*host_unregister)(void *host);

    /* ---- memory of several processes; both are there where driver_can_share ---- */

    /* A descriptor for memory that was created for it. It keeps the memory as a handle does, and
     * can be closed by itself. Needs no context, and does not wait for the device. */
    CUresult (*memory_export)(void *descriptor, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type, unsigned long long flags);
    /* A handle again, in any process, for the same memory; the descriptor stays the caller's. */
    CUresult (*memory_import)(CUmemGenericAllocationHandle *handle, void *descriptor,
                              CUmemAllocationHandleType type);
};

/* NULL until libcuda is loaded, and for good where it lacks a function that we need. */
const struct driver *driver_get(void);

/* Whether this driver has all that moving memory takes. */
bool driver_can_move(const struct driver *driver);
/* Whether besides it can give such memory to other processes. */
bool driver_can_share(const struct driver *driver);

/* The streams that have no handle of their own. */
#define DRIVER_STREAM_LEGACY ((CUstream)0x1)
#define DRIVER_STREAM_PER_THREAD ((CUstream)0x2)

/* Asks an event or stream on a user's thread without disturbing captures: `_begin` switches the
 * thread to relaxed mode and returns what `_end` restores. */
CUstreamCaptureMode driver_relaxed_begin(const struct driver *driver);
void driver_relaxed_end(const struct driver *driver, CUstreamCaptureMode mode);
CUresult driver_query_event(const struct driver *driver, CUevent event);
