/* A tenant of a soak test: it works by itself, by random operations from a seed, and checks every
 * byte that it owns again and again.
 *
 *     soak_tenant SEED HOLD_MIB DEVICES THREADS
 *
 * It says `ready`, `did OPERATIONS CHECKS BYTES_CHECKED REFUSED CANCELLED` four times a second,
 * `wrong KIND SIZE OFFSET EXPECTED FOUND` for a byte that is not what was written, `failed CALL
 * RESULT` once for each kind of call that answers what it must not, and `bye` where it ends in an
 * orderly way, after the end of its input. Its input are the commands in COMMANDS, one a line, each
 * answered by `ok COMMAND`. $SOAK_MAY_ANSWER lists further results that are no failure.
 * $SOAK_LATER_CALL_MS_MAX limits how long work waits for a later call. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sys/resource.h>

#include "soak_operations.h"

#define TELL_EVERY_MS 250
#define LOOK_EVERY_MS 20
#define FEW_DESCRIPTORS_MS 1000
#define CANCEL_MS_MAX 60000
#define FORKED_MS 20
#define DESCRIPTORS_MAX 4096

static struct worker workers[WORKERS_MAX];
static int worker_count;
static _Atomic bool is_stopping, ends_in_order, is_work_stopped;
static _Atomic int workers_left;       /* behind the main thread, which has gone; 0: it is there */
static _Atomic uint64_t verifications; /* that were asked for */

/* What has been asked for and is not over; the main thread's alone. */
static struct {
    bool ready, stop_work, verify, close_descriptors;
    int cancels;                  /* how many threads are still to be cancelled */
    struct worker *cancelled;     /* the one that is to end just now */
    uint64_t cancelled_at_ms;     /* 0: it was told that this lasts too long */
    uint64_t descriptors_back_ms; /* 0: there is no limit */
    struct rlimit descriptors;    /* as it was */
} pending;

/* ---- devices ---- */

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) exit(4);
    fseek(file, 0, SEEK_END);
    const size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(1, bytes + 1);
    if (text == NULL || fread(text, 1, bytes, file) != bytes) exit(4);
    fclose(file);
    return text;
}

static bool load_launches(struct device *device) {
    char *text = read_text(BUILTINS_PTX);
    const bool is_loaded = GRANTED(cuModuleLoadData, &device->module, text);
    free(text);
    return is_loaded && DONE(cuModuleGetFunction, &device->fill, device->module, "fill") &&
           DONE(cuModuleGetFunction, &device->checksum, device->module, "checksum") &&
           DONE(cuModuleGetFunction, &device->spin, device->module, "spin") &&
           DONE(cuModuleGetFunction, &device->poll_flag, device->module, "poll_flag");
}

static bool open_device(int ordinal) {
    struct device *device = &devices[ordinal];
    if (device->context == NULL &&
        (!DONE(cuDeviceGet, &device->handle, ordinal) ||
         !GRANTED(cuDevicePrimaryCtxRetain, &device->context, device->handle))) {
        device->context = NULL;
        return false;
    }
    return use_device(ordinal) && load_launches(device);
}

static struct pinned *pinned_memory(void) {
    void *memory = NULL;
    const unsigned flags = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;
    while (!GRANTED(cuMemHostAlloc, &memory, sizeof(struct pinned), flags))
        sleep_ms(LOOK_EVERY_MS);
    return memory;
}

static void open_lanes(struct worker *worker) {
    for (int device = 0; device < device_count; device++) {
        struct lane *lanes = &worker->lanes[device * OWN_LANES];
        lanes[LEGACY] = (struct lane){.kind = LEGACY, .device = device, .exists = true};
        lanes[OF_THREAD] = (struct lane){
            .stream = CU_STREAM_PER_THREAD, .kind = OF_THREAD, .device = device, .exists = true};
        lanes[WORKING] = (struct lane){.kind = WORKING, .device = device, .exists = true};
        while (!use_device(device) ||
               !GRANTED(cuStreamCreate, &lanes[WORKING].stream, CU_STREAM_NON_BLOCKING))
            sleep_ms(LOOK_EVERY_MS);
    }
}

