/* Descriptors that other software has of device memory. The memory lives as long as any of them is
 * open, in whatever process. Who closes one says nothing about it, so we look, now and then too. */
#ifndef GPUSHARE_SIM_DESCRIPTOR_H
#define GPUSHARE_SIM_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* The same file once more, independent of `fd`; -1: too many are open. The second is for programs:
 * while it, or a copy of it, is open somewhere, `descriptor_is_open` says so of `fd`. */
int descriptor_again(int fd);
int descriptor_of(int fd);
bool descriptor_is_open(int fd);

/* Once no descriptor of the file `fd` is open, `gone` is called and `fd` is closed. False: out of
 * memory; the caller keeps `fd`. */
bool descriptor_when_closed(int fd, void (*gone)(uint64_t argument), uint64_t argument);

/* Looks at those that have been closed meanwhile. True: there were some. The second says whether
 * any are left to look at. */
bool descriptor_look(void);
bool descriptor_any_watched(void);

/* `start` is called with each descriptor to look at: somebody must look now and then. Set once,
 * before there are any. */
void descriptor_set_start(void (*start)(void));

#pragma GCC visibility pop
#endif
