#include "allocate/refusal.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

#define QUIET_NS ((uint64_t)60000000000)
#define TEXT_BYTES 160

/* When a line of each kind was last written, and 1; 0: not yet. */
static _Atomic uint64_t told_at_ns[REFUSAL_KINDS], told_whole_at_ns;

/* Of threads that are refused at once, one tells. */
static bool is_due(_Atomic uint64_t *told) {
    const uint64_t now_ns = clock_now_ns();
    uint64_t before_ns = atomic_load(told);
    if (before_ns != 0 && now_ns < before_ns + QUIET_NS) return false; /* perhaps a moment ago */
    return atomic_compare_exchange_strong(told, &before_ns, now_ns);
}

static void put_size(char text[static TEXT_BYTES], uint64_t bytes) {
    if (bytes >= (uint64_t)1 << 30)
        snprintf(text, TEXT_BYTES, "%.1f GiB", (double)bytes / (1 << 30));
    else if (bytes >= 1 << 20)
        snprintf(text, TEXT_BYTES, "%.1f MiB", (double)bytes / (1 << 20));
    else
        snprintf(text, TEXT_BYTES, "%llu bytes", (unsigned long long)bytes);
}

/* "cuMemAlloc_v2 of 2.0 GiB on GPU 0", or without the size. */
static void put_call(char text[static TEXT_BYTES], const struct refusal *refusal) {
    char size[TEXT_BYTES];
    put_size(size, refusal->bytes);
    if (refusal->bytes > 0)
        snprintf(text, TEXT_BYTES, "%.64s of %.32s on GPU %d", refusal->call_name, size,
                 refusal->device);
    else
        snprintf(text, TEXT_BYTES, "%.64s on GPU %d", refusal->call_name, refusal->device);
}

/* By itself, whatever else may be in the way. */
static bool is_beyond_limit(const struct refusal *refusal) {
    return refusal->used_bytes > refusal->limit_bytes ||
           refusal->bytes > refusal->limit_bytes - refusal->used_bytes;
}

static void tell_user(const struct refusal *refusal, const char *call) {
    char used[TEXT_BYTES], limit[TEXT_BYTES];
    put_size(used, refusal->used_bytes);
    put_size(limit, refusal->limit_bytes);
    /* Who has nothing there can free nothing. */
    const char *remedy = refusal->used_bytes > 0 ? "Free GPU memory in it" : "Ask for less";
    switch (refusal->kind) {
        case REFUSAL_CAP:
            log_error(
                "%s is out of memory, because this kernel has %s there and its limit is %s. %s, or "
                "ask whoever runs this machine for a higher limit.",
                call, used, limit, remedy);
            break;
        case REFUSAL_BUDGET:
            if (is_beyond_limit(refusal))
                log_error(
                    "%s is out of memory, because this process has %s there and can have %s at "
                    "most. %s, or see what is in the way: jupyter gpushare status.",
                    call, used, limit, remedy);
            else
                log_error(
                    "%s is out of memory, because the GPU has no room for it beside what cannot be "
                    "moved. Try again later, or see what is in the way: jupyter gpushare status.",
                    call);
            break;
        case REFUSAL_ROOM:
            log_error(
                "%s is out of memory, because the GPU is full and nobody else could make room. Try "
                "again later, or see what is in the way: jupyter gpushare status.",
                call);
            break;
        case REFUSAL_HOST:
            log_error(
                "%s is out of memory, because this process has no host memory left to keep account "
                "of it. Free memory of the machine, or restart the kernel with a higher limit.",
                call);
            break;
        case REFUSAL_KINDS:
            break;
    }
}

void refusal_tell(const struct refusal *refusal) {
    static const char *const names[REFUSAL_KINDS] = {"cap", "budget", "room", "host"};
    char call[TEXT_BYTES];
    put_call(call, refusal);
    log_info("refused: %s, %llu bytes, %s", call, (unsigned long long)refusal->bytes,
             names[refusal->kind]);
    if (is_due(&told_at_ns[refusal->kind])) tell_user(refusal, call);
}

static const char *reason_of(enum physical_whole why) {
    switch (why) {
        case WHOLE_NO_HOST:
            return "because this machine, or this kernel's share of it, has too little memory for "
                   "its contents meanwhile. Free host memory, or create it in smaller pieces.";
        case WHOLE_NO_ROOM:
            return "because the GPU has no room for it in one piece. Try again later, or create it "
                   "in smaller pieces.";
        case WHOLE_BUSY:
            return "because GPU work of this process does not end. Wait for that work first, or "
                   "create it in smaller pieces.";
        default:
            return "because it cannot be moved. Create it in smaller pieces, or start the kernel "
                   "with GPUSHARE_MEMORY=off.";
    }
}

void refusal_tell_whole(enum physical_whole why, const char *call_name) {
    log_info("refused: %s, memory of several handles, %d", call_name, (int)why);
    if (!is_due(&told_whole_at_ns)) return;
    log_error(
        "%s refused: GPU memory of more than 64 MiB in one cuMemCreate cannot be given away, "
        "%s",
        call_name, reason_of(why));
}
