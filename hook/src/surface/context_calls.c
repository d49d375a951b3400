#include "surface/context_calls.h"

#include <unistd.h>

#include "allocate/backing.h"
#include "allocate/handles.h"
#include "allocate/managing.h"
#include "allocate/memory.h"
#include "base/bell.h"
#include "device/streams.h"
#include "memory/registry.h"
#include "sharing/ipc.h"
#include "swap/host_arena.h"
#include "swap/mover.h"

void context_calls_cuda_opened(void) {
    static _Atomic pid_t opened_in;
    const pid_t process = getpid();
    if (atomic_exchange(&opened_in, process) != process) bell_start_agent("cuInit");
}

void context_calls_ended(struct context_end ended) {
    if (ended.generation == 0) return;
    backing_context_ended(ended.generation);
    handles_context_ended(ended.generation, ended.handle, ended.ordinal);
    managing_context_ended(ended.generation);
    ipc_context_ended(ended.generation);
    host_arena_forget_context(ended.generation);
    registry_drop_context(ended.generation);
    memory_tell(ended.ordinal);
}

struct context_end context_calls_leave(struct context_end end) {
    if (end.generation == 0) return end;
    streams_let_others_record(end.generation);
    mover_forget_context(end.handle);
    return end;
}

/* The mover stays away until all is forgotten: the driver may give the handle out again at once. */
void context_calls_left(const struct context_end *end, int cu_result) {
    if (end->generation == 0) return;
    if (contexts_is_gone(end, cu_result)) context_calls_ended(*end);
    contexts_leave_over(end);
}