static void open_devices(void) {
    while (!DONE(cuInit, 0))
        sleep_ms(LOOK_EVERY_MS);
    for (int device = 0; device < device_count; device++)
        while (!open_device(device))
            sleep_ms(LOOK_EVERY_MS);
}

static void close_devices(void) {
    for (int i = 0; i < worker_count; i++)
        DONE(cuMemFreeHost, workers[i].pinned);
    for (int device = 0; device < device_count; device++) {
        use_device(device);
        DONE(cuModuleUnload, devices[device].module);
        DONE(cuDevicePrimaryCtxRelease, devices[device].handle);
    }
}

/* ---- workers ---- */

static bool give_back_lanes(struct worker *worker) {
    for (int i = 0; i < LANES; i++) {
        struct lane *lane = &worker->lanes[i];
        if (!lane->exists) continue;
        if (lane->kind != LEGACY && lane->kind != OF_THREAD &&
            (!use_device(lane->device) || !ENDED(cuStreamDestroy, lane->stream)))
            return false;
        lane->exists = false;
    }
    return true;
}

static bool give_back(struct worker *worker) {
    if (!settle(worker)) return false;
    for (int i = 0; i < BLOCKS; i++)
        if (worker->blocks[i].held_bytes > 0 && !release(worker, &worker->blocks[i])) return false;
    return finish_lanes(worker) && give_back_lanes(worker);
}

static void verify_where_asked(struct worker *worker) {
    const uint64_t asked = atomic_load(&verifications);
    if (atomic_load(&worker->verified) == asked) return;
    if (verify_all(worker))
        atomic_store(&worker->verified, asked);
    else
        sleep_ms(2);
    allow_cancellation(worker);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    while (!atomic_load(&is_stopping)) {
        verify_where_asked(worker);
        const bool is_paused = atomic_load(&is_work_stopped);
        atomic_store(&worker->is_paused, is_paused);
        if (is_paused)
            sleep_ms(LOOK_EVERY_MS);
        else
            run_operation(worker);
    }
    while (atomic_load(&ends_in_order) && !give_back(worker))
        sleep_ms(LOOK_EVERY_MS);
    if (atomic_load(&workers_left) > 0 && atomic_fetch_sub(&workers_left, 1) == 1) exit(0);
    return NULL;
}

static void start_thread(struct worker *worker) {
    char name[16];
    if (pthread_create(&worker->thread, NULL, work, worker) != 0) exit(6);
    snprintf(name, sizeof name, "soak-%d", worker->number);
    pthread_setname_np(worker->thread, name);
}

/* A thread of its own, for the others may all stand in the driver. */
static void *end_long_waits(void *nothing) {
    for (;; sleep_ms(LOOK_EVERY_MS)) {
        for (int i = 0; i < worker_count; i++) {
            const uint64_t by_ms = atomic_load(&workers[i].later_call_by_ms);
            if (by_ms > 0 && now_ms() > by_ms) workers[i].pinned->flag = 1;
        }
    }
    return nothing;
}

static void limit_later_calls(void) {
    const char *text = getenv("SOAK_LATER_CALL_MS_MAX");
    pthread_t thread;
    later_call_ms_max = text == NULL ? 0 : strtoull(text, NULL, 10);
    if (later_call_ms_max > 0 && pthread_create(&thread, NULL, end_long_waits, NULL) != 0) exit(6);
}

static void start_workers(uint64_t seed) {
    for (int i = 0; i < worker_count; i++) {
        struct worker *worker = &workers[i];
        worker->number = i;
        worker->random = seed * 1000003 + (uint64_t)i;
        worker->device = i % device_count;
        worker->pinned = pinned_memory();
        open_lanes(worker);
    }
    for (int i = 0; i < worker_count; i++)
        start_thread(&workers[i]);
}

/* What the cancelled thread was at is not known to be done: all is written anew. */
static void take_over(struct worker *worker) {
    atomic_store(&worker->later_call_by_ms, 0);
    worker->pinned->flag = 1;
    if (worker->child > 0) {
        kill(worker->child, SIGKILL);
        status_of(&worker->child);
    }
    for (int i = 0; i < BLOCKS; i++)
        worker->blocks[i].is_known = false;
    start_thread(worker);
}

