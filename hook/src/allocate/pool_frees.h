/* When memory of our pools that was freed in a stream is over, and what becomes of it. */
#pragma once

#include "allocate/pooling.h"
#include "memory/pooled.h"

/* The stream's name among those that free. False: it is not known, captures, or may not be used
 * beside a capture: the driver says so. */
bool pool_frees_key(struct pooling_stream stream, struct stream_key *key, int *device);

/* Looks which frees in other streams are over, where the pool allows that they are taken then, or
 * (NULL) for its own sake. Adds no work to any stream. */
void pool_frees_look(struct pool *pool, const struct stream_key *but);
/* Lets the stream have what others have yet to free, where the pool allows it: it waits for that in
 * its own order, and no thread does, until that is enough; where the driver has refused what was
 * missing, until no less is missing. False: there was nothing. */
bool pool_frees_follow(struct pool *pool, uint64_t bytes, bool refused, struct stream_key key,
                       struct pooling_stream stream);

/* So much can be had on the device besides what is allocated. */
bool pool_frees_fits(int device, uint64_t bytes);
/* Gives segments back, as long as so much is left. */
bool pool_frees_release(struct pool *pool, uint64_t keep_bytes);
/* cuMemFree has two halves: it is closed, for nobody else to free, and freed when the work that may
 * use it is over; the answers are those of work_wait. */
bool pooling_close(uint64_t address, struct allocated *closed);
CUresult pooling_free_closed(const struct allocated *closed);
/* Ends what pooled.h holds. */
void pool_frees_drop(struct pool *pool);
