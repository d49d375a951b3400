#define _GNU_SOURCE
#include "memory/region.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "memory/address.h"
#include "memory/memory.h"

static struct region *open_at(uint64_t bytes, int fd, uint64_t file_offset) {
    const uint64_t whole_bytes = region_whole_segments(bytes);
    const uint64_t segments = whole_bytes / REGION_SEGMENT_BYTES;
    struct region *region = calloc(1, sizeof *region + segments * sizeof region->segments[0]);
    if (region == NULL) return NULL;
    region->bytes = whole_bytes;
    region->fd = fd;
    region->file_offset = file_offset;
    region->start = address_take(region->bytes, REGION_SEGMENT_BYTES, 0);
    if (region->start != 0)
        region->storage = fd < 0 ? memory_storage_reserve(region->bytes)
                                 : memory_storage_of_file(fd, file_offset, region->bytes);
    if (region->storage != NULL) return region;
    if (region->start != 0) address_give(region->start);
    free(region);
    return NULL;
}

struct region *region_open(uint64_t bytes, int fd, uint64_t file_offset) {
    return open_at(bytes, fd, file_offset);
}

struct region *region_of_others(uint64_t bytes, int fd, uint64_t file_offset) {
    const uint64_t before = file_offset % REGION_SEGMENT_BYTES;
    struct region *region = open_at(before + bytes, fd, file_offset - before);
    if (region != NULL) region_note_charged(region, region->start, region->bytes);
    return region;
}

void region_close(struct region *region) {
    while (region->blocks != NULL)
        region_forget(region->blocks);
    munmap(region->storage, region->bytes);
    address_give(region->start);
    free(region);
}

unsigned char *region_bytes_at(const struct region *region, uint64_t address) {
    return region->storage + (address - region->start);
}

/* Large storage gives its memory back, and reads as zero. */
void region_wipe(const struct region *region, uint64_t address, uint64_t bytes) {
    const uint64_t offset = address - region->start;
    if (region->fd >= 0 && bytes > REGION_SEGMENT_BYTES)
        memory_storage_punch(region->fd, region->file_offset + offset, bytes);
    else
        memory_storage_wipe(region->storage + offset, bytes);
}

static uint64_t segment_of(const struct region *region, uint64_t address) {
    return (address - region->start) / REGION_SEGMENT_BYTES;
}

static uint64_t segment_count(const struct region *region) {
    return region->bytes / REGION_SEGMENT_BYTES;
}

/* The same search within an interval that has no block in its way. */
static uint64_t find_within(const struct region *region, uint64_t from, uint64_t to, uint64_t bytes,
                            bool only_charged) {
    uint64_t at = from;
    while (at < to && bytes <= to - at) {
        uint64_t reached = at;
        while (only_charged && reached < at + bytes &&
               region->segments[segment_of(region, reached)].id != 0)
            reached = region->start + (segment_of(region, reached) + 1) * REGION_SEGMENT_BYTES;
        if (!only_charged || reached >= at + bytes) return at;
        at = region->start + (segment_of(region, reached) + 1) * REGION_SEGMENT_BYTES;
    }
    return 0;
}

static struct block *first_behind(const struct region *region, const struct block *before) {
    return before != NULL ? before->next : region->blocks;
}

static uint64_t end_of(const struct region *region, const struct block *before) {
    return before != NULL ? block_end(before) : region->start;
}

/* What is full of live blocks need not be searched each time. */
static void note_packed(struct region *region) {
    struct block *block = first_behind(region, region->packed);
    while (block != NULL && block->state == BLOCK_LIVE &&
           block->start == end_of(region, region->packed)) {
        region->packed = block;
        block = block->next;
    }
}

bool region_find(struct region *region, uint64_t bytes, bool only_charged,
                 bool (*usable)(const struct block *block, const void *argument),
                 const void *argument, struct block_place *place) {
    note_packed(region);
    struct block *before = region->packed;
    uint64_t start = 0;
    for (struct block *block = first_behind(region, before); block != NULL && start == 0;
         block = block->next) {
        if (usable(block, argument)) continue;
        start = find_within(region, end_of(region, before), block->start, bytes, only_charged);
        if (start == 0) before = block;
    }
    if (start == 0)
        start =
            find_within(region, end_of(region, before), region_end(region), bytes, only_charged);
    *place = (struct block_place){region, before, start};
    return start != 0;
}

/* The last block below a place; NULL: none. */
static struct block *last_below(const struct block_place *place) {
    struct block *below = place->before;
    struct block *block = first_behind(place->region, below);
    while (block != NULL && block_end(block) <= place->start) {
        below = block;
        block = block->next;
    }
    return below;
}

struct block *region_block_at(const struct block_place *place) {
    return first_behind(place->region, last_below(place));
}

/* A block comes to all segments into which it reaches (1), or leaves them (-1). */
static void count(const struct block *block, int more) {
    struct region *region = block->region;
    const uint64_t last = segment_of(region, block_end(block) - 1);
    for (uint64_t i = segment_of(region, block->start); i <= last; i++) {
        struct segment *segment = &region->segments[i];
        if (block->state == BLOCK_DONE)
            segment->done += (uint32_t)more;
        else
            segment->used += (uint32_t)more;
    }
}

