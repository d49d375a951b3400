#define _GNU_SOURCE
#include "executor/execute.h"

#include <string.h>

#include "executor/effects.h"
#include "executor/host_thread.h"
#include "machine/journal.h"
#include "memory/graph_memory.h"
#include "memory/managed.h"
#include "memory/memory.h"
#include "memory/pooled.h"
#include "modules/builtin.h"
#include "process/context.h"
#include "process/process.h"
#include "streams/event.h"

#define COPY_SLICE_BYTES (2u << 20)
#define DEVICE_RATE_FACTOR 16u /* memory of the device is that much faster than the bus */

static uint64_t launch_cost_ns(void) {
    return process_segment->config.launch_ns;
}

static uint64_t transfer_ns(uint64_t bytes, uint64_t rate_factor) {
    double rate = (double)process_segment->config.copy_bytes_per_s * (double)rate_factor;
    return (uint64_t)((double)bytes * 1e9 / rate);
}

static void begin_on(struct stream *stream, const struct op *op, enum sim_engine_kind engine,
                     uint64_t work_ns) {
    stream->execution.engine = engine;
    in_use_begin(&stream->execution.use, stream->context, op);
    engine_begin(process_segment, process_row, stream->context->device, engine, work_ns,
                 &stream->execution.job);
}

static bool has_ended(struct stream *stream, uint64_t *look_again_ns) {
    struct engine_job *job = &stream->execution.job;
    bool due = job->check_at_ns <= segment_now_ns() || stream->execution.recheck;
    stream->execution.recheck = false;
    if (due && engine_has_ended(process_segment, process_row, stream->context->device,
                                stream->execution.engine, job))
        return true;
    if (job->check_at_ns < *look_again_ns) *look_again_ns = job->check_at_ns;
    return false;
}

static void end_on(struct stream *stream) {
    in_use_end(&stream->execution.use);
    engine_end(process_segment, process_row, stream->context->device, stream->execution.engine);
}

