/* The processes that may have memory of ours, each by its connection: they say when they have it no
 * more. For the server's thread alone; LOCK_IPC guards the table against a fork. */
#pragma once

#include <poll.h>
#include <stddef.h>

#include "base/descriptor.h"

struct importer {
    struct descriptor connection;
    uint64_t number;     /* of the block */
    uint64_t started;    /* when its process did, which tells it from a later one with its pid */
    int32_t pid;         /* 0: of another namespace */
    bool waits;          /* for a block that is not on its device: it has nothing yet */
    bool is_quiet;       /* its connection has ended without a word */
    uint64_t told_at_ns; /* that it has to wait */
};

/* It may have the block with this number, or waits for it. False: no host memory. */
bool importers_add(const struct descriptor *connection, uint64_t number, bool waits);

/* For poll: the connections, behind the first `from` of these; NULL: no host memory. */
struct pollfd *importers_poll(size_t from, size_t *count);
/* Hears what they have said, and sees which have ended. */
void importers_look(void);
/* Those that wait: `serve` sends what is there by now. True: some wait on. */
bool importers_serve(void (*serve)(int connection, uint64_t number));
void importers_after_fork(void);
