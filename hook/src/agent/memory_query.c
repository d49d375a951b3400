#include "agent/memory_query.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "agent/session.h"
#include "base/clock.h"
#include "base/options.h"
#include "device/devices.h"

#define PATIENCE_MS 1000u

static bool ask(struct session *session, const uint8_t device_uuid[16],
                struct memory_answer *answer) {
    uint64_t now_ms = clock_now_ms();
    uint64_t until_ms = now_ms + PATIENCE_MS;
    session_connect(session, true, 0, false, now_ms);
    while (session->stage != SESSION_DOWN && now_ms < until_ms) {
        struct message message;
        enum session_news news = session_next(session, &message, now_ms);
        if (news == SESSION_WELCOMED) {
            message.type = MESSAGE_MEMORY_QUERIED;
            memcpy(message.memory_queried.device, device_uuid, 16);
            session_send(session, &message);
        } else if (news == SESSION_MESSAGE && message.type == MESSAGE_SETTINGS) {
            answer->follows_turn = message.settings.memory_mode == MEMORY_MODE_SWAP;
        } else if (news == SESSION_MESSAGE && message.type == MESSAGE_MEMORY_ANSWERED) {
            answer->bytes_total = message.memory_answered.bytes_total;
            answer->bytes_used = message.memory_answered.bytes_used;
            return true;
        } else if (news == SESSION_NO_NEWS && session->stage != SESSION_DOWN) {
            struct pollfd descriptor = {.fd = session->link.socket.fd, .events = POLLIN};
            poll(&descriptor, 1, (int)(until_ms - now_ms));
        }
        now_ms = clock_now_ms();
    }
    return false;
}

bool memory_query(const uint8_t device_uuid[16], struct memory_answer *answer) {
    if (!options_take_part()) return false;
    struct session *session = malloc(sizeof(*session)); /* too large for a small stack */
    if (session == NULL) return false;
    session_start(session);
    bool known = ask(session, device_uuid, answer);
    link_close(&session->link);
    free(session);
    return known;
}

void memory_query_limit(int ordinal) {
    uint8_t uuid[16];
    struct memory_answer answer = {0};
    if (ordinal < 0 || !options_take_part() || !devices_limit_unknown(ordinal, uuid)) return;
    if (memory_query(uuid, &answer))
        devices_limit_answered(ordinal, answer.bytes_total, answer.bytes_used);
}