bool execute_is_ready(struct stream *stream, const struct op *op, uint64_t *look_again_ns) {
    if (op->kind == OP_STREAM_WAIT) return stream_is_done(op->wait.stream, op->wait.sequence);
    if (op->kind != OP_WAIT_VALUE) return true;
    bool reachable = true;
    if (effects_value_is_there(stream->context, &op->value, &reachable)) return true;
    if (!reachable) {
        context_fail(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
        return true;
    }
    uint64_t again = segment_now_ns() + EXECUTE_POLL_NS;
    if (again < *look_again_ns) *look_again_ns = again;
    return false;
}

/* Which engine a copy uses; memory of the device alone is no matter of the bus. */
static enum sim_engine_kind copy_engine(const struct op_copy *copy) {
    if (copy->source_on_device && copy->destination_on_device) return SIM_ENGINE_COMPUTE;
    return copy->source_on_device ? SIM_ENGINE_D2H : SIM_ENGINE_H2D;
}

static uint64_t copy_slice_bytes(const struct op_copy *copy, uint64_t done) {
    uint64_t left = copy->width_bytes * copy->height * copy->depth - done;
    return left < COPY_SLICE_BYTES ? left : COPY_SLICE_BYTES;
}

static uint64_t copy_slice_ns(const struct op_copy *copy, uint64_t bytes) {
    bool inside = copy->source_on_device && copy->destination_on_device;
    return transfer_ns(bytes, inside ? DEVICE_RATE_FACTOR : 1);
}

static void move_slice(struct stream *stream, const struct op_copy *copy) {
    uint64_t bytes = copy_slice_bytes(copy, stream->execution.bytes_done);
    if (!effects_copy(copy, stream->execution.bytes_done, bytes))
        context_fail(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void begin_copy(struct stream *stream, const struct op *op) {
    const struct op_copy *copy = &op->copy;
    stream->execution.bytes_done = 0;
    uint64_t bytes = copy_slice_bytes(copy, 0);
    begin_on(stream, op, copy_engine(copy), launch_cost_ns() / 2 + copy_slice_ns(copy, bytes));
    move_slice(stream, copy);
}

/* One slice is over: checks that its memory is still there, and begins the next. */
static bool continue_copy(struct stream *stream, const struct op_copy *copy) {
    uint64_t done = stream->execution.bytes_done;
    uint64_t bytes = copy_slice_bytes(copy, done);
    if (!effects_copy_is_reachable(copy, done, bytes))
        context_fail(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
    stream->execution.bytes_done = done + bytes;
    bytes = copy_slice_bytes(copy, stream->execution.bytes_done);
    if (bytes == 0 || atomic_load(&stream->context->sticky) != 0) return true;
    engine_extend(process_segment, process_row, stream->context->device, stream->execution.engine,
                  copy_slice_ns(copy, bytes), &stream->execution.job);
    move_slice(stream, copy);
    return false;
}

void execute_begin(struct stream *stream, const struct op *op) {
    stream->execution.started_ns = segment_now_ns();
    switch (op->kind) {
        case OP_LAUNCH: {
            uint64_t work = builtin_work_ns(&op->launch);
            begin_on(stream, op, SIM_ENGINE_COMPUTE,
                     work == ENGINE_NEVER ? ENGINE_NEVER : work + launch_cost_ns());
            break;
        }
        case OP_COPY:
            begin_copy(stream, op);
            break;
        case OP_MEMSET: {
            const struct op_memset *fill = &op->memset;
            uint64_t bytes = fill->width * fill->height * fill->element_bytes;
            begin_on(stream, op, SIM_ENGINE_COMPUTE,
                     launch_cost_ns() + transfer_ns(bytes, DEVICE_RATE_FACTOR));
            break;
        }
        case OP_PREFETCH: {
            uint64_t bytes =
                managed_elsewhere(op->prefetch.address, op->prefetch.bytes, op->prefetch.device);
            begin_on(stream, op,
                     op->prefetch.device == MANAGED_HOST ? SIM_ENGINE_D2H : SIM_ENGINE_H2D,
                     launch_cost_ns() / 2 + transfer_ns(bytes, 1));
            break;
        }
        case OP_HOST_FUNCTION:
        case OP_STREAM_CALLBACK:
            atomic_store(&stream->execution.host_done, 0);
            host_thread_post(stream, op);
            break;
        default:
            break;
    }
}

static bool continue_launch(struct stream *stream, const struct op *op, uint64_t *look_again_ns) {
    if (stream->execution.job.ends_virtual_ns == ENGINE_NEVER) {
        CUresult result = CUDA_SUCCESS;
        if (!builtin_poll(stream->context, &op->launch, &result)) {
            uint64_t again = segment_now_ns() + EXECUTE_POLL_NS;
            if (again < *look_again_ns) *look_again_ns = again;
            return false;
        }
        if (result != CUDA_SUCCESS) context_fail(stream->context, result);
    } else {
        if (!has_ended(stream, look_again_ns)) return false;
        CUresult result = builtin_perform(stream->context, &op->launch);
        if (result != CUDA_SUCCESS) context_fail(stream->context, result);
    }
    end_on(stream);
    return true;
}

static void record_event(struct stream *stream, const struct op *op) {
    uint64_t sequence = op->record.sequence;
    if (sequence == 0) { /* a node of a graph: it stands for the graph's launch */
        sequence = atomic_load(&stream->completed) + 1;
        event_note_record(op->record.event, stream, sequence);
    }
    event_note_reached(op->record.event, sequence, segment_now_ns());
}

bool execute_continue(struct stream *stream, const struct op *op, uint64_t *look_again_ns) {
    switch (op->kind) {
        case OP_LAUNCH:
            if (!continue_launch(stream, op, look_again_ns)) return false;
            break;
        case OP_COPY:
            do {
                if (!has_ended(stream, look_again_ns)) return false;
            } while (!continue_copy(stream, &op->copy));
            end_on(stream);
            break;
        case OP_MEMSET:
            if (!has_ended(stream, look_again_ns)) return false;
            if (!effects_memset(stream->context, &op->memset))
                context_fail(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
            end_on(stream);
            break;
        case OP_PREFETCH:
            if (!has_ended(stream, look_again_ns)) return false;
            managed_move(op->prefetch.address, op->prefetch.bytes, op->prefetch.device);
            end_on(stream);
            break;
        case OP_HOST_FUNCTION:
        case OP_STREAM_CALLBACK:
            if (atomic_load(&stream->execution.host_done) == 0) return false;
            break;
        case OP_EVENT_RECORD:
            record_event(stream, op);
            break;
        case OP_WRITE_VALUE:
            if (!memory_write(stream->context, op->value.address, &op->value.value,
                              op->value.bytes))
                context_fail(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS);
            break;
        case OP_GRAPH_ALLOC:
            graph_memory_begin(op->memory);
            break;
        case OP_GRAPH_FREE:
            graph_memory_end(op->memory);
            break;
        case OP_FREE:
            pooled_release(op->free.pool, op->free.ticket);
            break;
        default:
            break;
    }
    execute_journal(stream, op, stream->execution.started_ns, segment_now_ns());
    return true;
}

void execute_abandon(struct stream *stream, const struct op *op) {
    if (op->kind == OP_LAUNCH || op->kind == OP_COPY || op->kind == OP_MEMSET ||
        op->kind == OP_PREFETCH)
        end_on(stream);
    execute_journal(stream, op, stream->execution.started_ns, segment_now_ns());
}

static void describe(const struct op *op, struct journal_record *record) {
    const char *name = "";
    uint32_t kind = 0;
    switch (op->kind) {
        case OP_LAUNCH:
            kind = JOURNAL_LAUNCH;
            name = builtin_name(&op->launch);
            record->amount = builtin_amount(&op->launch);
            break;
        case OP_COPY:
            kind = op->copy.source_on_device && op->copy.destination_on_device ? JOURNAL_COPY_D2D
                   : op->copy.source_on_device                                 ? JOURNAL_COPY_D2H
                                                                               : JOURNAL_COPY_H2D;
            name = "copy";
            record->amount = op->copy.width_bytes * op->copy.height * op->copy.depth;
            break;
        case OP_MEMSET:
            kind = JOURNAL_MEMSET;
            name = "memset";
            record->amount = op->memset.width * op->memset.height * op->memset.element_bytes;
            break;
        case OP_HOST_FUNCTION:
        case OP_STREAM_CALLBACK:
            kind = JOURNAL_HOST_FUNCTION;
            name = "host function";
            break;
        case OP_PREFETCH:
            kind = JOURNAL_PREFETCH;
            name = "prefetch";
            record->amount = op->prefetch.bytes;
            break;
        case OP_GRAPH:
            kind = JOURNAL_GRAPH_LAUNCH;
            name = "graph";
            break;
        default:
            break;
    }
    atomic_store(&record->kind, kind);
    journal_name(record, name);
}

void execute_journal(const struct stream *stream, const struct op *op, uint64_t started_ns,
                     uint64_t ended_ns) {
    struct journal_record record = {
        .submitted_ns = op->submitted_ns != 0 ? op->submitted_ns : started_ns,
        .started_ns = started_ns,
        .ended_ns = ended_ns,
        .pid = process_number,
        .device = stream->context->device,
        .stream = stream->number};
    describe(op, &record);
    if (atomic_load(&record.kind) != 0) journal_append(&record);
}