/* Adds a block to its state's list, behind `older` (NULL: as the oldest one). */
static void list(struct block *block, struct block *older) {
    struct block_list *blocks = &block->region->of_state[block->state];
    block->older = older;
    block->newer = older != NULL ? older->newer : blocks->oldest;
    *(block->newer != NULL ? &block->newer->older : &blocks->newest) = block;
    *(older != NULL ? &older->newer : &blocks->oldest) = block;
    count(block, 1);
}

static void unlist(struct block *block) {
    struct block_list *blocks = &block->region->of_state[block->state];
    *(block->newer != NULL ? &block->newer->older : &blocks->newest) = block->older;
    *(block->older != NULL ? &block->older->newer : &blocks->oldest) = block->newer;
    count(block, -1);
}

static void link_behind(struct region *region, struct block *previous, struct block *block) {
    block->region = region;
    block->previous = previous;
    block->next = first_behind(region, previous);
    *(previous != NULL ? &previous->next : &region->blocks) = block;
    if (block->next != NULL) block->next->previous = block;
}

/* It is not live any more: what is packed ends before it. */
static void unpack(struct block *block) {
    struct region *region = block->region;
    if (region->packed != NULL && block->start <= region->packed->start)
        region->packed = block->previous;
}

void region_set_state(struct block *block, enum block_state state) {
    if (block->state == BLOCK_LIVE) unpack(block);
    unlist(block);
    block->state = state;
    list(block, block->region->of_state[state].newest);
}

void region_forget(struct block *block) {
    struct region *region = block->region;
    if (block->state == BLOCK_LIVE) unpack(block);
    unlist(block);
    *(block->previous != NULL ? &block->previous->next : &region->blocks) = block->next;
    if (block->next != NULL) block->next->previous = block->previous;
    free(block);
}

/* It has this interval of its bytes from now on. */
static void cut(struct block *block, uint64_t start, uint64_t end) {
    const uint64_t before = start - block->start;
    count(block, -1);
    block->bytes_asked = block->bytes_asked > before ? block->bytes_asked - before : 0;
    block->start = start;
    block->bytes = end - start;
    if (block->bytes_asked > block->bytes) block->bytes_asked = block->bytes;
    count(block, 1);
}

void region_put(const struct block_place *place, struct block *block) {
    struct region *region = place->region;
    struct block *previous = last_below(place);
    struct block *other = first_behind(region, previous);
    while (other != NULL && other->start < block_end(block)) {
        struct block *next = other->next;
        if (block_end(other) > block_end(block)) {
            cut(other, block_end(block), block_end(other));
        } else {
            region_forget(other);
        }
        other = next;
    }
    link_behind(region, previous, block);
    list(block, region->of_state[block->state].newest);
}

uint64_t region_uncharged(const struct region *region, uint64_t start, uint64_t bytes) {
    uint64_t number = 0;
    for (uint64_t i = segment_of(region, start); i <= segment_of(region, start + bytes - 1); i++)
        number += region->segments[i].id == 0;
    return number;
}

void region_note_charged(struct region *region, uint64_t start, uint64_t bytes) {
    region->charged += region_uncharged(region, start, bytes);
    for (uint64_t i = segment_of(region, start); i <= segment_of(region, start + bytes - 1); i++)
        if (region->segments[i].id == 0) region->segments[i].id = memory_next_id();
}

/* What reaches beyond `at` becomes a block of its own. False: out of memory. */
static bool split(struct block *block, uint64_t at) {
    struct block *rest = malloc(sizeof *rest);
    if (rest == NULL) return false;
    *rest = *block;
    link_behind(block->region, block, rest);
    list(rest, block);
    cut(rest, at, block_end(rest));
    cut(block, block->start, at);
    return true;
}

/* What is done is forgotten in an interval, and stays outside of it. False: out of memory. */
static bool clear(struct region *region, uint64_t start, uint64_t end) {
    struct block *newer = NULL;
    for (struct block *block = region->of_state[BLOCK_DONE].oldest; block != NULL; block = newer) {
        newer = block->newer;
        if (block->start >= end || block_end(block) <= start) continue;
        if (block_end(block) > end && !split(block, end)) return false;
        if (block->start < start) {
            cut(block, block->start, start);
        } else {
            region_forget(block);
        }
    }
    return true;
}

static bool give_up(struct region *region, uint64_t index, bool unobserved) {
    struct segment *segment = &region->segments[index];
    const uint64_t offset = index * REGION_SEGMENT_BYTES;
    const uint64_t start = region->start + offset;
    if (segment->id == 0 || segment->used > 0 || (segment->done > 0 && !unobserved)) return false;
    if (segment->done > 0 && !clear(region, start, start + REGION_SEGMENT_BYTES)) return false;
    segment->id = 0;
    region->charged--;
    if (region->fd < 0)
        madvise(region->storage + offset, REGION_SEGMENT_BYTES, MADV_DONTNEED);
    else
        memory_storage_punch(region->fd, region->file_offset + offset, REGION_SEGMENT_BYTES);
    return true;
}

uint64_t region_give_up(struct region *region, bool unobserved, uint64_t number) {
    uint64_t given = 0;
    for (uint64_t i = segment_count(region); i > 0 && region->charged > 0 && given < number; i--)
        given += give_up(region, i - 1, unobserved);
    return given;
}

bool region_is_empty(const struct region *region) {
    return region->blocks == NULL && region->charged == 0;
}
