/* What people can set, read once from the environment: options.c has the table, and the only
 * getenv of the hook. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum log_level {
    LOG_OFF = 0,
    LOG_ERROR = 1,
    LOG_INFO = 2,
    LOG_DEBUG = 3,
};

enum memory_choice {
    MEMORY_AS_SCHEDULED = 0, /* the scheduler's settings decide */
    MEMORY_SWAP = 1,
    MEMORY_OFF = 2,
};

struct options {
    char socket_path[108]; /* GPUSHARE_SOCKET: the scheduler's unix socket; "" without one */
    char token[513];       /* GPUSHARE_TOKEN: says which tenant this process belongs to */
    uint32_t disabled;     /* GPUSHARE_DISABLE: 1 switches the hook off */
    uint32_t log_level;    /* GPUSHARE_LOG: an enum log_level */
    char log_file[4096];   /* GPUSHARE_LOG_FILE: "" for stderr */
    uint32_t
        scheduler_uid;     /* GPUSHARE_SCHEDULER_UID: a service account; root where there is none */
    uint32_t reconnect_s;  /* GPUSHARE_RECONNECT_S: until the scheduler's settings arrive */
    uint32_t fallback;     /* GPUSHARE_FALLBACK: an enum fallback, likewise */
    uint32_t memory;       /* GPUSHARE_MEMORY: an enum memory_choice */
    char cgroup_root[256]; /* GPUSHARE_CGROUP_ROOT: where the control groups are mounted */
};

/* Never NULL, never changes. A value that is not understood counts as absent; one line on stderr
 * says so. Callable before anything else in the process. */
const struct options *options_get(void);

/* The hook takes part in this process at all: it is not switched off, and has socket and token. */
bool options_take_part(void);
