/* How much host memory this process may still take, by the machine and by each level of its control
 * groups. */
#ifndef GPUSHARE_CGROUP_H
#define GPUSHARE_CGROUP_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Reads the kernel's files: some 100 us. A reserve is taken off (cgroup_parse.h). */
uint64_t cgroup_host_room(void);

#pragma GCC visibility pop
#endif
