/* A runtime for the surface tests: it stands for the gate, the devices and the agent (see
 * also fake_memory.c), lets every call pass, and writes what it is told to the file FAKE_TRACE, one
 * line each. FAKE_CAP and FAKE_OTHERS are what it says of the tenant's memory; FAKE_CANCEL=1
 * cancels every gated call; FAKE_RESTORE=1 brings parked memory back for each that is not captured;
 * FAKE_GATE_OPEN=1 opens the gate, so that calls take the fast path and are not told. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/memory_query.h"
#include "base/bell.h"
#include "base/options.h"
#include "device/devices.h"
#include "device/failure.h"
#include "device/streams.h"
#include "fake_trace.h"
#include "gate/gate.h"
#include "gate/threads.h"
#include "memory/registry.h"

_Atomic uint32_t gate_word = GATE_WINDOWED;
_Atomic bool gate_saw_per_thread;
_Thread_local struct gate_thread *gate_self __attribute__((tls_model("initial-exec")));
static _Thread_local struct gate_thread own_record;

void fake_trace(const char *format, ...) {
    const char *path = getenv("FAKE_TRACE");
    if (path == NULL) return;
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (write(file, line, (size_t)length) != length) perror("fake runtime");
    close(file);
}

uint64_t fake_number(const char *name) {
    const char *value = getenv(name);
    return value != NULL ? strtoull(value, NULL, 0) : 0;
}

enum gate_answer gate_enter_slow(const struct gate_call *call) {
    static const char *const kinds[] = {"launch", "sync", "alloc", "claim", "look"};
    if (fake_number("FAKE_GATE_OPEN")) atomic_store(&gate_word, GATE_OPEN);
    if (gate_self != NULL && (atomic_load(&gate_self->sequence) & 1) != 0) return GATE_NESTED;
    if (fake_number("FAKE_CANCEL")) return GATE_CANCELLED;
    if (fake_number("FAKE_RESTORE") && !streams_is_capturing(call->stream))
        gpushare_fake_restore(0);
    if (gate_self == NULL) gate_self = &own_record;
    atomic_fetch_add(&gate_self->sequence, 1);
    fake_trace("gate %s %s %s %p\n", call->name, kinds[call->kind],
               call->variant == GATE_STREAM_PER_THREAD ? "per_thread" : "legacy", call->stream);
    return GATE_PASS;
}

void gate_leave_slow(const struct gate_call *call, int cu_result) {
    atomic_fetch_add(&gate_self->sequence, 1);
    fake_trace("leave %s %d\n", call->name, cu_result);
}

void bell_start_agent(const char *cause) {
    if (strcmp(cause, "cuInit") == 0) fake_trace("cuda_opened\n");
}

void bell_ring(enum bell_news news) {
    (void)news;
}

void bell_ring_and_wait(enum bell_news news) {
    bell_ring(news);
}

bool devices_know(int ordinal) {
    return ordinal >= 0;
}

void devices_set_open(int ordinal, bool open) {
    fake_trace("device_%s %d\n", open ? "opened" : "closed", ordinal);
}

void devices_context_failed(int ordinal, int cu_result) {
    fake_trace("device_failed %d %d\n", ordinal, cu_result);
}

/* Weak: the library's own, where that is linked. */
__attribute__((weak)) bool devices_uuid_of(int ordinal, uint8_t uuid[16]) {
    (void)ordinal;
    (void)uuid;
    return true;
}

__attribute__((weak)) int devices_visible(const uint8_t uuid[16]) {
    (void)uuid;
    return -1;
}

uint64_t devices_bytes_allocated(int ordinal) {
    (void)ordinal;
    return 0;
}

void threads_context_switches(void) {}

void threads_synchronise_began(void) {
    fake_trace("synchronise_began\n");
}

void threads_synchronise_ended(int cu_result) {
    failure_look(cu_result);
    fake_trace("synchronise_ended %d\n", cu_result);
}

bool devices_memory_changed(int device_ordinal, uint64_t bytes_allocated) {
    const uint64_t bytes_fixed = registry_sums_of(device_ordinal).bytes_fixed;
    fake_trace("memory %d %llu %llu\n", device_ordinal, (unsigned long long)bytes_allocated,
               (unsigned long long)bytes_fixed);
    return false;
}

void memory_query_limit(int ordinal) {
    (void)ordinal;
}

void devices_limit(int device_ordinal, uint64_t *cap_bytes, uint64_t *others_bytes) {
    (void)device_ordinal;
    *cap_bytes = fake_number("FAKE_CAP");
    *others_bytes = fake_number("FAKE_OTHERS");
}

bool memory_query(const uint8_t device_uuid[16], struct memory_answer *answer) {
    (void)device_uuid;
    answer->bytes_total = fake_number("FAKE_CAP");
    answer->bytes_used = fake_number("FAKE_OTHERS");
    answer->follows_turn = fake_number("FAKE_SWAP") != 0;
    return answer->bytes_total != 0;
}

bool options_take_part(void) {
    return fake_number("GPUSHARE_DISABLE") == 0;
}
