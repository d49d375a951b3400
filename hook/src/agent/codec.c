#include "agent/codec.h"

#include <stdbool.h>
#include <string.h>

enum field_kind { KIND_U8, KIND_U16, KIND_U32, KIND_U64, KIND_UUID, KIND_STR, KIND_ENUM };

enum { VERSION_BYTES = 2, UUID_BYTES = 16, STR_LENGTH_BYTES = 2, NO_WIDTH = 0 };

/* Bytes of the kinds that are one integer on the wire. */
static const uint8_t integer_bytes[] = {
    [KIND_U8] = 1,          [KIND_U16] = 2,        [KIND_U32] = 4,  [KIND_U64] = 8,
    [KIND_UUID] = NO_WIDTH, [KIND_STR] = NO_WIDTH, [KIND_ENUM] = 1,
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
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (layouts[i].type == type) return &layouts[i];
    }
    return NULL;
}

static void put_integer(uint8_t *to, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_integer(const uint8_t *from, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
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
    for (size_t i = 2; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80) return 0;
    }
    return length;
}

/* Copies characters while they fit into `room` bytes; one '?' for each byte that is in none. */
static size_t copy_characters(uint8_t *to, size_t room, const uint8_t *text, size_t bytes) {
    size_t used = 0, at = 0;
    while (at < bytes) {
        size_t length = character_bytes(text + at, bytes - at);
        size_t needed = length == 0 ? 1 : length;
        if (needed > room - used) break;
        if (length == 0) {
            to[used] = '?';
        } else {
            memcpy(to + used, text + at, length);
        }
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

static uint64_t load_integer(const struct field *field, const void *value) {
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (field->kind) {
        case KIND_U8:
            return *(const uint8_t *)value;
        case KIND_U16:
            memcpy(&u16, value, sizeof u16);
            return u16;
        case KIND_U64:
            memcpy(&u64, value, sizeof u64);
            return u64;
        default: /* KIND_U32 and KIND_ENUM */
            memcpy(&u32, value, sizeof u32);
            return u32;
    }
}

static void store_integer(const struct field *field, void *value, uint64_t integer) {
    uint16_t u16 = (uint16_t)integer;
    uint32_t u32 = (uint32_t)integer;
    switch (field->kind) {
        case KIND_U8:
            *(uint8_t *)value = (uint8_t)integer;
            break;
        case KIND_U16:
            memcpy(value, &u16, sizeof u16);
            break;
        case KIND_U64:
            memcpy(value, &integer, sizeof integer);
            break;
        default: /* KIND_U32 and KIND_ENUM */
            memcpy(value, &u32, sizeof u32);
            break;
    }
}

static bool enum_has(const struct field *field, uint64_t value) {
    return value < 32 && (field->limit >> value & 1) != 0;
}

/* The field at `to`, at most `room` bytes; -1 when it does not fit or cannot be sent. */
static long encode_field(const struct field *field, const void *value, uint8_t *to, size_t room) {
    if (field->kind == KIND_UUID) {
        if (room < UUID_BYTES) return -1;
        memcpy(to, value, UUID_BYTES);
        return UUID_BYTES;
    }
    if (field->kind == KIND_STR) {
        if (room < STR_LENGTH_BYTES + (size_t)field->limit) return -1;
        const char *end = memchr(value, 0, (size_t)field->limit + 1);
        size_t bytes = end == NULL ? field->limit : (size_t)(end - (const char *)value);
        size_t used = copy_characters(to + STR_LENGTH_BYTES, field->limit, value, bytes);
        put_integer(to, used, STR_LENGTH_BYTES);
        return (long)(STR_LENGTH_BYTES + used);
    }
    uint64_t integer = load_integer(field, value);
    size_t bytes = integer_bytes[field->kind];
    if (room < bytes || (field->kind == KIND_ENUM && !enum_has(field, integer))) return -1;
    put_integer(to, integer, bytes);
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
    put_integer(frame, GPUSHARE_PROTOCOL_VERSION, 2);
    put_integer(frame + 2, layout->type, 2);
    put_integer(frame + 4, used - GPUSHARE_HEADER_BYTES, 4);
    return used;
}

/* The field at `from`, of which `bytes` are there; its length, or -1 when it is not one. */
static long decode_field(const struct field *field, void *value, const uint8_t *from,
                         size_t bytes) {
    if (field->kind == KIND_UUID) {
        if (bytes < UUID_BYTES) return -1;
        memcpy(value, from, UUID_BYTES);
        return UUID_BYTES;
    }
    if (field->kind == KIND_STR) {
        if (bytes < STR_LENGTH_BYTES) return -1;
        size_t length = (size_t)get_integer(from, STR_LENGTH_BYTES);
        const uint8_t *text = from + STR_LENGTH_BYTES;
        if (length > field->limit || length > bytes - STR_LENGTH_BYTES) return -1;
        if (!is_text(text, length)) return -1;
        memcpy(value, text, length);
        memset((char *)value + length, 0, field->limit + 1 - length);
        return (long)(STR_LENGTH_BYTES + length);
    }
    size_t width = integer_bytes[field->kind];
    if (bytes < width) return -1;
    uint64_t integer = get_integer(from, width);
    if (field->kind == KIND_ENUM && !enum_has(field, integer)) return -1;
    store_integer(field, value, integer);
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
    if (!fill(decoder, VERSION_BYTES, data, bytes, taken)) return CODEC_NEED_MORE;
    if (get_integer(decoder->frame, VERSION_BYTES) != GPUSHARE_PROTOCOL_VERSION)
        return CODEC_WRONG_VERSION;
    if (!fill(decoder, GPUSHARE_HEADER_BYTES, data, bytes, taken)) return CODEC_NEED_MORE;
    uint64_t body_bytes = get_integer(decoder->frame + 4, 4);
    if (body_bytes > GPUSHARE_BODY_BYTES_MAX) return CODEC_FRAME_TOO_LARGE;
    const struct layout *layout = find_layout((uint32_t)get_integer(decoder->frame + 2, 2));
    if (layout == NULL) return CODEC_UNKNOWN_MESSAGE;
    if (decoder->receiver != MESSAGE_TO_ANYONE && layout->receiver != decoder->receiver)
        return CODEC_UNKNOWN_MESSAGE;
    size_t frame_bytes = GPUSHARE_HEADER_BYTES + (size_t)body_bytes;
    if (!fill(decoder, frame_bytes, data, bytes, taken)) return CODEC_NEED_MORE;
    decoder->bytes = 0;
    const uint8_t *body = decoder->frame + GPUSHARE_HEADER_BYTES;
    return decode_body(layout, body, (size_t)body_bytes, message) ? CODEC_MESSAGE : CODEC_BAD_BODY;
}

enum codec_status codec_decode(struct codec_decoder *decoder, const uint8_t *data, size_t bytes,
                               size_t *taken, struct message *message) {
    *taken = 0;
    if (decoder->fault != CODEC_MESSAGE) return decoder->fault;
    enum codec_status status = decode_frame(decoder, data, bytes, taken, message);
    if (status > CODEC_NEED_MORE) decoder->fault = status;
    return status;
}
