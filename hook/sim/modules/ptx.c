#define _GNU_SOURCE
#include "modules/ptx.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETERS_MAX 16

static const char *skip_space_and_comments(const char *at) {
    for (;;) {
        while (isspace((unsigned char)*at))
            at++;
        if (at[0] == '/' && at[1] == '/') {
            while (*at != '\0' && *at != '\n')
                at++;
        } else if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at + 2, "*/");
            at = end == NULL ? at + strlen(at) : end + 2;
        } else {
            return at;
        }
    }
}

bool ptx_is_text(const void *image) {
    return strncmp(skip_space_and_comments(image), ".version", 8) == 0;
}

bool ptx_is_sound(const void *image) {
    static const char *const head[] = {".version", ".target", ".address_size"};
    const char *at = skip_space_and_comments(image);
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++) {
        if (strncmp(at, head[i], strlen(head[i])) != 0) continue;
        while (*at != '\0' && *at != '\n')
            at++;
        at = skip_space_and_comments(at);
    }
    return *at == '.' || *at == '\0';
}

static bool is_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static const char *read_name(const char *at, char *name, size_t size) {
    size_t length = 0;
    at = skip_space_and_comments(at);
    while (is_name(*at)) {
        if (length + 1 < size) name[length++] = *at;
        at++;
    }
    name[length] = '\0';
    return at;
}

/* ".u64" is 8 bytes; ".align 8 .b8 name[24]" is 24. `end` is the comma or parenthesis behind it. */
static void read_parameter(const char *at, const char *end, struct ptx_entry *entry) {
    uint32_t bytes = 0;
    uint32_t alignment = 0;
    for (const char *p = at; p < end; p++) {
        if (*p == '[') bytes *= (uint32_t)strtoul(p + 1, NULL, 10);
        if (*p != '.') continue;
        if (strncmp(p, ".align", 6) == 0) {
            alignment = (uint32_t)strtoul(p + 6, NULL, 10);
        } else if (bytes == 0 && strchr("usbf", p[1]) != NULL && isdigit((unsigned char)p[2])) {
            bytes = (uint32_t)strtoul(p + 2, NULL, 10) / 8;
        }
    }
    if (entry->parameter_count == PARAMETERS_MAX || bytes == 0) return;
    entry->parameter_bytes[entry->parameter_count] = bytes;
    entry->parameter_alignment[entry->parameter_count] = alignment != 0 ? alignment : bytes;
    entry->parameter_count++;
}

static void read_parameters(const char *at, struct ptx_entry *entry) {
    at = skip_space_and_comments(at);
    if (*at != '(') return;
    const char *begin = at + 1;
    for (const char *p = begin; *p != '\0'; p++) {
        if (*p != ',' && *p != ')') continue;
        read_parameter(begin, p, entry);
        if (*p == ')') return;
        begin = p + 1;
    }
}

bool ptx_next_entry(const char **at, struct ptx_entry *entry) {
    const char *found = *at;
    do {
        found = strstr(found, ".entry");
        if (found == NULL) return false;
        found += strlen(".entry");
    } while (!isspace((unsigned char)*found));
    memset(entry, 0, sizeof *entry);
    found = read_name(found, entry->name, sizeof entry->name);
    read_parameters(found, entry);
    *at = found;
    return true;
}
