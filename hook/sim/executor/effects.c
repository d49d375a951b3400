#define _GNU_SOURCE
#include "executor/effects.h"

#include <string.h>

#include "memory/memory.h"

#define PATTERN_BYTES 4096u

static uint64_t row_address(uint64_t base, uint64_t pitch, uint64_t slice, uint64_t height,
                            uint64_t row) {
    return base + row % height * pitch + row / height * slice;
}

static bool move_part(const struct op_copy *copy, uint64_t to, uint64_t from, uint64_t bytes) {
    if (!copy->source_on_device && !copy->destination_on_device) {
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
        return true;
    }
    if (!copy->source_on_device)
        return memory_write(NULL, to, (const void *)(uintptr_t)from, bytes);
    if (!copy->destination_on_device) return memory_read(NULL, from, (void *)(uintptr_t)to, bytes);
    unsigned char buffer[32768];
    bool backwards = to > from && to < from + bytes; /* overlapping rows keep their contents */
    for (uint64_t done = 0; done < bytes;) {
        uint64_t part = bytes - done < sizeof buffer ? bytes - done : sizeof buffer;
        uint64_t at = backwards ? bytes - done - part : done;
        if (!memory_read(NULL, from + at, buffer, part)) return false;
        if (!memory_write(NULL, to + at, buffer, part)) return false;
        done += part;
    }
    return true;
}

static bool look_at_part(const struct op_copy *copy, uint64_t to, uint64_t from, uint64_t bytes) {
    if (copy->source_on_device && !memory_is_there(from, bytes)) return false;
    return !copy->destination_on_device || memory_is_there(to, bytes);
}

typedef bool part_function(const struct op_copy *, uint64_t to, uint64_t from, uint64_t bytes);

static bool for_each_part(const struct op_copy *copy, uint64_t done, uint64_t bytes,
                          part_function *act) {
    while (bytes > 0) {
        uint64_t row = done / copy->width_bytes;
        uint64_t column = done % copy->width_bytes;
        uint64_t part = copy->width_bytes - column < bytes ? copy->width_bytes - column : bytes;
        uint64_t to = row_address(copy->destination, copy->destination_pitch,
                                  copy->destination_slice, copy->height, row) +
                      column;
        uint64_t from =
            row_address(copy->source, copy->source_pitch, copy->source_slice, copy->height, row) +
            column;
        if (!act(copy, to, from, part)) return false;
        done += part;
        bytes -= part;
    }
    return true;
}

bool effects_copy(const struct op_copy *copy, uint64_t done, uint64_t bytes) {
    return for_each_part(copy, done, bytes, move_part);
}

bool effects_copy_is_reachable(const struct op_copy *copy, uint64_t done, uint64_t bytes) {
    return for_each_part(copy, done, bytes, look_at_part);
}

bool effects_memset(const struct context *context, const struct op_memset *fill) {
    unsigned char pattern[PATTERN_BYTES];
    for (uint32_t i = 0; i < PATTERN_BYTES; i += fill->element_bytes)
        memcpy(pattern + i, &fill->value, fill->element_bytes);
    for (uint64_t row = 0; row < fill->height; row++) {
        uint64_t address = fill->destination + row * fill->pitch;
        uint64_t left = fill->width * fill->element_bytes;
        while (left > 0) {
            uint64_t part = left < PATTERN_BYTES ? left : PATTERN_BYTES;
            if (!memory_write(context, address, pattern, part)) return false;
            address += part;
            left -= part;
        }
    }
    return true;
}

bool effects_value_is_there(const struct context *context, const struct op_value *value,
                            bool *reachable) {
    uint64_t now = 0;
    *reachable = memory_read(context, value->address, &now, value->bytes);
    if (!*reachable) return false;
    uint64_t mask = value->bytes == 4 ? 0xffffffffu : UINT64_MAX;
    switch (value->flags & 3u) {
        case CU_STREAM_WAIT_VALUE_GEQ:
            return value->bytes == 4 ? (int32_t)(now - value->value) >= 0
                                     : (int64_t)(now - value->value) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ:
            return now == (value->value & mask);
        case CU_STREAM_WAIT_VALUE_AND:
            return (now & value->value) != 0;
        default:
            return (~(now | value->value) & mask) != 0;
    }
}
