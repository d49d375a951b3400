#include "swap/copy_pipeline.h"

#include <string.h>

#include "base/clock.h"
#include "base/driver.h"
#include "device/contexts.h"
#include "device/failure.h"
#include "memory/device_memory.h"
#include "swap/swap_plan.h"

#define LANES_MAX 64
#define PIECE_BYTES ((uint64_t)32 << 20)
#define UNKNOWN_NS 1000000000u

/* What a context's copies need. Its events are used again and again, in order. */
static struct lane {
    uint64_t context; /* its generation */
    CUstream stream;
    CUevent events[SWAP_FLIGHTS_MAX];
    uint32_t next_event;
} lanes[LANES_MAX];

static struct flight flights[SWAP_FLIGHTS_MAX]; /* a ring */
static uint32_t first_flight, flights_used;
static uint64_t current; /* the context that is pushed on this thread */

/* A chunk may still name a context that is gone. */
bool pipeline_use_context(void *context) {
    const struct driver *cuda = driver_get();
    const uint64_t generation = contexts_generation(context);
    CUcontext popped;
    if (current == generation && generation != 0) return true;
    if (current != 0) cuda->context_pop(&popped);
    current = generation != 0 && cuda->context_push(context) == CUDA_SUCCESS ? generation : 0;
    return current != 0;
}

static struct lane *lane_of(uint64_t context) {
    for (int i = 0; i < LANES_MAX; i++)
        if (lanes[i].context == context) return &lanes[i];
    return NULL;
}

/* Non-blocking, so that it keeps no order with the program's own streams. */
static CUresult open_lane(struct lane **lane, void *context) {
    const struct driver *cuda = driver_get();
    *lane = lane_of(current);
    if (*lane) return CUDA_SUCCESS;
    struct lane *fresh = lane_of(0);
    if (fresh == NULL) return CUDA_ERROR_NOT_SUPPORTED; /* trying again would not help */
    memset(fresh, 0, sizeof(*fresh));
    CUresult result = cuda->stream_create(&fresh->stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < SWAP_FLIGHTS_MAX && result == CUDA_SUCCESS; i++)
        result = cuda->event_create(&fresh->events[i], CU_EVENT_DISABLE_TIMING);
    fresh->context = current;
    if (result != CUDA_SUCCESS) {
        pipeline_forget_context(context);
        return result;
    }
    *lane = fresh;
    return CUDA_SUCCESS;
}

