/* Messages to bytes and back. PURE: no socket, no allocation, no clock. The twin of
 * jupyter_gpushare/protocol/codec.py; both are held to the same golden bytes.
 *
 * Sending never makes a frame that a receiver would refuse. Receiving is strict and bounded, and
 * the first fault ends the stream: the decoder then answers with that fault for ever. */
#pragma once

#include <stddef.h>

#include "agent/messages.h"

enum codec_status {
    CODEC_MESSAGE = 0,         /* a whole message is there */
    CODEC_NEED_MORE = 1,       /* all bytes are taken, the frame is not complete */
    CODEC_WRONG_VERSION = 2,   /* the peer speaks another version of the protocol */
    CODEC_FRAME_TOO_LARGE = 3, /* the peer announces a body that no message has */
    CODEC_UNKNOWN_MESSAGE = 4, /* a type that does not exist or is not for this side */
    CODEC_BAD_BODY = 5,        /* the body is not what the message's fields say */
};

/* At most one incomplete frame is kept. Treat the members as private. */
struct codec_decoder {
    enum message_receiver receiver;
    enum codec_status fault; /* CODEC_MESSAGE while there is none */
    size_t bytes;            /* how much of `frame` is filled */
    uint8_t frame[GPUSHARE_FRAME_BYTES_MAX];
};

/* Writes the message as one frame and returns its length. Returns 0, and the frame is worthless,
 * when the room is too small (GPUSHARE_FRAME_BYTES_MAX always suffices), the type does not exist,
 * or an enumeration has a value that the schema lacks. */
size_t codec_encode(const struct message *message, uint8_t *frame, size_t frame_bytes);

/* Copies a text into a message's array of `array_bytes`: '?' for what is not UTF-8, cut at the end
 * of a character, zero-terminated. `text` may be NULL, which is the empty text. */
void codec_set_text(char *array, size_t array_bytes, const char *text);

/* `receiver` is this side; messages for the other side are then unknown. MESSAGE_TO_ANYONE takes
 * all. */
void codec_decoder_init(struct codec_decoder *decoder, enum message_receiver receiver);

/* Takes bytes until one message is whole, and says in `*taken` how many. Call it again with the
 * rest while it answers CODEC_MESSAGE. `*message` is written only with that answer. */
enum codec_status codec_decode(struct codec_decoder *decoder, const uint8_t *data, size_t bytes,
                               size_t *taken, struct message *message);
