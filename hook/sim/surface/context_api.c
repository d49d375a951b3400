/* cuCtx* and cuDevicePrimaryCtx*. */
#define _GNU_SOURCE
#include <string.h>

#include "capture/capture.h"
#include "sim_api.h"
#include "streams/stream.h"
#include "surface/context_life.h"

#define CONTEXT_FLAGS_KNOWN 0xffu

struct primary {
    struct context *context; /* NULL while inactive: not retained, or not since a reset */
    unsigned references;     /* less releases; a reset takes none away */
    unsigned flags;
};

static struct primary primaries[SIM_DEVICES_MAX]; /* by ordinal; guarded by primaries_lock */
static pthread_mutex_t primaries_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult sim_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    if (pctx == NULL || (flags & ~CONTEXT_FLAGS_KNOWN) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    struct context *context = NULL;
    CUresult result = context_create(dev, flags, false, &context);
    if (result != CUDA_SUCCESS) return result;
    *pctx = (CUcontext)context;
    return context_push(context);
}

CUresult sim_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                            unsigned int flags, CUdevice dev) {
    if (paramsArray != NULL || numParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return sim_cuCtxCreate_v2(pctx, flags, dev);
}

CUresult sim_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                            CUdevice dev) {
    if (ctxCreateParams != NULL && ctxCreateParams->numExecAffinityParams != 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return sim_cuCtxCreate_v2(pctx, flags, dev);
}

CUresult sim_cuCtxDestroy_v2(CUcontext ctx) {
    if (ctx == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct context *context = context_check(ctx);
    if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (context_top() == context) context_pop();
    context_destroy(context);
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxPushCurrent_v2(CUcontext ctx) {
    struct context *context = context_check(ctx);
    if (context != NULL) return context_push(context);
    if (ctx != NULL) object_die_of(ctx);
    return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_cuCtxPopCurrent_v2(CUcontext *pctx) {
    struct context *context = context_pop();
    if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx != NULL) *pctx = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetCurrent(CUcontext ctx) {
    if (ctx == NULL) {
        context_pop();
        return CUDA_SUCCESS;
    }
    struct context *context = context_check(ctx);
    if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    context_pop();
    return context_push(context);
}

CUresult sim_cuCtxGetCurrent(CUcontext *pctx) {
    if (pctx == NULL) return CUDA_ERROR_INVALID_VALUE;
    *pctx = (CUcontext)context_top();
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetDevice(CUdevice *device) {
    struct context *context = context_top();
    if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    *device = context->ordinal;
    return CUDA_SUCCESS;
}

/* A context named by handle, or the current one for NULL. */
static CUresult named_or_current(CUcontext ctx, struct context **context) {
    if (ctx == NULL) return context_current(context);
    *context = context_check(ctx);
    return *context == NULL ? CUDA_ERROR_INVALID_CONTEXT : context_state(*context);
}

CUresult sim_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
    struct context *context = NULL;
    CUresult result = named_or_current(ctx, &context);
    if (result != CUDA_SUCCESS) return result;
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    *device = context->ordinal;
    return CUDA_SUCCESS;
}

static CUresult synchronise(struct context *context) {
    CUresult result = capture_forbid_synchronise(context);
    if (result != CUDA_SUCCESS) return result;
    result = stream_wait_context(context);
    pool_synchronised(NULL);
    return result;
}

CUresult sim_cuCtxSynchronize(void) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    return result != CUDA_SUCCESS ? result : synchronise(context);
}

CUresult sim_cuCtxSynchronize_v2(CUcontext ctx) {
    struct context *context = NULL;
    CUresult result = named_or_current(ctx, &context);
    return result != CUDA_SUCCESS ? result : synchronise(context);
}

CUresult sim_cuCtxGetId(CUcontext ctx, unsigned long long *ctxId) {
    struct context *context = NULL;
    CUresult result = named_or_current(ctx, &context);
    if (result != CUDA_SUCCESS) return result;
    if (ctxId == NULL) return CUDA_ERROR_INVALID_VALUE;
    *ctxId = context->id;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetFlags(unsigned int *flags) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetFlags(unsigned int flags) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result == CUDA_SUCCESS) context->flags = flags;
    return result;
}

CUresult sim_cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
    struct context *context = NULL;
    CUresult result = named_or_current(ctx, &context);
    if (result != CUDA_SUCCESS) return result;
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (leastPriority != NULL) *leastPriority = 0;
    if (greatestPriority != NULL) *greatestPriority = -5;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetLimit(size_t *pvalue, CUlimit limit) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (pvalue == NULL) return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *pvalue = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetLimit(CUlimit limit, size_t value) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if ((unsigned)limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetCacheConfig(CUfunc_cache *pconfig) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (pconfig == NULL) return CUDA_ERROR_INVALID_VALUE;
    *pconfig = context->cache_config;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetCacheConfig(CUfunc_cache config) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result == CUDA_SUCCESS) context->cache_config = config;
    return result;
}

CUresult sim_cuCtxResetPersistingL2Cache(void) {
    struct context *context = NULL;
    return context_current(&context);
}

static struct context *peer_of(CUcontext handle, const struct context *self, CUresult *result) {
    struct context *peer = context_check(handle);
    *result = CUDA_SUCCESS;
    if (peer == NULL) *result = CUDA_ERROR_INVALID_CONTEXT;
    if (peer != NULL && peer->device == self->device) *result = CUDA_ERROR_INVALID_DEVICE;
    return peer;
}

CUresult sim_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int flags) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    struct context *peer = peer_of(peerContext, context, &result);
    if (result != CUDA_SUCCESS) return result;
    uint32_t bit = 1u << peer->device;
    if ((atomic_fetch_or(&context->peers, bit) & bit) != 0)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxDisablePeerAccess(CUcontext peerContext) {
    struct context *context = NULL;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS) return result;
    struct context *peer = peer_of(peerContext, context, &result);
    if (result != CUDA_SUCCESS) return result;
    uint32_t bit = 1u << peer->device;
    if ((atomic_fetch_and(&context->peers, ~bit) & bit) == 0)
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    if (pctx == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    struct primary *primary = &primaries[dev];
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&primaries_lock);
    if (primary->context == NULL)
        result = context_create(dev, primary->flags, true, &primary->context);
    if (result == CUDA_SUCCESS) {
        primary->references++;
        *pctx = (CUcontext)primary->context;
    }
    pthread_mutex_unlock(&primaries_lock);
    return result;
}