static bool all_workers(bool (*holds)(const struct worker *worker)) {
    for (int i = 0; i < worker_count; i++)
        if (!holds(&workers[i])) return false;
    return true;
}

static bool has_verified(const struct worker *worker) {
    return atomic_load(&worker->has_verified);
}

static bool is_paused(const struct worker *worker) {
    return atomic_load(&worker->is_paused);
}

static bool has_verified_all(const struct worker *worker) {
    return atomic_load(&worker->verified) == atomic_load(&verifications);
}

/* ---- commands ---- */

static void judge_forked(const char *command, pid_t child) {
    const bool had_descriptors = atomic_load(&has_descriptors);
    const int status = child > 0 ? status_of(&child) : -1;
    if (status != 0 && had_descriptors) tell_failure(command, status);
}

static void fork_child(void) {
    const pid_t child = fork();
    if (child == 0) {
        sleep_ms(FORKED_MS);
        _exit(0);
    }
    judge_forked("fork", child);
    say("ok fork");
}

static void fork_and_execute(void) {
    const pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "/bin/true", (char *)NULL);
        _exit(127);
    }
    judge_forked("fork_exec", child);
    say("ok fork_exec");
}

/* The descriptors that are open now, but for the one by which they are found. */
static int open_descriptors(int *found) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    if (folder == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL && count < DESCRIPTORS_MAX;) {
        const int descriptor = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && descriptor != dirfd(folder)) found[count++] = descriptor;
    }
    closedir(folder);
    return count;
}

static void close_descriptors(void) {
    static int found[DESCRIPTORS_MAX];
    const int count = open_descriptors(found);
    for (int i = 0; i < count; i++)
        if (found[i] > STDERR_FILENO) close(found[i]);
}

static void ask_to_close_descriptors(void) {
    pending.close_descriptors = true;
    atomic_store(&descriptors_closing, true);
}

static void limit_descriptors(void) {
    static int found[DESCRIPTORS_MAX];
    if (pending.descriptors_back_ms == 0) getrlimit(RLIMIT_NOFILE, &pending.descriptors);
    struct rlimit few = pending.descriptors;
    few.rlim_cur = (rlim_t)open_descriptors(found);
    atomic_store(&has_descriptors, false);
    setrlimit(RLIMIT_NOFILE, &few);
    pending.descriptors_back_ms = now_ms() + FEW_DESCRIPTORS_MS;
    say("ok few_fds");
}

static void cancel_worker(void) {
    pending.cancels++;
}

static void stop_work(void) {
    atomic_store(&is_work_stopped, true);
    pending.stop_work = true;
}

static void go_on(void) {
    atomic_store(&is_work_stopped, false);
    if (pending.stop_work) say("ok stop_work");
    pending.stop_work = false;
    say("ok go_on");
}

static void ask_to_verify(void) {
    atomic_fetch_add(&verifications, 1);
    pending.verify = true;
}

static const struct command {
    const char *name;
    void (*perform)(void);
} COMMANDS[] = {
    {"fork", fork_child},
    {"fork_exec", fork_and_execute},
    {"cancel", cancel_worker},
    {"close_fds", ask_to_close_descriptors},
    {"few_fds", limit_descriptors},
    {"stop_work", stop_work},
    {"go_on", go_on},
    {"verify", ask_to_verify},
};

/* ---- ends ---- */

static void return_from_main(void) {
    /* The caller, which is `main`, returns. */
}

static void exit_normally(void) {
    exit(0);
}

static void exit_quickly(void) {
    quick_exit(0);
}

/* The last worker ends the process, in which threads of the driver would live on. */
static void exit_main_thread(void) {
    atomic_store(&workers_left, worker_count);
    atomic_store(&is_stopping, true);
    pthread_exit(NULL);
}

static void exit_at_once(void) {
    _exit(0);
}

