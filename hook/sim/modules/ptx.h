/* The little of PTX that has to be understood: which entries there are, and their parameters. */
#ifndef GPUSHARE_SIM_PTX_H
#define GPUSHARE_SIM_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ptx_entry {
    char name[64];
    int parameter_count;
    uint32_t parameter_bytes[16];
    uint32_t parameter_alignment[16];
};

#pragma GCC visibility push(hidden)

/* True when the image is a PTX text. */
bool ptx_is_text(const void *image);

/* True when a directive follows the ones at its head: as much as is worth looking at. */
bool ptx_is_sound(const void *image);

/* The next entry from *at on, which moves behind it; false when there are no more. */
bool ptx_next_entry(const char **at, struct ptx_entry *entry);

#pragma GCC visibility pop
#endif
