#include "agent/session.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define BACKOFF_MS_MIN 50u
#define BACKOFF_MS_MAX 1000u      /* while a turn is held or waited for */
#define BACKOFF_MS_MAX_IDLE 5000u /* while nothing depends on it */
#define DEADLINE_MS 5000u
#define STOLEN_PAUSE_MS 10u /* until the program has used the numbers that it has closed */

void session_start(struct session *session) {
    memset(session, 0, sizeof(*session));
    link_start(&session->link);
    session->backoff_ms = BACKOFF_MS_MIN;
}

/* Tells the user once what only a person can change. */
static void show_problem(struct session *session) {
    if (strcmp(session->problem, session->problem_shown) == 0) return;
    snprintf(session->problem_shown, sizeof(session->problem_shown), "%s", session->problem);
    log_error("%s", session->problem);
}

static void back_off(struct session *session, uint32_t most_ms) {
    session->backoff_ms = session->backoff_ms * 2 < most_ms ? session->backoff_ms * 2 : most_ms;
}

static void close_down(struct session *session, uint64_t now_ms, uint32_t retry_ms) {
    link_close(&session->link);
    session->stage = SESSION_DOWN;
    session->deadline_ms = 0;
    session->choked = false;
    session->retry_at_ms = now_ms + retry_ms;
}

static void read_process_name(char *name, size_t bytes) {
    char text[64] = "";
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0) close(fd);
    text[got > 0 ? got : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    codec_set_text(name, bytes, text);
}

static void say_hello(struct session *session, uint64_t held_turn_id, bool waiting) {
    struct message message = {.type = MESSAGE_HELLO};
    struct message_hello *hello = &message.hello;
    codec_set_text(hello->token, sizeof(hello->token), options_get()->token);
    hello->pid = (uint32_t)getpid();
    read_process_name(hello->process_name, sizeof(hello->process_name));
    codec_set_text(hello->hook_version, sizeof(hello->hook_version), GPUSHARE_VERSION);
    hello->held_turn_id = held_turn_id;
    hello->waiting = waiting;
    link_send(&session->link, &message);
}

void session_connect(struct session *session, bool hurry, uint64_t held_turn_id, bool waiting,
                     uint64_t now_ms) {
    if (session->stage != SESSION_DOWN) return;
    if (hurry && !session->is_refused && session->retry_at_ms > now_ms + BACKOFF_MS_MAX)
        session->retry_at_ms = now_ms + BACKOFF_MS_MIN;
    if (now_ms < session->retry_at_ms) return;

    if (!link_connect(&session->link, session->problem, sizeof(session->problem))) {
        log_debug("connect: %s", session->problem);
        if (strstr(session->problem, "is served by")) show_problem(session);
        session->retry_at_ms = now_ms + session->backoff_ms;
        back_off(session, hurry ? BACKOFF_MS_MAX : BACKOFF_MS_MAX_IDLE);
        return;
    }
    session->stage = SESSION_GREETING;
    session->deadline_ms = now_ms + DEADLINE_MS;
    say_hello(session, held_turn_id, waiting);
    log_debug("hello: held turn %lu, %s", held_turn_id, waiting ? "a call waits" : "no call waits");
}

/* The connection is of no use any more: why, and whose doing it was. */
static enum session_news lost(struct session *session, enum link_answer answer, uint64_t now_ms) {
    bool was_up = session->stage == SESSION_UP;
    const char *why = answer == LINK_GONE     ? "the scheduler closed the connection"
                      : answer == LINK_STOLEN ? "the program closed the hook's descriptor"
                                              : "the scheduler does not speak the protocol";
    snprintf(session->problem, sizeof(session->problem),
             "%s. See its log, or restart it with `jupyter gpushare scheduler`.", why);
    log_debug("connection lost: %s", why);
    /* A stolen descriptor is nobody's fault: back soon. Else a peer that keeps failing after a
     * Hello is not worth more than a try a second. */
    uint32_t retry_ms = answer == LINK_STOLEN ? STOLEN_PAUSE_MS : session->backoff_ms;
    if (answer != LINK_STOLEN) back_off(session, BACKOFF_MS_MAX);
    close_down(session, now_ms, retry_ms);
    if (!was_up) return SESSION_NO_NEWS;
    /* Where the connection was lost alone, the scheduler lets the turn stand for a moment. */
    return answer == LINK_GONE || answer == LINK_STOLEN ? SESSION_ENDED : SESSION_CLOSED;
}