static void execute(void) {
    execl("/bin/true", "/bin/true", (char *)NULL);
    _exit(127);
}

static const struct command ENDS[] = {
    {"return", return_from_main},       {"exit", exit_normally}, {"quick_exit", exit_quickly},
    {"pthread_exit", exit_main_thread}, {"_exit", exit_at_once}, {"exec", execute},
};

/* With threads at work, but where the main thread ends alone. True: `main` returns. */
static bool end_by(const char *kind) {
    for (size_t i = 0; i < sizeof ENDS / sizeof ENDS[0]; i++) {
        if (strcmp(kind, ENDS[i].name) != 0) continue;
        if (ENDS[i].perform != exit_main_thread) atomic_store(&is_ending, true);
        say("ok exit %s", kind);
        ENDS[i].perform();
        return true;
    }
    say("unknown exit %s", kind);
    return false;
}

static void end_in_order(void) {
    atomic_store(&ends_in_order, true);
    atomic_store(&is_stopping, true);
    for (int i = 0; i < worker_count; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].child > 0) status_of(&workers[i].child);
    }
    close_devices(); /* nobody waits for a later call any more */
    say("bye");
}

/* ---- the main thread ---- */

/* The next worker, where one is still to be cancelled. */
static void begin_cancel(void) {
    static int next;
    if (pending.cancels == 0 || pending.cancelled != NULL) return;
    pending.cancelled = &workers[next++ % worker_count];
    pending.cancelled_at_ms = now_ms();
    pthread_cancel(pending.cancelled->thread);
}

static void look_for_cancelled(void) {
    begin_cancel();
    if (pending.cancelled == NULL) return;
    if (pthread_tryjoin_np(pending.cancelled->thread, NULL) == 0) {
        take_over(pending.cancelled);
        pending.cancelled = NULL;
        pending.cancels--;
        say("ok cancel");
    } else if (pending.cancelled_at_ms > 0 && now_ms() > pending.cancelled_at_ms + CANCEL_MS_MAX) {
        pending.cancelled_at_ms = 0;
        say("failed cancel 0");
    }
}

static void look_at_descriptors(void) {
    if (pending.close_descriptors && atomic_load(&shared_blocks) == 0) {
        close_descriptors();
        atomic_store(&descriptors_closing, false);
        pending.close_descriptors = false;
        say("ok close_fds");
    }
    if (pending.descriptors_back_ms > 0 && now_ms() > pending.descriptors_back_ms) {
        setrlimit(RLIMIT_NOFILE, &pending.descriptors);
        atomic_store(&has_descriptors, true);
        pending.descriptors_back_ms = 0;
    }
}

static void look_at_workers(void) {
    look_for_cancelled();
    look_at_descriptors();
    if (pending.ready && all_workers(has_verified)) {
        pending.ready = false;
        say("ready");
    }
    if (pending.stop_work && all_workers(is_paused)) {
        pending.stop_work = false;
        say("ok stop_work");
    }
    if (pending.verify && all_workers(has_verified_all)) {
        pending.verify = false;
        say("ok verify");
    }
}

static void tell_totals(void) {
    static uint64_t told_ms;
    if (now_ms() < told_ms + TELL_EVERY_MS) return;
    told_ms = now_ms();
    say("did %lu %lu %lu %lu %lu", (unsigned long)atomic_load(&totals.operations),
        (unsigned long)atomic_load(&totals.checks),
        (unsigned long)atomic_load(&totals.bytes_checked),
        (unsigned long)atomic_load(&totals.refused), (unsigned long)atomic_load(&totals.cancelled));
}

/* True: the process is to end by the return of `main`. */
static bool answer(const char *line) {
    if (strncmp(line, "exit ", 5) == 0) return end_by(line + 5);
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++) {
        if (strcmp(line, COMMANDS[i].name) != 0) continue;
        COMMANDS[i].perform();
        return false;
    }
    say("unknown %s", line);
    return false;
}

