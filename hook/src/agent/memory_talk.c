/* What the scheduler is to know of this process's memory, and what it says about it. */
#include <string.h>

#include "agent/agent_state.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/namespaces.h"
#include "device/contexts.h"
#include "device/devices.h"
#include "memory/chunks.h"
#include "memory/physical.h"
#include "memory/registry.h"
#include "swap/host_arena.h"
#include "swap/mover.h"
#include "swap/readers.h"
#include "swap/room.h"

#define MEMORY_REPORT_PERIOD_MS 100
#define SCARCE_LOOK_PERIOD_MS 1000
/* While memory is moving others give host memory back from one moment to the next. */
#define BUSY_LOOK_PERIOD_MS 20
#define BUSY_MS 2000

static bool is_as_told(const struct agent *agent, int device,
                       const struct residency_numbers *numbers) {
    const struct residency_numbers *told = &agent->told_numbers[device];
    return told->bytes_allocated == numbers->bytes_allocated &&
           told->bytes_parked == numbers->bytes_parked &&
           told->bytes_fixed == numbers->bytes_fixed && told->bytes_kept == numbers->bytes_kept &&
           told->bytes_copied == numbers->bytes_copied &&
           told->bytes_to_copy == numbers->bytes_to_copy && told->serial == numbers->serial;
}

static void report(struct agent *agent, int device, const struct residency_numbers *numbers) {
    struct message message = {.type = MESSAGE_MEMORY_REPORTED};
    struct message_memory_reported *reported = &message.memory_reported;
    if (!devices_uuid_of(device, reported->device)) return;
    reported->bytes_allocated = numbers->bytes_allocated;
    reported->bytes_parked = numbers->bytes_parked;
    reported->bytes_fixed = numbers->bytes_fixed;
    reported->bytes_host_room = agent->host_room_bytes;
    reported->host_limit = host_arena_limit();
    reported->budget_serial = numbers->serial;
    reported->bytes_kept = numbers->bytes_kept;
    reported->bytes_copied = numbers->bytes_copied;
    reported->bytes_to_copy = numbers->bytes_to_copy;
    session_send(&agent->session, &message);
    agent->told_numbers[device] = *numbers;
}

static bool kinds_are_as_told(const struct agent *agent, int device) {
    const struct registry_sums sums = registry_sums_of(device);
    const struct registry_sums *told = &agent->told_kinds[device];
    return memcmp(told->bytes_of, sums.bytes_of, sizeof sums.bytes_of) == 0 &&
           told->bytes_stopped == sums.bytes_stopped;
}

/* Before the report that it belongs to: nothing comes between that and what follows it. */
static void report_kinds(struct agent *agent, int device) {
    struct message message = {.type = MESSAGE_MEMORY_KINDS_REPORTED};
    struct message_memory_kinds_reported *kinds = &message.memory_kinds_reported;
    const struct registry_sums sums = registry_sums_of(device);
    if (kinds_are_as_told(agent, device) || !devices_uuid_of(device, kinds->device)) return;
    kinds->bytes_plain = sums.bytes_of[KIND_PLAIN];
    kinds->bytes_mapped = sums.bytes_of[KIND_MAPPED];
    kinds->bytes_pooled = sums.bytes_of[KIND_POOLED];
    kinds->bytes_prefetched = sums.bytes_of[KIND_PREFETCHED];
    kinds->bytes_stopped = sums.bytes_stopped;
    kinds->bytes_driver_pools = sums.bytes_of[KIND_DRIVER_POOLS];
    kinds->bytes_graphs = sums.bytes_of[KIND_GRAPHS];
    kinds->bytes_managed = sums.bytes_of[KIND_MANAGED];
    kinds->bytes_arrays = sums.bytes_of[KIND_ARRAYS];
    kinds->bytes_other = sums.bytes_of[KIND_OTHER];
    session_send(&agent->session, &message);
    agent->told_kinds[device] = sums;
}

static bool differs_noticeably(uint64_t rate, uint64_t told_rate) {
    const uint64_t most = rate > told_rate ? rate : told_rate;
    const uint64_t least = rate > told_rate ? told_rate : rate;
    return (most - least) * 4 > most;
}

