/* Lets a test talk to the C codec: a program that reads requests from its standard input and
 * answers on its standard output until the input ends. It is built with sanitizers, and every
 * piece of input lies in an allocation of its own exact size, so that reading past it is seen.
 *
 * A request is: u8 kind, u32 number, u32 length, bytes.
 *   'D' decode the bytes in pieces of `number` bytes (0: in one piece); the answer holds every
 *       message encoded again, one frame after the other
 *   'T' set the bytes as a text of an array of `number` bytes; the answer is the text
 * An answer is: u8 status, u32 length, bytes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/codec.h"

struct answer {
    uint8_t *bytes;
    size_t length, room;
};

static void append(struct answer *answer, const uint8_t *bytes, size_t length) {
    if (answer->length + length > answer->room) {
        answer->room = 2 * (answer->length + length);
        answer->bytes = realloc(answer->bytes, answer->room);
        if (answer->bytes == NULL) abort();
    }
    memcpy(answer->bytes + answer->length, bytes, length);
    answer->length += length;
}

static enum codec_status decode_piece(struct codec_decoder *decoder, const uint8_t *piece,
                                      size_t length, struct answer *answer) {
    size_t at = 0;
    for (;;) {
        size_t taken = 0;
        struct message message;
        enum codec_status status = codec_decode(decoder, piece + at, length - at, &taken, &message);
        at += taken;
        if (status != CODEC_MESSAGE) return status;
        uint8_t *frame = malloc(GPUSHARE_FRAME_BYTES_MAX);
        if (frame == NULL) abort();
        size_t bytes = codec_encode(&message, frame, GPUSHARE_FRAME_BYTES_MAX);
        if (bytes == 0) abort(); /* what was decoded can always be sent */
        append(answer, frame, bytes);
        free(frame);
    }
}

static uint8_t decode_all(const uint8_t *bytes, size_t length, size_t step, struct answer *answer) {
    struct codec_decoder *decoder = malloc(sizeof *decoder);
    if (decoder == NULL) abort();
    codec_decoder_init(decoder, MESSAGE_TO_ANYONE);
    enum codec_status status = CODEC_NEED_MORE;
    for (size_t at = 0; at < length && status == CODEC_NEED_MORE;) {
        size_t piece_bytes = step == 0 || step > length - at ? length - at : step;
        uint8_t *piece = malloc(piece_bytes);
        if (piece == NULL) abort();
        memcpy(piece, bytes + at, piece_bytes);
        status = decode_piece(decoder, piece, piece_bytes, answer);
        free(piece);
        at += piece_bytes;
    }
    free(decoder);
    return (uint8_t)status;
}

static void set_text(const uint8_t *bytes, size_t length, size_t array_bytes,
                     struct answer *answer) {
    char *text = malloc(length + 1);
    char *array = malloc(array_bytes);
    if (text == NULL || array == NULL) abort();
    memcpy(text, bytes, length);
    text[length] = '\0';
    codec_set_text(array, array_bytes, text);
    append(answer, (const uint8_t *)array, strlen(array));
    free(array);
    free(text);
}

static int read_exactly(void *to, size_t length) {
    return fread(to, 1, length, stdin) == length;
}

int main(void) {
    uint8_t kind;
    while (read_exactly(&kind, 1)) {
        uint32_t number, length;
        if (!read_exactly(&number, 4) || !read_exactly(&length, 4)) return 1;
        uint8_t *bytes = malloc(length == 0 ? 1 : length);
        if (bytes == NULL || !read_exactly(bytes, length)) return 1;
        struct answer answer = {malloc(64), 0, 64};
        uint8_t status = 0;
        if (kind == 'D') {
            status = decode_all(bytes, length, number, &answer);
        } else {
            set_text(bytes, length, number, &answer);
        }
        uint32_t answer_bytes = (uint32_t)answer.length;
        fwrite(&status, 1, 1, stdout);
        fwrite(&answer_bytes, 1, 4, stdout);
        fwrite(answer.bytes, 1, answer.length, stdout);
        fflush(stdout);
        free(answer.bytes);
        free(bytes);
    }
    return 0;
}
