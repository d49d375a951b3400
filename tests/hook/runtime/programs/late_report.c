/* Memory that changes soon after it was reported, while the agent is held up in saying something
 * else: for longer than its next report is put off. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gpu.h"

#define BYTES ((size_t)4 << 20)
#define QUIET_US 300000  /* all is reported by then */
#define PUT_OFF_US 20000 /* the agent has looked, and sleeps until the next report is due */
#define HELD_UP_US 200000

static _Atomic unsigned said;
static _Atomic bool is_slow;

ssize_t send(int socket, const void *bytes, size_t count, int flags) {
    static ssize_t (*real)(int, const void *, size_t, int);
    if (real == NULL) real = (ssize_t (*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    const ssize_t sent = real(socket, bytes, count, flags);
    const bool by_agent = gettid() != getpid();
    if (by_agent) atomic_fetch_add(&said, 1);
    if (by_agent && atomic_exchange(&is_slow, false)) usleep(HELD_UP_US);
    return sent;
}

static void allocate(void) {
    CUdeviceptr address;
    check(cuMemAlloc(&address, BYTES), "cuMemAlloc");
}

static void tell(const char *function) {
    void (*call)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, function);
    if (call == NULL) exit(5);
    call();
}

int main(void) {
    gpu_open(0);
    tell("gpushare_cell_began");
    allocate();
    if (getchar() != '\n') return 1;
    usleep(QUIET_US);
    const unsigned said_before = atomic_load(&said);
    allocate();
    while (atomic_load(&said) == said_before)
        usleep(100);
    allocate();
    usleep(PUT_OFF_US);
    atomic_store(&is_slow, true);
    tell("gpushare_cell_ended");
    return getchar() == EOF ? 0 : 1;
}
