/* gpushare_describe: the state of this client as JSON. The agent leaves a copy of what it knows;
 * the reader turns it into text. */
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/agent_state.h"
#include "base/bell.h"
#include "base/clock.h"
#include "base/hold.h"
#include "base/wait.h"
#include "device/contexts.h"
#include "device/devices.h"
#include "swap/host_arena.h"

#define MEMORY_ENTRY_BYTES 320
#define MEMORY_LIST_BYTES (16 * MEMORY_ENTRY_BYTES)

struct description {
    struct turn_state turn;
    bool windowed;
    uint32_t queue_position;
    char holder[129], tenant_id[65], problem[640];
    uint64_t hold_ends_ms;
    struct agent_counters counters;
};

static struct description published; /* guarded by LOCK_DESCRIBE */

void agent_publish(const struct agent *agent) {
    HOLD(LOCK_DESCRIBE);
    published.turn = agent->turn;
    published.windowed = agent->gate_is_open && agent->gate_is_windowed;
    published.queue_position = agent->turn.phase == TURN_ASKED ? agent->queue_position : 0;
    memcpy(published.holder, agent->holder, sizeof(published.holder));
    memcpy(published.tenant_id, agent->session.tenant_id, sizeof(published.tenant_id));
    memcpy(published.problem, agent->session.problem, sizeof(published.problem));
    published.hold_ends_ms = agent->hold_ends_ms;
    published.counters = agent->counters;
}

/* A text as a JSON string. `room` holds twice the text's bytes at least six times over. */
static const char *quoted(const char *text, char *room, size_t bytes) {
    size_t used = 0;
    room[used++] = '"';
    for (; *text && used + 8 < bytes; text++) {
        unsigned char byte = (unsigned char)*text;
        const bool plain = byte >= 0x20 && byte != 0x7f && byte != '"' && byte != '\\';
        used += (size_t)snprintf(room + used, bytes - used, plain ? "%c" : "\\u%04x", byte);
    }
    room[used++] = '"';
    room[used] = 0;
    return room;
}

static const char *boolean(bool value) {
    return value ? "true" : "false";
}

static const char *number_or_null(uint64_t bytes, char room[24]) {
    if (bytes == RESIDENCY_UNLIMITED) return "null";
    snprintf(room, 24, "%lu", bytes);
    return room;
}

/* The process's memory on each open device, as a JSON list. */
static const char *memory_list(char *text, size_t bytes) {
    int ordinals[DEVICES_MAX];
    const int count = devices_open(ordinals);
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < count && used + MEMORY_ENTRY_BYTES < bytes; i++) {
        const struct residency_numbers numbers = residency_numbers_of(ordinals[i]);
        char budget[24], usable[24];
        used += (size_t)snprintf(
            text + used, bytes - used,
            "%s{\"device\": %d, \"allocated\": %lu, \"resident\": %lu, \"parked\": %lu, "
            "\"fixed\": %lu, \"budget\": %s, \"usable\": %s}",
            i > 0 ? ", " : "", ordinals[i], numbers.bytes_allocated, numbers.bytes_resident,
            numbers.bytes_parked, numbers.bytes_fixed, number_or_null(numbers.budget_bytes, budget),
            number_or_null(residency_usable(ordinals[i]), usable));
    }
    snprintf(text + used, bytes - used, "]");
    return text;
}

size_t agent_describe(char *json, size_t bytes) {
    lock_take(LOCK_DESCRIBE);
    struct description now = published;
    lock_release(LOCK_DESCRIBE);
    uint64_t now_ms = clock_now_ms();
    uint64_t hold_left_ms = now.hold_ends_ms > now_ms ? now.hold_ends_ms - now_ms : 0;
    char holder[800], tenant[400], problem[4000], reason[1000], memory[MEMORY_LIST_BYTES];
    const char *why = residency_why_it_stays();
    int needed = snprintf(
        json, bytes,
        "{\"running\": %s, \"phase\": \"%s\", \"turn\": %lu, \"windowed\": %s, "
        "\"connected\": %s, \"tenant\": %s, \"problem\": %s, \"cell_runs\": %s, "
        "\"waiters\": %u, \"tenants\": %u, \"queue_position\": %u, \"holder\": %s, "
        "\"calls_waiting\": %u, \"calls_cancelled\": %lu, \"contexts_open\": %u, "
        "\"contexts_failed\": %u, \"requests\": %lu, \"grants\": %lu, \"recalls\": %lu, "
        "\"drops\": %lu, \"drain_stalls\": %lu, \"reopenings\": %lu, "
        "\"hold_left_ms\": %lu, \"hold_answers\": %lu, \"memory_follows\": %s, "
        "\"memory_stays_because\": %s, \"memory\": %s, \"host_unpinned\": %lu, "
        "\"host_ready_per_s\": %lu}",
        boolean(bell_is_heard()), turn_phase_name(now.turn.phase), now.turn.turn_id,
        boolean(now.windowed), boolean(now.turn.connected),
        quoted(now.tenant_id, tenant, sizeof(tenant)),
        quoted(now.problem, problem, sizeof(problem)), boolean(now.turn.cell_runs),
        now.turn.waiters, now.turn.tenants, now.queue_position,
        quoted(now.holder, holder, sizeof(holder)), wait_calls_waiting(), wait_calls_cancelled(),
        atomic_load(&contexts_open), atomic_load(&contexts_failed), now.counters.requests,
        now.counters.grants, now.counters.recalls, now.counters.drops, now.counters.stalls,
        now.counters.reopenings, hold_left_ms, now.counters.hold_answers,
        boolean(residency_swaps()), quoted(why ? why : "", reason, sizeof(reason)),
        memory_list(memory, sizeof(memory)), host_arena_unpinned(), host_arena_ready_rate());
    return needed < 0 ? 0 : (size_t)needed + 1;
}
