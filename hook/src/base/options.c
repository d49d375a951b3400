#include "base/options.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/messages.h"

enum option_kind { TEXT, NUMBER, CHOICE };

/* The words of a choice; their place is the value. Ends with NULL. */
static const char *const LOG_LEVELS[] = {"off", "error", "info", "debug", NULL};
static const char *const MEMORY_CHOICES[] = {
    [MEMORY_AS_SCHEDULED] = "auto", [MEMORY_SWAP] = "swap", [MEMORY_OFF] = "off", NULL};

struct option_row {
    enum option_kind kind;
    const char *name;
    size_t offset, bytes;     /* of the value in struct options */
    const char *const *words; /* CHOICE */
    const char *allowed;      /* for the message */
};

#define ROW(kind, name, member, words, allowed)                                              \
    {kind,  name,   offsetof(struct options, member), sizeof(((struct options *)0)->member), \
     words, allowed}

static const struct option_row ROWS[] = {
    ROW(TEXT, "GPUSHARE_SOCKET", socket_path, NULL, "a shorter text"),
    ROW(TEXT, "GPUSHARE_TOKEN", token, NULL, "a shorter text"),
    ROW(NUMBER, "GPUSHARE_DISABLE", disabled, NULL, "a whole number"),
    ROW(CHOICE, "GPUSHARE_LOG", log_level, LOG_LEVELS, "off, error, info or debug"),
    ROW(TEXT, "GPUSHARE_LOG_FILE", log_file, NULL, "a shorter text"),
    ROW(NUMBER, "GPUSHARE_SCHEDULER_UID", scheduler_uid, NULL, "a whole number"),
    ROW(NUMBER, "GPUSHARE_RECONNECT_S", reconnect_s, NULL, "a whole number"),
    ROW(CHOICE, "GPUSHARE_FALLBACK", fallback, FALLBACK_NAMES, "wait or run"),
    ROW(CHOICE, "GPUSHARE_MEMORY", memory, MEMORY_CHOICES, "swap, off or auto"),
    ROW(TEXT, "GPUSHARE_CGROUP_ROOT", cgroup_root, NULL, "a shorter text"),
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
        if (strcmp(text, words[i]) != 0) continue;
        *value = i;
        return true;
    }
    return false;
}

static bool parse_row(const struct option_row *row, const char *text) {
    void *member = (char *)&options + row->offset;
    if (row->kind == NUMBER) return parse_number(text, member);
    if (row->kind == CHOICE) return parse_choice(text, row->words, member);
    if (strlen(text) >= row->bytes) return false;
    strcpy(member, text);
    return true;
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
