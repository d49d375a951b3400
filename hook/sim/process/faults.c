#define _GNU_SOURCE
#include "process/faults.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "process/process.h"

#define FAULTS_MAX 64
#define HOLD_LOOK_NS 1000000

enum fault_verb { FAULT_FAIL, FAULT_STALL, FAULT_LOSE, FAULT_HOLD };
static const char *const verbs[] = {"fail", "stall", "lose", "hold"};

struct fault {
    enum fault_verb verb;
    char call[64];
    uint64_t nth;
    uint64_t times;
    int result;
    uint64_t stall_ms;
    uint32_t device;
    char thread[16]; /* "": any */
    char from[32], until[32];
    _Atomic uint64_t calls;
};

static struct fault faults[FAULTS_MAX];
static char machine[PATH_MAX];
static int fault_count; /* set by cuInit before any call is counted */

/* The value after `key=` in a line, or the fallback. */
static uint64_t number_after(const char *line, const char *key, uint64_t fallback) {
    const char *at = strstr(line, key);
    return at == NULL ? fallback : strtoull(at + strlen(key), NULL, 10);
}

static void word_after(const char *line, const char *key, char *word, size_t room) {
    const char *at = strstr(line, key);
    if (at == NULL) return;
    at += strlen(key);
    snprintf(word, room, "%.*s", (int)strcspn(at, " "), at);
}

static bool parse_verb(const char *line, struct fault *fault) {
    if (sscanf(line, " fail %63s", fault->call) == 1) {
        fault->verb = FAULT_FAIL;
    } else if (sscanf(line, " stall %63s", fault->call) == 1) {
        fault->verb = FAULT_STALL;
    } else if (sscanf(line, " hold %63s", fault->call) == 1) {
        fault->verb = FAULT_HOLD;
    } else if (strncmp(line + strspn(line, " "), "lose ", 5) == 0) {
        const char *at = strstr(line, "call=");
        fault->verb = FAULT_LOSE;
        return at != NULL && sscanf(at, "call=%63s", fault->call) == 1;
    } else {
        return false;
    }
    return true;
}

static void parse_line(const char *line) {
    struct fault fault = {.verb = FAULT_FAIL};
    uint64_t pid = number_after(line, "pid=", 0);
    if (fault_count == FAULTS_MAX || (pid != 0 && pid != (uint64_t)getpid())) return;
    if (!parse_verb(line, &fault)) return;
    fault.nth = number_after(line, "nth=", 1);
    fault.times = number_after(line, "times=", fault.verb == FAULT_LOSE ? 0 : 1);
    fault.result = (int)number_after(line, "result=", 2);
    fault.stall_ms = number_after(line, "ms=", 0);
    fault.device = (uint32_t)number_after(line, "device=", 0);
    word_after(line, "thread=", fault.thread, sizeof fault.thread);
    word_after(line, "from=", fault.from, sizeof fault.from);
    word_after(line, "until=", fault.until, sizeof fault.until);
    faults[fault_count++] = fault;
}

static void parse_text(char *text) {
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n;", &rest); line != NULL;
         line = strtok_r(NULL, "\n;", &rest)) {
        if (line[strspn(line, " ")] != '#') parse_line(line);
    }
}

bool faults_load(const char *directory) {
    char text[16384];
    const char *inlined = getenv(SIM_ENV_FAULTS);
    text[0] = '\0';
    snprintf(machine, sizeof machine, "%s", directory);
    if (inlined != NULL) {
        snprintf(text, sizeof text, "%s", inlined);
    } else {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/faults", directory);
        FILE *file = fopen(path, "re");
        if (file == NULL) return false;
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    parse_text(text);
    return fault_count > 0;
}

static bool is_there(const char *file) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", machine, file);
    return access(path, F_OK) == 0;
}

static bool counts_here(const struct fault *fault) {
    char name[16] = "";
    if (fault->from[0] != '\0' && !is_there(fault->from)) return false;
    if (fault->until[0] != '\0' && is_there(fault->until)) return false;
    if (fault->thread[0] == '\0') return true;
    prctl(PR_GET_NAME, name, 0, 0, 0);
    return strcmp(name, fault->thread) == 0;
}

static void hold_until(const char *file) {
    char path[PATH_MAX + 48];
    snprintf(path, sizeof path, "%s/%s.held", machine, file);
    FILE *held = fopen(path, "we");
    if (held != NULL) fclose(held);
    while (!is_there(file))
        nanosleep(&(struct timespec){.tv_nsec = HOLD_LOOK_NS}, NULL);
}

/* For tests that have to know that something did go wrong. */
static void tell_that_it_happens(const struct fault *fault) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/happened", machine);
    FILE *happened = fopen(path, "ae");
    if (happened == NULL) return;
    fprintf(happened, "%d %s %s\n", (int)getpid(), verbs[fault->verb], fault->call);
    fclose(happened);
}

static bool happens_now(struct fault *fault, const char *base_name) {
    if (strcmp(fault->call, base_name) != 0 || !counts_here(fault)) return false;
    uint64_t call = atomic_fetch_add(&fault->calls, 1) + 1;
    if (call == fault->nth) tell_that_it_happens(fault);
    return call >= fault->nth && (fault->times == 0 || call < fault->nth + fault->times);
}

int faults_check(const char *base_name) {
    int result = 0;
    for (int i = 0; i < fault_count; i++) {
        struct fault *fault = &faults[i];
        if (!happens_now(fault, base_name)) continue;
        if (fault->verb == FAULT_FAIL) {
            result = fault->result;
        } else if (fault->verb == FAULT_STALL) {
            struct timespec pause = {.tv_sec = (time_t)(fault->stall_ms / 1000),
                                     .tv_nsec = (long)(fault->stall_ms % 1000) * 1000000};
            nanosleep(&pause, NULL);
        } else if (fault->verb == FAULT_HOLD) {
            hold_until(fault->until);
        } else if (fault->device < process_segment->device_count) {
            atomic_store(&process_segment->devices[fault->device].lost, 1);
        }
    }
    return result;
}