/* Call with primaries_lock held. What has to be destroyed, when that is let go. */
static struct context *end_primary(struct primary *primary) {
    struct context *ended = primary->context;
    primary->context = NULL;
    return ended;
}

CUresult sim_cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    struct primary *primary = &primaries[dev];
    struct context *ended = NULL;
    pthread_mutex_lock(&primaries_lock);
    bool retained = primary->references > 0;
    if (retained && --primary->references == 0) ended = end_primary(primary);
    pthread_mutex_unlock(&primaries_lock);
    if (ended != NULL) context_destroy(ended);
    return retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_cuDevicePrimaryCtxRelease(CUdevice dev) {
    return sim_cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult sim_cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&primaries_lock);
    struct context *ended = end_primary(&primaries[dev]);
    pthread_mutex_unlock(&primaries_lock);
    if (ended != NULL) context_destroy(ended);
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxReset(CUdevice dev) {
    return sim_cuDevicePrimaryCtxReset_v2(dev);
}

CUresult sim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
    if (flags == NULL || active == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&primaries_lock);
    *flags = primaries[dev].flags;
    *active = primaries[dev].context != NULL;
    pthread_mutex_unlock(&primaries_lock);
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    if (!device_check(dev)) return CUDA_ERROR_INVALID_DEVICE;
    if ((flags & ~CONTEXT_FLAGS_KNOWN) != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&primaries_lock);
    primaries[dev].flags = flags;
    if (primaries[dev].context != NULL) primaries[dev].context->flags = flags;
    pthread_mutex_unlock(&primaries_lock);
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
    return sim_cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}
