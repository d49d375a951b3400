#define _GNU_SOURCE
#include "machine/engine.h"

#include "machine/futex.h"

#define WAKE_WORTH_NS 20000u /* a shorter gain is not worth a system call */

static void advance(struct sim_engine *engine, uint64_t now_ns) {
    if (engine->active_jobs > 0 && now_ns > engine->updated_ns)
        engine->virtual_ns += (now_ns - engine->updated_ns) / engine->active_jobs;
    engine->updated_ns = now_ns;
}

static uint64_t real_end_ns(const struct sim_engine *engine, uint64_t ends_virtual_ns) {
    if (ends_virtual_ns == ENGINE_NEVER) return ENGINE_NEVER;
    if (ends_virtual_ns <= engine->virtual_ns) return engine->updated_ns;
    return engine->updated_ns + (ends_virtual_ns - engine->virtual_ns) * engine->active_jobs;
}

/* The row's note of its next end lets others decide whether to wake it. It may be too early (an
 * ended job's), never too late: that costs a needless wake, never a missed one. */
static void note_next_end(struct sim_process_use *use, enum sim_engine_kind kind, uint64_t ends) {
    if (use->active_jobs[kind] <= 1 || ends < use->next_virtual_ns[kind])
        use->next_virtual_ns[kind] = ends;
}

void engine_begin(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                  enum sim_engine_kind kind, uint64_t work_ns, struct engine_job *job) {
    struct sim_engine *engine = &segment->devices[device].engines[kind];
    segment_lock(segment);
    advance(engine, segment_now_ns());
    engine->active_jobs++;
    self->use[device].active_jobs[kind]++;
    job->ends_virtual_ns = work_ns == ENGINE_NEVER ? ENGINE_NEVER : engine->virtual_ns + work_ns;
    note_next_end(&self->use[device], kind, job->ends_virtual_ns);
    job->check_at_ns = real_end_ns(engine, job->ends_virtual_ns);
    segment_unlock(segment);
}

void engine_extend(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                   enum sim_engine_kind kind, uint64_t work_ns, struct engine_job *job) {
    struct sim_engine *engine = &segment->devices[device].engines[kind];
    segment_lock(segment);
    advance(engine, segment_now_ns());
    job->ends_virtual_ns += work_ns;
    self->use[device].next_virtual_ns[kind] = job->ends_virtual_ns;
    job->check_at_ns = real_end_ns(engine, job->ends_virtual_ns);
    segment_unlock(segment);
}

bool engine_has_ended(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                      enum sim_engine_kind kind, struct engine_job *job) {
    struct sim_engine *engine = &segment->devices[device].engines[kind];
    segment_lock(segment);
    advance(engine, segment_now_ns());
    bool ended = engine->virtual_ns >= job->ends_virtual_ns;
    if (!ended) {
        job->check_at_ns = real_end_ns(engine, job->ends_virtual_ns);
        self->use[device].next_virtual_ns[kind] = job->ends_virtual_ns;
    }
    segment_unlock(segment);
    return ended;
}

/* Fewer jobs means that the others' end earlier than they planned when they went to sleep. */
static void wake_others(struct sim_segment *segment, const struct sim_process *self,
                        uint32_t device, enum sim_engine_kind kind) {
    const struct sim_engine *engine = &segment->devices[device].engines[kind];
    for (int p = 0; p < SIM_PROCESSES_MAX; p++) {
        struct sim_process *row = &segment->processes[p];
        if (row == self || row->use[device].active_jobs[kind] == 0) continue;
        uint64_t ends_ns = real_end_ns(engine, row->use[device].next_virtual_ns[kind]);
        if (ends_ns == ENGINE_NEVER || atomic_load(&row->sleeping) == 0) continue;
        if (ends_ns + WAKE_WORTH_NS < atomic_load(&row->wakes_at_ns)) engine_ring(row);
    }
}

void engine_end_locked(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                       enum sim_engine_kind kind) {
    struct sim_engine *engine = &segment->devices[device].engines[kind];
    advance(engine, segment_now_ns());
    if (engine->active_jobs > 0) engine->active_jobs--;
    if (self->use[device].active_jobs[kind] > 0) self->use[device].active_jobs[kind]--;
    if (engine->active_jobs > 0) wake_others(segment, self, device, kind);
}

void engine_end(struct sim_segment *segment, struct sim_process *self, uint32_t device,
                enum sim_engine_kind kind) {
    segment_lock(segment);
    engine_end_locked(segment, self, device, kind);
    segment_unlock(segment);
}

void engine_ring(struct sim_process *process) {
    atomic_fetch_add(&process->doorbell, 1);
    futex_wake_shared(&process->doorbell);
}