/* It decides nothing, and is shown. */
static void report_host(struct agent *agent) {
    struct message message = {.type = MESSAGE_HOST_MEMORY_REPORTED};
    struct message_host_memory_reported *host = &message.host_memory_reported;
    host->bytes_unpinned = host_arena_unpinned();
    host->bytes_ready_per_s = host_arena_ready_rate();
    if (host->bytes_unpinned == agent->told_unpinned_bytes &&
        !differs_noticeably(host->bytes_ready_per_s, agent->told_ready_rate))
        return;
    session_send(&agent->session, &message);
    agent->told_unpinned_bytes = host->bytes_unpinned;
    agent->told_ready_rate = host->bytes_ready_per_s;
}

/* Finding out takes long enough to be left out where a turn is given back: there it is only said
 * again what was said before. */
static void look_at_host_room(struct agent *agent) {
    agent->host_room_bytes = residency_swaps() && mover_can_run() ? host_arena_room() : 0;
}

/* Not all that could be parked would find room. */
static bool host_is_scarce(const struct agent *agent) {
    uint64_t movable_bytes = 0;
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++) {
        const struct residency_numbers *told = &agent->told_numbers[device];
        movable_bytes += told->bytes_resident - told->bytes_fixed;
    }
    return residency_swaps() && agent->host_room_bytes < movable_bytes;
}

static void host_is_busy(struct agent *agent) {
    agent->host_busy_until_ms = clock_now_ms() + BUSY_MS;
}

static uint64_t next_host_look_ms(const struct agent *agent) {
    const uint64_t now_ms = clock_now_ms();
    const bool is_busy = now_ms < agent->host_busy_until_ms;
    return now_ms + (is_busy ? BUSY_LOOK_PERIOD_MS : SCARCE_LOOK_PERIOD_MS);
}

void agent_report_memory(struct agent *agent, bool all) {
    if (agent->session.stage != SESSION_UP) return;
    bool has_looked = false;
    int ordinals[DEVICES_MAX];
    const int count = devices_open(ordinals);
    for (int i = 0; i < count; i++) {
        if (ordinals[i] >= REGISTRY_DEVICES_MAX || !devices_is_announced(ordinals[i])) continue;
        const struct residency_numbers numbers = residency_numbers_of(ordinals[i]);
        const bool as_told = is_as_told(agent, ordinals[i], &numbers);
        const bool is_news = !as_told || !kinds_are_as_told(agent, ordinals[i]);
        if (!is_news && (!all || numbers.bytes_allocated == 0)) continue;
        if (!as_told && !has_looked) look_at_host_room(agent);
        has_looked = has_looked || !as_told;
        report_host(agent);
        report_kinds(agent, ordinals[i]);
        report(agent, ordinals[i], &numbers);
        agent->memory_report_at_ms = clock_now_ms() + MEMORY_REPORT_PERIOD_MS;
    }
    agent->host_look_at_ms = host_is_scarce(agent) ? next_host_look_ms(agent) : 0;
}

/* Host memory that others have given back makes a victim of this process again, if it says so. */
void agent_look_at_scarce_host(struct agent *agent) {
    const uint64_t told_bytes = agent->host_room_bytes;
    look_at_host_room(agent);
    if (agent->host_room_bytes > told_bytes) {
        host_is_busy(agent);
        agent_report_memory(agent, true);
    } else {
        agent->host_look_at_ms = next_host_look_ms(agent);
    }
}

/* It was not to be had, although it was told. */
void agent_look_at_short_host(struct agent *agent) {
    const uint64_t told_bytes = agent->host_room_bytes;
    look_at_host_room(agent);
    if (agent->host_room_bytes < told_bytes) agent_report_memory(agent, true);
}

static void tell_need(struct agent *agent, int device) {
    const struct residency_need need = residency_need_of(device);
    const struct residency_numbers numbers = residency_numbers_of(device);
    struct told_need *told = &agent->told_needs[device];
    if (need.number == told->number &&
        (need.number == 0 || told->bytes_resident == numbers.bytes_resident))
        return;
    struct message message = {.type = MESSAGE_MEMORY_NEEDED};
    struct message_memory_needed *needed = &message.memory_needed;
    if (!devices_is_announced(device) || !devices_uuid_of(device, needed->device)) return;
    /* The need is counted from what is there now, so that is said first. */
    if (!is_as_told(agent, device, &numbers)) report(agent, device, &numbers);
    needed->bytes = need.bytes;
    needed->need = need.number;
    codec_set_text(needed->cause, sizeof(needed->cause), need.bytes ? need.call_name : "");
    session_send(&agent->session, &message);
    told->number = need.number;
    told->bytes_resident = numbers.bytes_resident;
    log_debug("need: %lu bytes on device %d, %s", need.bytes, device, needed->cause);
}

