#include "agent/codec.h"

#include <stdbool.h>
#include <string.h>

enum field_kind { KIND_U8, KIND_U16, KIND_U32, KIND_U64, KIND_UUID, KIND_STR, KIND_ENUM };

enum { STR_LENGTH_BYTES = 2 };

/* The wire has integers as the machine has them, so that all but texts is copied as it is. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "integers are little-endian");

struct header {
    uint16_t version, type;
    uint32_t body_bytes;
};

/* Bytes on the wire of all but texts. */
static const uint8_t wire_bytes[] = {
    [KIND_U8] = 1,  [KIND_U16] = 2,   [KIND_U32] = 4,
    [KIND_U64] = 8, [KIND_UUID] = 16, [KIND_ENUM] = 1,
};

struct field {
    enum field_kind kind;
    size_t offset;  /* in struct message */
    uint32_t limit; /* a text's most bytes, or the mask of an enumeration's values */
};

#define FIELD(message_, field_, kind_, limit_) \
    {KIND_##kind_, offsetof(struct message, message_.field_), limit_},
static const struct field fields[] = {MESSAGE_FIELDS(FIELD)};
#undef FIELD

struct layout {
    enum message_type type;
    enum message_receiver receiver;
    const struct field *first;
    size_t count;
};

#define MESSAGE(type_, receiver_, first_, count_) \
    {MESSAGE_##type_, MESSAGE_TO_##receiver_, fields + first_, count_},
static const struct layout layouts[] = {MESSAGE_LIST(MESSAGE)};
#undef MESSAGE

/* Enumerations are copied as 32 bits. */
_Static_assert(sizeof(enum refusal_code) == sizeof(uint32_t), "an enum has the size of an int");

static const struct layout *find_layout(uint32_t type) {
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        if (layouts[i].type == type) return &layouts[i];
    return NULL;
}

/* The length of the UTF-8 character at `text`, 0 when there is none: no overlong form, no
 * surrogate, nothing above U+10FFFF. */
static size_t character_bytes(const uint8_t *text, size_t bytes) {
    if (bytes == 0) return 0;
    uint8_t lead = text[0];
    if (lead < 0x80) return 1;
    size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || length > bytes) return 0;
    uint8_t low = 0x80, high = 0xBF; /* what the second byte may be */
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    if (text[1] < low || text[1] > high) return 0;
    for (size_t i = 2; i < length; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    return length;
}

/* Copies characters while they fit into `room` bytes; one '?' for each byte that is in none. */
static size_t copy_characters(uint8_t *to, size_t room, const uint8_t *text, size_t bytes) {
    size_t used = 0, at = 0;
    while (at < bytes) {
        size_t length = character_bytes(text + at, bytes - at);
        size_t needed = length == 0 ? 1 : length;
        if (needed > room - used) break;
        memcpy(to + used, length == 0 ? (const uint8_t *)"?" : text + at, needed);
        used += needed;
        at += needed;
    }
    return used;
}

static bool is_text(const uint8_t *text, size_t bytes) {
    size_t at = 0;
    while (at < bytes) {
        size_t length = character_bytes(text + at, bytes - at);
        if (length == 0 || text[at] == 0) return false;
        at += length;
    }
    return true;
}

void codec_set_text(char *array, size_t array_bytes, const char *text) {
    if (array_bytes == 0) return;
    size_t bytes = text == NULL ? 0 : strlen(text);
    size_t used = copy_characters((uint8_t *)array, array_bytes - 1, (const uint8_t *)text, bytes);
    memset(array + used, 0, array_bytes - used);
}

static bool enum_has(const struct field *field, uint32_t value) {
    return value < 32 && (field->limit >> value & 1) != 0;
}

/* The field at `to`, at most `room` bytes; -1 when it does not fit or cannot be sent. */
static long encode_field(const struct field *field, const void *value, uint8_t *to, size_t room) {
    if (field->kind == KIND_STR) {
        if (room < STR_LENGTH_BYTES + (size_t)field->limit) return -1;
        const char *end = memchr(value, 0, (size_t)field->limit + 1);
        size_t bytes = end == NULL ? field->limit : (size_t)(end - (const char *)value);
        uint16_t used =
            (uint16_t)copy_characters(to + STR_LENGTH_BYTES, field->limit, value, bytes);
        memcpy(to, &used, STR_LENGTH_BYTES);
        return STR_LENGTH_BYTES + used;
    }
    size_t bytes = wire_bytes[field->kind];
    if (room < bytes) return -1;
    if (field->kind == KIND_ENUM && !enum_has(field, *(const uint32_t *)value)) return -1;
    memcpy(to, value, bytes);
    return (long)bytes;
}

size_t codec_encode(const struct message *message, uint8_t *frame, size_t frame_bytes) {
    const struct layout *layout = find_layout(message->type);
    if (layout == NULL || frame_bytes < GPUSHARE_HEADER_BYTES) return 0;
    size_t used = GPUSHARE_HEADER_BYTES;
    for (size_t i = 0; i < layout->count; i++) {
        const struct field *field = layout->first + i;
        const uint8_t *value = (const uint8_t *)message + field->offset;
        long bytes = encode_field(field, value, frame + used, frame_bytes - used);
        if (bytes < 0) return 0;
        used += (size_t)bytes;
    }
    const struct header header = {
        GPUSHARE_PROTOCOL_VERSION,
        (uint16_t)layout->type,
        (uint32_t)(used - GPUSHARE_HEADER_BYTES),
    };
    memcpy(frame, &header, sizeof header);
    return used;
}

/* The field at `from`, of which `bytes` are there; its length, or -1 when it is not one. `value` is
 * all zero. */
static long decode_field(const struct field *field, void *value, const uint8_t *from,
                         size_t bytes) {
    if (field->kind == KIND_STR) {
        uint16_t length;
        if (bytes < STR_LENGTH_BYTES) return -1;
        memcpy(&length, from, STR_LENGTH_BYTES);
        if (length > field->limit || length > bytes - STR_LENGTH_BYTES) return -1;
        if (!is_text(from + STR_LENGTH_BYTES, length)) return -1;
        memcpy(value, from + STR_LENGTH_BYTES, length);
        return STR_LENGTH_BYTES + length;
    }
    size_t width = wire_bytes[field->kind];
    if (bytes < width || (field->kind == KIND_ENUM && !enum_has(field, from[0]))) return -1;
    memcpy(value, from, width);
    return (long)width;
}

static bool decode_body(const struct layout *layout, const uint8_t *body, size_t bytes,
                        struct message *message) {
    memset(message, 0, sizeof *message);
    message->type = layout->type;
    size_t at = 0;
    for (size_t i = 0; i < layout->count; i++) {
        const struct field *field = layout->first + i;
        long used = decode_field(field, (uint8_t *)message + field->offset, body + at, bytes - at);
        if (used < 0) return false;
        at += (size_t)used;
    }
    return at == bytes;
}

void codec_decoder_init(struct codec_decoder *decoder, enum message_receiver receiver) {
    decoder->receiver = receiver;
    decoder->fault = CODEC_MESSAGE;
    decoder->bytes = 0;
}

/* Fills the frame up to `wanted` bytes; false when the data is used up before that. */
static bool fill(struct codec_decoder *decoder, size_t wanted, const uint8_t *data, size_t bytes,
                 size_t *taken) {
    if (decoder->bytes < wanted) {
        size_t missing = wanted - decoder->bytes;
        size_t step = missing < bytes - *taken ? missing : bytes - *taken;
        if (step > 0) memcpy(decoder->frame + decoder->bytes, data + *taken, step);
        decoder->bytes += step;
        *taken += step;
    }
    return decoder->bytes >= wanted;
}

static enum codec_status decode_frame(struct codec_decoder *decoder, const uint8_t *data,
                                      size_t bytes, size_t *taken, struct message *message) {
    struct header header;
    if (!fill(decoder, sizeof header.version, data, bytes, taken)) return CODEC_NEED_MORE;
    memcpy(&header.version, decoder->frame, sizeof header.version);
    if (header.version != GPUSHARE_PROTOCOL_VERSION) return CODEC_WRONG_VERSION;
    if (!fill(decoder, GPUSHARE_HEADER_BYTES, data, bytes, taken)) return CODEC_NEED_MORE;
    memcpy(&header, decoder->frame, sizeof header);
    if (header.body_bytes > GPUSHARE_BODY_BYTES_MAX) return CODEC_FRAME_TOO_LARGE;
    const struct layout *layout = find_layout(header.type);
    if (layout == NULL) return CODEC_UNKNOWN_MESSAGE;
    if (decoder->receiver != MESSAGE_TO_ANYONE && layout->receiver != decoder->receiver)
        return CODEC_UNKNOWN_MESSAGE;
    if (!fill(decoder, GPUSHARE_HEADER_BYTES + header.body_bytes, data, bytes, taken))
        return CODEC_NEED_MORE;
    decoder->bytes = 0;
    const uint8_t *body = decoder->frame + GPUSHARE_HEADER_BYTES;
    return decode_body(layout, body, header.body_bytes, message) ? CODEC_MESSAGE : CODEC_BAD_BODY;
}

enum codec_status codec_decode(struct codec_decoder *decoder, const uint8_t *data, size_t bytes,
                               size_t *taken, struct message *message) {
    *taken = 0;
    if (decoder->fault != CODEC_MESSAGE) return decoder->fault;
    enum codec_status status = decode_frame(decoder, data, bytes, taken, message);
    if (status > CODEC_NEED_MORE) decoder->fault = status;
    return status;
}
