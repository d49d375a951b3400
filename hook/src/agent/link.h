/* The connection to the scheduler: a unix stream socket that is never written to unless it is
 * still ours and belongs to whom we trust. Bounded buffers, never blocks. For one thread. */
#pragma once

#include "agent/codec.h"
#include "base/descriptor.h"

#define LINK_UNSENT_BYTES_MAX (64 * 1024)

enum link_answer {
    LINK_MESSAGE, /* one message was received */
    LINK_EMPTY,   /* nothing now */
    LINK_GONE,    /* the peer closed the connection */
    LINK_BROKEN,  /* the peer does not speak the protocol, or does not read */
    LINK_VERSION, /* the peer speaks another version of the protocol */
    LINK_STOLEN,  /* the program closed our descriptor, and perhaps uses its number */
};

struct link {
    struct descriptor socket;
    struct codec_decoder decoder;
    uint8_t received[4096];
    size_t received_bytes, received_taken;
    uint8_t unsent[LINK_UNSENT_BYTES_MAX];
    size_t unsent_bytes;
};

void link_start(struct link *link);

/* Connects to the scheduler and checks that it runs as root, as ourselves or as the service account
 * of the options. On failure says what is wrong and what to do in `problem`. */
bool link_connect(struct link *link, char *problem, size_t problem_bytes);

/* Queues a message and sends what goes without waiting. False when too much is unsent. */
bool link_send(struct link *link, const struct message *message);
/* Sends what is queued: LINK_EMPTY when all is well. */
enum link_answer link_flush(struct link *link);

enum link_answer link_receive(struct link *link, struct message *message);

/* A frame has begun and is not complete. */
bool link_has_part(const struct link *link);

/* Closes the socket, unless its number is somebody else's by now. */
void link_close(struct link *link);
