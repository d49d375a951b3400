/* Where managed memory is, and what its user has said about it.
 *
 * A block is on the device that last touched it, or to which it was prefetched; that device is
 * charged for it. When it leaves, its memory there is kept until somebody needs it, as the real
 * driver keeps it. A block for which the device has no room stays where it is. The processor's
 * touches are not seen: for it, memory comes back by a prefetch alone. */
#ifndef GPUSHARE_SIM_MANAGED_H
#define GPUSHARE_SIM_MANAGED_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define MANAGED_HOST UINT32_MAX /* in place of a device: the host */
#define MANAGED_HOST_BIT 15     /* of `accessed_by` */

struct context;
struct range;

/* What was said of one page of the host. Locations are a CUmemLocationType and an id. */
struct managed_note {
    int8_t preferred_type;
    int8_t preferred_id;
    int8_t prefetched_type;
    int8_t prefetched_id;
    uint16_t accessed_by; /* bit per ordinal */
    bool read_mostly;
};

#pragma GCC visibility push(hidden)

/* Its records begin and end with a range. False: out of memory. */
bool managed_open(struct range *range);
void managed_close(struct range *range);

/* A context's device touches these bytes. Call with the table of ranges locked. */
void managed_touch(const struct range *range, uint64_t address, uint64_t bytes,
                   const struct context *context);

/* Moves all that is not there yet to a device, or to the host; how many bytes that is. */
uint64_t managed_elsewhere(uint64_t address, uint64_t bytes, uint32_t device);
void managed_move(uint64_t address, uint64_t bytes, uint32_t device);

/* Calls `visit` for the notes of each page in the interval, until it returns false. False when the
 * interval is not managed memory of one allocation. */
bool managed_for_each(uint64_t address, uint64_t bytes,
                      bool (*visit)(struct managed_note *note, void *argument), void *argument);

#pragma GCC visibility pop
#endif