void agent_tell_needs(struct agent *agent) {
    if (agent->session.stage != SESSION_UP) return;
    int device;
    int ordinals[DEVICES_MAX];
    const int count = devices_open(ordinals);
    for (int i = 0; i < count; i++)
        if (ordinals[i] < REGISTRY_DEVICES_MAX) tell_need(agent, ordinals[i]);
    struct message message = {.type = MESSAGE_ROOM_REQUESTED};
    struct message_room_requested *room = &message.room_requested;
    const char *call_name;
    while (room_next(&device, &room->bytes, &room->request, &call_name)) {
        if (!devices_uuid_of(device, room->device)) continue;
        codec_set_text(room->cause, sizeof(room->cause), call_name);
        session_send(&agent->session, &message);
        log_debug("room: %lu bytes on device %d wanted for %s", room->bytes, device, call_name);
    }
}

/* A budget is what makes memory leave. */
static void look_for_hidden_use(void) {
    if (residency_why_it_stays() != NULL) return;
    const char *readers = readers_loaded();
    if (readers != NULL) residency_stop_parking(readers);
    if (readers_use_rdma() && physical_fix_for_rdma())
        log_info(
            "GPU memory that was made for RDMA stays on the device, because this process has "
            "loaded libibverbs.");
    if (namespaces_have_driver())
        residency_stop_parking(
            "This process has loaded the CUDA driver by dlmopen, where GPU sharing does not see "
            "its use. Load it by dlopen.");
}

void agent_on_budget(struct agent *agent, const struct message_memory_budget *budget) {
    look_for_hidden_use();
    log_debug("budget: serial %u, %lu bytes, usable %lu, hint %lu, ahead %s%s", budget->serial,
              budget->budget_bytes, budget->usable_bytes, budget->park_hint_bytes,
              AHEAD_NAMES[budget->ahead], budget->refused_need ? ", refused" : "");
    const struct residency_budget told = {
        .serial = budget->serial,
        .budget_bytes = budget->budget_bytes,
        .usable_bytes = budget->usable_bytes,
        .park_hint_bytes = budget->park_hint_bytes,
        .ahead = budget->ahead,
        .refused_need = budget->refused_need,
    };
    residency_set_budget(budget->device, &told);
    host_is_busy(agent);
    agent_report_memory(agent, false);
    agent_tell_needs(agent);
    mover_look();
}

/* ---- memory of contexts that have a sticky error ---- */

#define FAILED_CONTEXTS_MAX 16

/* The failed context's device, where it has no other. */
static int device_without_context(const void *failed) {
    const struct context context = contexts_copy(failed);
    const bool has_another = context.generation == 0 || contexts_of_device(context.ordinal) != NULL;
    return has_another ? -1 : context.ordinal;
}

/* Nothing can be copied out of a context with a sticky error, so what it has is fixed. */
void agent_fix_failed_memory(void) {
    void *contexts[FAILED_CONTEXTS_MAX];
    const uint32_t count = contexts_list(true, contexts, FAILED_CONTEXTS_MAX);
    for (uint32_t i = 0; i < count; i++)
        chunks_fix_context(contexts[i], device_without_context(contexts[i]));
}

void agent_forget_told_of(struct agent *agent, int device) {
    if (device < 0 || device >= REGISTRY_DEVICES_MAX) return;
    agent->told_numbers[device] = (struct residency_numbers){0};
    agent->told_kinds[device] = (struct registry_sums){0};
    agent->told_needs[device] = (struct told_need){0};
}

void agent_forget_told(struct agent *agent) {
    for (int device = 0; device < REGISTRY_DEVICES_MAX; device++)
        agent_forget_told_of(agent, device);
    agent->told_unpinned_bytes = agent->told_ready_rate = 0;
    room_ask_again();
}
