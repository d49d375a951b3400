/* Two processes on the simulated GPU: threads of one allocate memory, give it to the other and free
 * it, while another thread of it parks and restores what there is; threads of the other open, look,
 * write and close. Each of them comes late once, when what it was given moves again. Prints how
 * much was given, and the mappings and descriptors that are left. */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL /* every exported name as it is */
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocate/backing.h"
#include "base/symbols.h"
#include "fake_trace.h"
#include "gate/gate.h"
#include "sharing/ipc.h"
#include "sharing/ipc_exports.h"
#include "sharing/ipc_imports.h"
#include "surface/context_calls.h"

#define THREADS 4
#define ROUNDS 60
#define LATE_US 1200000 /* longer than what is given stays for nobody (ipc_server.c) */
#define AWAY_US 30000   /* longer than who opens waits without looking around (ipc_client.c) */

static CUcontext context;
static int ends[THREADS][2]; /* one socket pair for each thread: the exporter's end, the other's */
static _Atomic bool over;
static _Atomic int given;

/* The driver's own functions, found as the hook finds them. */
#define REAL(name) ((__typeof__(&name))symbols_real_of(SYMBOLS_CUDA, #name, true))

static void must(int result, const char *what) {
    if (result == CUDA_SUCCESS) return;
    fprintf(stderr, "%s: %d\n", what, result);
    _exit(1); /* the driver is not taken down under the other threads, which would say more */
}

/* ---- instead of the fake runtime's -------------------------------------------------------------
 */

static pthread_rwlock_t moving = PTHREAD_RWLOCK_INITIALIZER;

/* Who brings a block back is let in when all is there, as at the gate. All others pass, to have
 * more happen at once. */
enum gate_answer gate_enter_slow(const struct gate_call *call) {
    if (call->kind == GATE_LOOK) pthread_rwlock_rdlock(&moving);
    return GATE_PASS;
}

void gate_leave_slow(const struct gate_call *call, int cu_result) {
    (void)cu_result;
    if (call->kind == GATE_LOOK) pthread_rwlock_unlock(&moving);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* A signal comes into two looks of four. */
int poll(struct pollfd *descriptors, nfds_t count, int timeout_ms) {
    static _Atomic unsigned looks;
    if (timeout_ms != 0 || atomic_fetch_add(&looks, 1) % 4 >= 2)
        return NEXT(poll)(descriptors, count, timeout_ms);
    errno = EINTR;
    return -1;
}

/* The first that asks is held up before it does, for longer than the server waits for that. */
int connect(int socket, const struct sockaddr *address, socklen_t bytes) {
    static _Atomic bool was_held_up;
    const int result = NEXT(connect)(socket, address, bytes);
    if (!atomic_exchange(&was_held_up, true)) usleep(LATE_US);
    return result;
}

/* ---- the exporter and the importer -------------------------------------------------------------
 */

static void open_device(void) {
    must(REAL(cuInit)(0), "init");
    must(REAL(cuDevicePrimaryCtxRetain)(&context, 0), "retain");
    must(REAL(cuCtxSetCurrent)(context), "context");
    context_calls_ended(contexts_retained(context, 0));
}

static void must_be(uint64_t address, uint32_t expected) {
    uint32_t word = 0;
    must(REAL(cuMemcpyDtoH_v2)(&word, address, sizeof word), "read");
    if (word != expected) must(CUDA_ERROR_INVALID_VALUE, "another word");
}

static void put(uint64_t address, uint32_t word) {
    must(REAL(cuMemcpyHtoD_v2)(address, &word, sizeof word), "write");
}

struct message {
    CUipcMemHandle handle;
    uint32_t word;
};

static void give(int end, uint64_t address, uint32_t word) {
    struct message message = {.word = word};
    int result = CUDA_ERROR_UNKNOWN;
    char done;
    if (!ipc_get(&message.handle, address, "cuIpcGetMemHandle", &result))
        must(CUDA_ERROR_UNKNOWN, "not ours");
    if (result == CUDA_ERROR_MAP_FAILED) return; /* just parked */
    must(result, "get");
    put(address, word);
    if (send(end, &message, sizeof message, MSG_NOSIGNAL) != sizeof message ||
        recv(end, &done, 1, 0) != 1)
        must(CUDA_ERROR_OPERATING_SYSTEM, "the importer");
    must_be(address, word + 1);
    atomic_fetch_add(&given, 1);
}

static void *export_memory(void *argument) {
    static const uint64_t sizes[] = {300, 70000, 1 << 20, 3 << 20, 20 << 20};
    const int number = (int)(intptr_t)argument;
    must(REAL(cuCtxSetCurrent)(context), "context");
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t address = 0;
        int result = CUDA_ERROR_UNKNOWN;
        backing_allocate(&address, sizes[i % 5], "cuMemAlloc_v2", &result);
        must(result, "allocate");
        give(ends[number][0], address, i << 8 | (uint32_t)number << 4);
        backing_free(address, &result);
        must(result, "free");
    }
    shutdown(ends[number][0], SHUT_RDWR);
    return NULL;
}

static void *import_memory(void *argument) {
    const int end = ends[(intptr_t)argument][1];
    struct message message;
    must(REAL(cuCtxSetCurrent)(context), "context");
    bool is_late = true;
    while (recv(end, &message, sizeof message, MSG_WAITALL) == sizeof message) {
        if (is_late) usleep(LATE_US);
        is_late = false;
        uint64_t address = 0, again = 0;
        int result = CUDA_ERROR_UNKNOWN;
        for (int i = 0; i < 2; i++) {
            ipc_open(i == 0 ? &address : &again, &message.handle, 1, &result);
            must(result, "open");
        }
        if (address != again) must(CUDA_ERROR_UNKNOWN, "another address");
        must_be(address, message.word);
        put(address, message.word + 1);
        for (int i = 0; i < 2; i++) {
            if (!ipc_close(address, &result)) result = CUDA_ERROR_UNKNOWN;
            must(result, "close");
        }
        if (send(end, "", 1, MSG_NOSIGNAL) != 1) must(CUDA_ERROR_OPERATING_SYSTEM, "the exporter");
    }
    return NULL;
}

static void *move(void *argument) {
    must(REAL(cuCtxSetCurrent)(context), "context");
    for (unsigned round = 0; !atomic_load(&over); round++) {
        pthread_rwlock_wrlock(&moving);
        if (gpushare_fake_park(0) < 0) must(CUDA_ERROR_UNKNOWN, "park");
        if (round % 4 == 0) usleep(AWAY_US);
        if (gpushare_fake_restore(0) < 0) must(CUDA_ERROR_UNKNOWN, "restore");
        pthread_rwlock_unlock(&moving);
        usleep(1000); /* else hardly anything is there when it is to be given */
    }
    return argument;
}

static void run(void *(*work)(void *)) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static int be_importer(void) {
    struct import left;
    for (int i = 0; i < THREADS; i++)
        close(ends[i][0]);
    open_device();
    run(import_memory);
    return imports_take(contexts_generation(context), &left) ? 1 : 0;
}

int main(void) {
    for (int i = 0; i < THREADS; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]) != 0) return 1;
    const pid_t importer = fork();
    if (importer == 0) return be_importer();
    for (int i = 0; i < THREADS; i++)
        close(ends[i][1]);
    pthread_t moving;
    open_device();
    pthread_create(&moving, NULL, move, NULL);
    run(export_memory);
    atomic_store(&over, true);
    pthread_join(moving, NULL);
    int status = 0;
    waitpid(importer, &status, 0);
    printf("%d %d\n", atomic_load(&given), status);
    return 0;
}
