/* What the scheduler says, and what it is to know of this process. */
#include <stdio.h>
#include <string.h>

#include "agent/agent_state.h"
#include "agent/notebook.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/wait.h"
#include "device/devices.h"
#include "gate/window.h"
#include "memory/physical.h"
#include "swap/mover.h"
#include "swap/room.h"

static void on_settings(struct agent *agent, const struct message_settings *settings) {
    struct turn_settings turn = {
        .turns = settings->turns != 0,
        .idle_ms = settings->idle_ms,
        .reconnect_s = settings->reconnect_s,
        .fallback = settings->fallback,
    };
    turn_state_configure(&agent->turn, &turn);
    agent->drain_stall_ms = settings->drain_stall_ms;
    agent->window_ms = settings->window_ms;
    window_configure(settings->window_ms, settings->drain_stall_ms);
    residency_set_mode(settings->memory_mode == MEMORY_MODE_SWAP, settings->reclaim_ms);
    mover_look();
    log_debug("settings: turns %u, idle %u ms, window %u ms, drain stall %u ms, memory %s",
              settings->turns, settings->idle_ms, settings->window_ms, settings->drain_stall_ms,
              residency_swaps() ? "swap" : "off");
    agent_feed_kind(agent, TURN_EVENT_SETTINGS);
}

static void on_granted(struct agent *agent, const struct message_turn_granted *granted) {
    agent->counters.grants++;
    agent->queue_position = 0;
    log_debug("grant: turn %lu, quantum %u ms, %u wait, %s", granted->turn_id, granted->quantum_ms,
              granted->waiters, granted->cause);
    struct turn_event event = {
        .kind = TURN_EVENT_GRANTED,
        .turn_id = granted->turn_id,
        .waiters = granted->waiters,
        .memory_away = agent_memory_is_away(),
        .remakes = physical_whole_wanted(),
    };
    agent_feed(agent, &event);
}

static void on_recalled(struct agent *agent, const struct message_turn_recalled *recalled) {
    agent->counters.recalls++;
    log_debug("recall: turn %lu, %s", recalled->turn_id, recalled->cause);
    struct turn_event event = {.kind = TURN_EVENT_RECALLED, .turn_id = recalled->turn_id};
    agent_feed(agent, &event);
}

static void on_reopened(struct agent *agent, const struct message_gate_reopened *reopened) {
    agent->counters.reopenings++;
    log_debug("reopen: turn %lu, %s", reopened->turn_id, reopened->cause);
    struct turn_event event = {.kind = TURN_EVENT_REOPENED, .turn_id = reopened->turn_id};
    agent_feed(agent, &event);
}

static void on_contention(struct agent *agent, const struct message_contention *contention) {
    log_debug("contention: %u wait, %u tenants", contention->waiters, contention->tenants);
    struct turn_event event = {
        .kind = TURN_EVENT_CONTENTION,
        .waiters = contention->waiters,
        .tenants = contention->tenants,
        .idle_ms = contention->idle_ms,
    };
    agent_feed(agent, &event);
}

static void on_hold_changed(struct agent *agent, const struct message_hold_changed *changed) {
    log_debug("hold: for %u ms", changed->hold_ms);
    agent->counters.hold_answers++;
    agent->hold_ends_ms = changed->hold_ms > 0 ? clock_now_ms() + changed->hold_ms : 0;
    agent_feed_kind(agent, changed->hold_ms > 0 ? TURN_EVENT_HOLD_BEGAN : TURN_EVENT_HOLD_ENDED);
}

