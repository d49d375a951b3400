#include "memory/pages.h"

#include <stddef.h>
#include <sys/mman.h>

#define PAGE_BITS 21
#define LEAF_BITS 21
#define LEAF_PAGES ((uint64_t)1 << LEAF_BITS)
#define LEAF_BYTES (LEAF_PAGES * sizeof(struct mapping *))
/* No device has an address of more than 57 bits. */
#define LEAVES (1u << (57 - PAGE_BITS - LEAF_BITS))

_Static_assert(PAGE_BYTES == (uint64_t)1 << PAGE_BITS, "a page is what its bits say");

/* A leaf stands for 4 TiB of addresses. The system gives it memory as far as it is written to. */
static struct mapping **leaves[LEAVES];
static uint32_t leaves_made;

static struct mapping ***leaf_of(uint64_t address) {
    const uint64_t leaf = address >> (PAGE_BITS + LEAF_BITS);
    return leaf < LEAVES ? &leaves[leaf] : NULL;
}

static struct mapping **slot_of(uint64_t address) {
    struct mapping ***leaf = leaf_of(address);
    if (leaf == NULL || *leaf == NULL) return NULL;
    return &(*leaf)[(address >> PAGE_BITS) & (LEAF_PAGES - 1)];
}

static bool make_leaf(uint64_t address) {
    struct mapping ***leaf = leaf_of(address);
    if (leaf == NULL) return false;
    if (*leaf != NULL) return true;
    void *made = mmap(NULL, LEAF_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return false;
    *leaf = made;
    leaves_made++;
    return true;
}

bool pages_enter(struct mapping *mapping) {
    const uint64_t end = mapping->address + mapping->bytes;
    if (!make_leaf(mapping->address) || !make_leaf(end - 1)) return false;
    for (uint64_t at = mapping->address; at < end; at += PAGE_BYTES)
        *slot_of(at) = mapping;
    return true;
}

void pages_leave(const struct mapping *mapping) {
    for (uint64_t at = mapping->address; at < mapping->address + mapping->bytes; at += PAGE_BYTES)
        if (*slot_of(at) == mapping) *slot_of(at) = NULL;
}

struct mapping *pages_find(uint64_t address) {
    struct mapping **slot = slot_of(address);
    if (slot == NULL || *slot == NULL) return NULL;
    return address - (*slot)->address < (*slot)->bytes ? *slot : NULL;
}

void pages_after_fork(void) {
    for (uint32_t leaf = 0; leaves_made > 0; leaf++) {
        if (leaves[leaf] == NULL) continue;
        munmap(leaves[leaf], LEAF_BYTES);
        leaves[leaf] = NULL;
        leaves_made--;
    }
}