int pipeline_open(void *context) {
    struct lane *lane;
    if (!pipeline_use_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
    return (int)open_lane(&lane, context);
}

/* In pieces: one copy into a mapping of 64 MiB is slower than two (52 against 53.5 GB/s on an
 * H200). `began`: at least one is on its way, even if a later one was refused. What was empty when
 * it was claimed has no host memory, and nothing is copied, also where it was mapped since. */
static CUresult copy(const struct chunk *chunk, uint64_t address, bool outward, CUstream stream,
                     bool *began) {
    const struct driver *cuda = driver_get();
    CUresult result = CUDA_SUCCESS;
    *began = chunk->host == NULL;
    if (chunk->host == NULL) return CUDA_SUCCESS;
    for (uint64_t done = 0; done < chunk->bytes && result == CUDA_SUCCESS; done += PIECE_BYTES) {
        const uint64_t left = chunk->bytes - done;
        const uint64_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        char *host = (char *)chunk->host + done;
        result = outward ? cuda->copy_to_host(host, address + done, bytes, stream)
                         : cuda->copy_to_device(address + done, host, bytes, stream);
        *began = *began || result == CUDA_SUCCESS;
    }
    return result;
}

/* Managed memory comes all the same where the driver refuses to bring it ahead of its use. */
static CUresult prefetch(const struct chunk *chunk, bool outward, CUstream stream, bool *began) {
    const CUdevice to = outward ? CU_DEVICE_CPU : chunk->device;
    CUresult result = CUDA_SUCCESS;
    if (outward || !chunk->comes_by_faults)
        result = driver_get()->prefetch(chunk->managed_at, chunk->bytes, to, stream);
    const bool matters =
        outward || failure_is_sticky((int)result) || result == CUDA_ERROR_OUT_OF_MEMORY;
    if (!matters) result = CUDA_SUCCESS;
    *began = result == CUDA_SUCCESS;
    return result;
}

int pipeline_begin(struct chunk *chunk, bool outward) {
    const bool is_managed = chunk->managed_at != 0;
    const uint64_t address = is_managed ? chunk->managed_at : device_memory_copied_at(chunk);
    return pipeline_begin_at(chunk, address, outward);
}

int pipeline_begin_at(struct chunk *chunk, uint64_t address, bool outward) {
    const struct driver *cuda = driver_get();
    struct lane *lane;
    if (flights_used == SWAP_FLIGHTS_MAX) return CUDA_ERROR_NOT_READY;
    if (!pipeline_use_context(chunk->context)) return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = open_lane(&lane, chunk->context);
    if (result != CUDA_SUCCESS) return (int)result;
    bool began = false;
    result = chunk->managed_at != 0 ? prefetch(chunk, outward, lane->stream, &began)
                                    : copy(chunk, address, outward, lane->stream, &began);
    if (!began) return (int)result;
    /* As many events as flights there can be: the next one's copy has ended long ago. */
    CUevent event = lane->events[lane->next_event++ % SWAP_FLIGHTS_MAX];
    const CUresult recorded = cuda->event_record(event, lane->stream);
    struct flight *flight = &flights[(first_flight + flights_used++) % SWAP_FLIGHTS_MAX];
    *flight = (struct flight){
        .chunk = chunk,
        .outward = outward,
        .event = recorded == CUDA_SUCCESS ? event : NULL,
        .lane = lane,
        .cu_result = (int)result,
    };
    return CUDA_SUCCESS;
}

/* A copy whose event could not be recorded is over when its stream is. */
static CUresult look_at(const struct flight *flight) {
    const struct driver *cuda = driver_get();
    if (!pipeline_use_context(flight->chunk->context)) return CUDA_ERROR_INVALID_CONTEXT;
    return flight->event ? cuda->event_query(flight->event)
                         : cuda->stream_query(flight->lane->stream);
}

/* Only 0 and a sticky error, after which nothing runs in its context, tell of the copy's end. Any
 * other error may be of something else; then the stream is asked, and its end is the copy's. */
static bool has_ended(struct flight *flight, CUresult answer) {
    if (answer == CUDA_ERROR_NOT_READY) {
        flight->unknown_since_ns = 0;
        return false;
    }
    if (answer != CUDA_SUCCESS && (flight->cu_result == 0 || failure_is_sticky((int)answer)))
        flight->cu_result = (int)answer;
    if (answer == CUDA_SUCCESS || failure_is_sticky((int)answer)) return true;
    const uint64_t now_ns = clock_now_ns();
    if (flight->unknown_since_ns == 0) flight->unknown_since_ns = now_ns;
    flight->event = NULL;
    flight->has_no_end = now_ns - flight->unknown_since_ns >= UNKNOWN_NS;
    return flight->has_no_end;
}

bool pipeline_take_ended(struct flight *ended, int *cu_result) {
    if (flights_used == 0) return false;
    struct flight *oldest = &flights[first_flight];
    if (!has_ended(oldest, look_at(oldest))) return false;
    *ended = *oldest;
    *cu_result = oldest->cu_result;
    first_flight = (first_flight + 1) % SWAP_FLIGHTS_MAX;
    flights_used--;
    return true;
}

uint32_t pipeline_flights(void) {
    return flights_used;
}

static const struct flight *flight_at(uint32_t place) {
    return &flights[(first_flight + place) % SWAP_FLIGHTS_MAX];
}

uint64_t pipeline_bytes(void) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < flights_used; i++)
        bytes += flight_at(i)->chunk->bytes;
    return bytes;
}

uint64_t pipeline_leaving_bytes(int device) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < flights_used; i++)
        if (flight_at(i)->outward && flight_at(i)->chunk->device == device)
            bytes += flight_at(i)->chunk->bytes;
    return bytes;
}

uint64_t pipeline_managed_bytes(bool outward) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < flights_used; i++)
        if (flight_at(i)->outward == outward && flight_at(i)->chunk->managed_at != 0)
            bytes += flight_at(i)->chunk->bytes;
    return bytes;
}

bool pipeline_has_arrivals(int device) {
    for (uint32_t i = 0; i < flights_used; i++)
        if (!flight_at(i)->outward && flight_at(i)->chunk->device == device) return true;
    return false;
}

void pipeline_forget_context(void *context) {
    const struct driver *cuda = driver_get();
    const uint64_t generation = contexts_generation(context);
    struct lane *lane = generation != 0 ? lane_of(generation) : NULL;
    if (lane && pipeline_use_context(context)) {
        for (int i = 0; i < SWAP_FLIGHTS_MAX; i++)
            if (lane->events[i]) cuda->event_destroy(lane->events[i]);
        if (lane->stream) cuda->stream_destroy(lane->stream);
    }
    if (lane) memset(lane, 0, sizeof(*lane));
    pipeline_use_context(NULL);
}

void pipeline_after_fork(void) {
    memset(lanes, 0, sizeof(lanes));
    first_flight = flights_used = 0;
    current = 0;
}
