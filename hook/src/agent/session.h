/* Getting to and staying in touch with a scheduler: connecting with patience, Hello and Welcome,
 * deadlines, and what a lost connection means. Decides nothing about turns. For the agent. */
#pragma once

#include "agent/link.h"

#define GPUSHARE_VERSION "0.1.0" /* the package's; tests/cli/test_checkup.py compares them */

enum session_stage {
    SESSION_DOWN,     /* not connected; tries again at retry_at_ms */
    SESSION_GREETING, /* Hello is sent, Welcome is not here */
    SESSION_UP,
};

enum session_news {
    SESSION_NO_NEWS,
    SESSION_MESSAGE,  /* one for the caller */
    SESSION_WELCOMED, /* everything has to be told (again) */
    SESSION_ENDED,    /* the scheduler went away, or the program closed our descriptor */
    SESSION_CLOSED,   /* we, or a scheduler that refuses us, closed: it has freed our turn */
};

struct session {
    struct link link;
    enum session_stage stage;
    uint64_t retry_at_ms;
    uint32_t backoff_ms;
    uint64_t deadline_ms; /* for Welcome, or for the rest of a frame; 0: none */
    bool is_refused;      /* trying again is no use before a person has done something */
    bool choked;          /* the scheduler does not read: too much is unsent */
    char tenant_id[65];
    char problem[640];       /* why there is no connection; "" when there is one */
    char problem_shown[640]; /* what the user was told last */
};

void session_start(struct session *session);

/* Connects when it is time; `hurry` when a turn is held or waited for. */
void session_connect(struct session *session, bool hurry, uint64_t held_turn_id, bool waiting,
                     uint64_t now_ms);

/* The next thing that came over the connection; call it until SESSION_NO_NEWS. */
enum session_news session_next(struct session *session, struct message *message, uint64_t now_ms);

/* Queues a message; nothing is sent while there is no welcome. */
void session_send(struct session *session, const struct message *message);
/* Sends what is queued. What goes wrong shows at the next session_next. */
void session_flush(struct session *session);

/* When to look again without anything having come; UINT64_MAX for never. */
uint64_t session_wake_ms(const struct session *session);