/* Does the commands whose lines are complete. True: see `answer`. */
static bool answer_lines(char *text, size_t *length) {
    for (char *end; (end = memchr(text, '\n', *length)) != NULL;) {
        *end = '\0';
        if (answer(text)) return true;
        *length -= (size_t)(end + 1 - text);
        memmove(text, end + 1, *length);
    }
    return false;
}

/* Until the end of the input, or the command to return. */
static void serve(void) {
    static char text[4096];
    size_t length = 0;
    for (;;) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        const int found = poll(&input, 1, LOOK_EVERY_MS);
        look_at_workers();
        tell_totals();
        if (found <= 0) continue; /* also where a signal has come */
        const ssize_t bytes = read(STDIN_FILENO, text + length, sizeof text - length);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) break;
        length += (size_t)bytes;
        if (answer_lines(text, &length)) return;
        if (length == sizeof text) length = 0; /* no command is so long */
    }
    end_in_order();
}

/* ---- the child that imports a block ---- */

/* A result that is good, or how the child ends. */
static int import_result(const char *call, CUresult result) {
    if (judge(call, result, true)) return 0;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CHILD_REFUSED : CHILD_GAVE_UP;
}

#define IMPORT(call, ...) \
    if (code == 0) code = import_result("import_" #call, call(__VA_ARGS__))

static int check_imported(struct block *block, const uint32_t *words) {
    for (uint64_t at = 0; at < block->bytes; at += PIECE_BYTES) {
        const uint64_t left = block->bytes - at;
        if (!compare(block, at, words + at / 4, left < PIECE_BYTES ? left : PIECE_BYTES))
            return CHILD_WRONG;
    }
    return 0;
}

static int import(int descriptor, uint64_t bytes, uint64_t seed, int ordinal) {
    struct block block = {.kind = IMPORTED, .bytes = bytes};
    const uint64_t mapped = pieces_of(bytes) * PIECE_BYTES;
    CUdevice device;
    CUcontext context;
    uint32_t *words = malloc(bytes);
    int code = words == NULL ? CHILD_REFUSED : 0;
    IMPORT(cuInit, 0);
    IMPORT(cuDeviceGet, &device, ordinal);
    IMPORT(cuDevicePrimaryCtxRetain, &context, device);
    IMPORT(cuCtxSetCurrent, context);
    IMPORT(cuMemImportFromShareableHandle, &block.handle, (void *)(uintptr_t)descriptor,
           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(descriptor);
    IMPORT(cuMemAddressReserve, &block.address, mapped, 0, 0, 0);
    IMPORT(cuMemMap, block.address, mapped, 0, block.handle, 0);
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {device}},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    IMPORT(cuMemSetAccess, block.address, mapped, &access, 1);
    IMPORT(cuMemcpyDtoH, words, block.address, bytes);
    if (code == 0) {
        expect_seed(&block, seed);
        code = check_imported(&block, words);
    }
    free(words);
    return code;
}

static void ignore_interrupt(int number) {
    (void)number;
}

int main(int count, char **arguments) {
    uint64_t numbers[4] = {0};
    const bool imports = count == 7 && strcmp(arguments[1], "import") == 0;
    if (count != 5 && !imports) return 2;
    for (int i = 0; i < 4; i++)
        numbers[i] = strtoull(arguments[i + 1 + imports], NULL, 10);
    const struct sigaction action = {.sa_handler = ignore_interrupt};
    sigaction(SIGINT, &action, NULL);
    read_allowed();
    /* Calls of a child that has no descriptor to open may fail. */
    atomic_store(&is_ending, imports && strcmp(arguments[6], "few") == 0);
    if (imports) return import((int)numbers[0], numbers[1], numbers[2], (int)numbers[3]);
    if (numbers[1] == 0 || numbers[2] < 1 || numbers[2] > DEVICES_MAX || numbers[3] < 1 ||
        numbers[3] > WORKERS_MAX)
        return 2;
    hold_bytes_max = numbers[1] * MIB;
    device_count = (int)numbers[2];
    worker_count = (int)numbers[3];
    atomic_store(&has_descriptors, true);
    pending.ready = true;
    open_devices();
    limit_later_calls();
    start_workers(numbers[0]);
    serve();
    return 0;
}
