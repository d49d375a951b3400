#include "base/options.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/messages.h"

enum option_kind { OPTION_TEXT, OPTION_NUMBER, OPTION_CHOICE };

/* The words of a choice; their place is the value. Ends with NULL. */
static const char *const LOG_LEVELS[] = {"off", "error", "info", "debug", NULL};
static const char *const FALLBACKS[] = {[FALLBACK_WAIT] = "wait", [FALLBACK_RUN] = "run", NULL};
static const char *const MEMORY_CHOICES[] = {
    [MEMORY_AS_SCHEDULED] = "auto", [MEMORY_SWAP] = "swap", [MEMORY_OFF] = "off", NULL};

struct option_row {
    const char *name;
    enum option_kind kind;
    size_t offset;            /* of the value in struct options */
    size_t bytes;             /* OPTION_TEXT: size of the array */
    const char *const *words; /* OPTION_CHOICE */
    size_t given_offset;      /* OPTION_NUMBER: a second member that becomes true; 0 for none */
    const char *allowed;      /* for the message */
};

#define TEXT(option, member)                \
    {option,                                \
     OPTION_TEXT,                           \
     offsetof(struct options, member),      \
     sizeof(((struct options *)0)->member), \
     NULL,                                  \
     0,                                     \
     "a shorter text"}
#define NUMBER(option, member, given) \
    {option, OPTION_NUMBER, offsetof(struct options, member), 0, NULL, given, "a whole number"}
#define CHOICE(option, member, list, text) \
    {option, OPTION_CHOICE, offsetof(struct options, member), 0, list, 0, text}

static const struct option_row ROWS[] = {
    TEXT("GPUSHARE_SOCKET", socket_path),
    TEXT("GPUSHARE_TOKEN", token),
    NUMBER("GPUSHARE_DISABLE", disabled, 0),
    CHOICE("GPUSHARE_LOG", log_level, LOG_LEVELS, "off, error, info or debug"),
    TEXT("GPUSHARE_LOG_FILE", log_file),
    NUMBER("GPUSHARE_SCHEDULER_UID", scheduler_uid, offsetof(struct options, trusts_uid)),
    NUMBER("GPUSHARE_RECONNECT_S", reconnect_s, 0),
    CHOICE("GPUSHARE_FALLBACK", fallback, FALLBACKS, "wait or run"),
    CHOICE("GPUSHARE_MEMORY", memory, MEMORY_CHOICES, "swap, off or auto"),
    TEXT("GPUSHARE_CGROUP_ROOT", cgroup_root),
};

static struct options options = {
    .log_level = LOG_ERROR,
    .reconnect_s = 30,
    .fallback = FALLBACK_WAIT,
    .cgroup_root = "/sys/fs/cgroup",
};
static pthread_once_t options_once = PTHREAD_ONCE_INIT;

static bool parse_number(const char *text, uint32_t *value) {
    char *end = NULL;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || number > UINT32_MAX) return false;
    *value = (uint32_t)number;
    return true;
}

static bool parse_choice(const char *text, const char *const *words, uint32_t *value) {
    for (uint32_t i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

static bool parse_row(const struct option_row *row, const char *text) {
    char *member = (char *)&options + row->offset;
    switch (row->kind) {
        case OPTION_TEXT:
            if (strlen(text) >= row->bytes) return false;
            strcpy(member, text);
            return true;
        case OPTION_NUMBER:
            if (!parse_number(text, (uint32_t *)(void *)member)) return false;
            if (row->given_offset) {
                *(uint32_t *)(void *)((char *)&options + row->given_offset) = 1;
            }
            return true;
        case OPTION_CHOICE:
            return parse_choice(text, row->words, (uint32_t *)(void *)member);
    }
    return false;
}

/* log.c needs the options, so this one message is written without it. */
static void complain(const struct option_row *row) {
    char line[256];
    int bytes = snprintf(line, sizeof(line),
                         "gpushare: the value of %s is not understood and is ignored. Give %s.\n",
                         row->name, row->allowed);
    if (bytes > 0 && write(STDERR_FILENO, line, (size_t)bytes) < 0) return;
}

static void read_environment(void) {
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        const char *text = getenv(ROWS[i].name);
        if (text && *text && !parse_row(&ROWS[i], text)) complain(&ROWS[i]);
    }
}

const struct options *options_get(void) {
    pthread_once(&options_once, read_environment);
    return &options;
}

bool options_take_part(void) {
    const struct options *set = options_get();
    return !set->disabled && set->socket_path[0] && set->token[0];
}