static enum session_news refused(struct session *session, const struct message_refused *refused,
                                 uint64_t now_ms) {
    snprintf(session->problem, sizeof(session->problem), "%s", refused->message);
    log_debug("refused (%d): %s", (int)refused->code, refused->message);
    session->is_refused = refused->code != REFUSAL_CODE_SHUTTING_DOWN;
    if (session->is_refused) show_problem(session);
    bool was_up = session->stage == SESSION_UP;
    /* The next scheduler waits for us for a moment, and nothing else may wake us meanwhile. */
    close_down(session, now_ms, session->is_refused ? BACKOFF_MS_MAX_IDLE : session->backoff_ms);
    back_off(session, BACKOFF_MS_MAX);
    /* Also before Welcome: who does not let us in gives what we held to others. */
    if (session->is_refused) return SESSION_CLOSED;
    return was_up ? SESSION_ENDED : SESSION_NO_NEWS;
}

/* The first frame is of another version, so the words in it cannot be read: as if refused. */
static enum session_news speaks_otherwise(struct session *session, uint64_t now_ms) {
    snprintf(session->problem, sizeof(session->problem),
             "the GPU scheduler speaks another version of the protocol than this process. Restart "
             "the kernel; if that does not help, install the same jupyter-gpushare for both and "
             "restart the scheduler.");
    session->is_refused = true;
    show_problem(session);
    close_down(session, now_ms, BACKOFF_MS_MAX_IDLE);
    return SESSION_CLOSED;
}

static enum session_news welcomed(struct session *session, const struct message_welcome *welcome) {
    session->stage = SESSION_UP;
    session->is_refused = false;
    session->deadline_ms = 0;
    session->backoff_ms = BACKOFF_MS_MIN;
    session->problem[0] = 0;
    snprintf(session->tenant_id, sizeof(session->tenant_id), "%s", welcome->tenant_id);
    log_debug("welcome: tenant %s, scheduler %s", welcome->tenant_id, welcome->scheduler_version);
    return SESSION_WELCOMED;
}

/* A frame that was begun has to end in time; so has the wait for Welcome. A scheduler that does not
 * read what it is sent is as good as one that does not answer. */
static bool is_late(struct session *session, uint64_t now_ms) {
    if (session->stage == SESSION_UP) {
        bool part = link_has_part(&session->link);
        if (!part) session->deadline_ms = 0;
        if (part && session->deadline_ms == 0) session->deadline_ms = now_ms + DEADLINE_MS;
    }
    if (session->choked) return true;
    return session->deadline_ms != 0 && now_ms >= session->deadline_ms;
}

enum session_news session_next(struct session *session, struct message *message, uint64_t now_ms) {
    while (session->stage != SESSION_DOWN) {
        enum link_answer answer = link_receive(&session->link, message);
        if (answer == LINK_EMPTY) {
            answer = link_flush(&session->link);
            if (answer == LINK_EMPTY && !is_late(session, now_ms)) return SESSION_NO_NEWS;
            return lost(session, answer == LINK_EMPTY ? LINK_BROKEN : answer, now_ms);
        }
        if (answer == LINK_VERSION && session->stage == SESSION_GREETING)
            return speaks_otherwise(session, now_ms);
        if (answer != LINK_MESSAGE) return lost(session, answer, now_ms);
        if (message->type == MESSAGE_REFUSED) return refused(session, &message->refused, now_ms);
        if (session->stage == SESSION_UP) return SESSION_MESSAGE;
        if (message->type == MESSAGE_WELCOME) return welcomed(session, &message->welcome);
        return lost(session, LINK_BROKEN, now_ms);
    }
    return SESSION_NO_NEWS;
}

void session_send(struct session *session, const struct message *message) {
    if (session->stage != SESSION_UP) return;
    if (!link_send(&session->link, message)) session->choked = true;
}

void session_flush(struct session *session) {
    if (session->stage != SESSION_DOWN) link_flush(&session->link);
}

uint64_t session_wake_ms(const struct session *session) {
    if (session->stage == SESSION_DOWN) return session->retry_at_ms;
    return session->deadline_ms ? session->deadline_ms : UINT64_MAX;
}
