/* Libraries that read and write device memory which was registered with them, without a launch that
 * passes the gate. Nobody tells us what is registered, so where one is loaded all memory stays. */
#pragma once

#include <stdbool.h>

/* What the user is to know of such a library in this process; NULL: there is none. */
const char *readers_loaded(void);
/* Whether RDMA is loaded. It reads memory that was made for it (CUmemAllocationProp), and only
 * that.
 */
bool readers_use_rdma(void);