static void on_message(struct agent *agent, const struct message *message) {
    switch (message->type) {
        case MESSAGE_SETTINGS:
            on_settings(agent, &message->settings);
            break;
        case MESSAGE_TURN_GRANTED:
            on_granted(agent, &message->turn_granted);
            break;
        case MESSAGE_TURN_RECALLED:
            on_recalled(agent, &message->turn_recalled);
            break;
        case MESSAGE_GATE_REOPENED:
            on_reopened(agent, &message->gate_reopened);
            break;
        case MESSAGE_CONTENTION:
            on_contention(agent, &message->contention);
            break;
        case MESSAGE_HOLD_CHANGED:
            on_hold_changed(agent, &message->hold_changed);
            break;
        case MESSAGE_WAIT_CANCELLED:
            if (wait_interrupt_was_seen())
                log_debug("cancel: by SIGINT before, %s", message->wait_cancelled.cause);
            else
                log_debug("cancel: %u calls, %s", wait_cancel_all(), message->wait_cancelled.cause);
            break;
        case MESSAGE_MEMORY_LIMIT:
            devices_set_limit(message->memory_limit.device, message->memory_limit.cap_bytes,
                              message->memory_limit.others_bytes);
            break;
        case MESSAGE_MEMORY_BUDGET:
            agent_on_budget(agent, &message->memory_budget);
            break;
        case MESSAGE_ROOM_ANSWERED:
            room_answered(message->room_answered.device, message->room_answered.request,
                          message->room_answered.made);
            mover_look();
            break;
        case MESSAGE_ROOM_AWAITED:
            room_awaited(message->room_awaited.device, message->room_awaited.request,
                         message->room_awaited.wait_ms);
            break;
        case MESSAGE_QUEUE_POSITION:
            agent->queue_position = message->queue_position.position;
            snprintf(agent->holder, sizeof(agent->holder), "%s", message->queue_position.holder);
            log_debug("queue: position %u, %s holds the device", agent->queue_position,
                      agent->holder);
            break;
        default:
            break; /* Welcome again, or an answer that nobody waits for */
    }
}

/* A new connection knows nothing of us: devices first, because all else refers to them. */
static void on_welcomed(struct agent *agent) {
    devices_forget_announcements();
    agent->memory_report_at_ms = 0;
    agent_forget_told(agent);
    agent_report_devices(agent);
    if (agent->cell_runs_seen)
        session_send(&agent->session, &(struct message){.type = MESSAGE_CELL_BEGAN});
    agent_tell_needs(agent);
    /* A hold before the request for a turn: it then comes with the grant, before a short cell ends.
     */
    agent_tell_wishes(agent);
    agent_feed_kind(agent, TURN_EVENT_CONNECTED);
}

void agent_tell_wishes(struct agent *agent) {
    if (agent->session.stage != SESSION_UP) return;
    struct message hold = {.type = MESSAGE_HOLD_REQUESTED};
    if (notebook_take_hold(&hold.hold_requested.hold_ms)) session_send(&agent->session, &hold);
    if (notebook_take_release())
        session_send(&agent->session, &(struct message){.type = MESSAGE_TURN_GIVEN_AWAY});
}

void agent_converse(struct agent *agent) {
    bool hurry = agent->turn.phase != TURN_NONE;
    bool waiting = agent->turn.phase == TURN_ASKED;
    session_connect(&agent->session, hurry, agent->turn.turn_id, waiting, clock_now_ms());
    for (;;) {
        struct message message;
        struct turn_event away = {.kind = TURN_EVENT_DISCONNECTED};
        switch (session_next(&agent->session, &message, clock_now_ms())) {
            case SESSION_NO_NEWS:
                return;
            case SESSION_MESSAGE:
                on_message(agent, &message);
                break;
            case SESSION_WELCOMED:
                on_welcomed(agent);
                break;
            case SESSION_CLOSED:
                away.turn_lost = true; /* fall through */
            case SESSION_ENDED:
                agent->hold_ends_ms = 0;
                residency_connection_lost();
                room_connection_lost();
                agent_feed(agent, &away);
                break;
        }
    }
}

static void report(struct agent *agent, enum device_news news, const struct device *device) {
    struct message message = {0};
    switch (news) {
        case DEVICE_NEWS_OPENED:
            message.type = MESSAGE_DEVICE_OPENED;
            memcpy(message.device_opened.device, device->uuid, 16);
            codec_set_text(message.device_opened.name, sizeof(message.device_opened.name),
                           device->name);
            message.device_opened.bytes_total = device->bytes_total;
            break;
        case DEVICE_NEWS_CLOSED:
            agent_forget_told_of(agent, device->ordinal);
            message.type = MESSAGE_DEVICE_CLOSED;
            memcpy(message.device_closed.device, device->uuid, 16);
            break;
        case DEVICE_NEWS_FAILED:
            message.type = MESSAGE_CONTEXT_FAILED;
            memcpy(message.context_failed.device, device->uuid, 16);
            message.context_failed.cu_result = (uint32_t)device->failed_result;
            break;
        default:
            agent_report_memory(agent, false);
            return;
    }
    session_send(&agent->session, &message);
}

void agent_report_devices(struct agent *agent) {
    if (agent->session.stage != SESSION_UP) return;
    struct device device;
    enum device_news news;
    while ((news = devices_next_news(&device)) != DEVICE_NEWS_NONE)
        report(agent, news, &device);
}
