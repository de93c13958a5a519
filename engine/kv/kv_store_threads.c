#include "engine/kv/kv_store_threads.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "config/base/numbers.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WRITER_NICE 19
#define WRITER_IO_PRIORITY ((2 << 13) | 7) /* the lowest of class best-effort */
#define CLOSE_NS (2 * CLOCK_NS_PER_S)      /* for writes, when all jobs are to end */
#define JOIN_NS (1500 * CLOCK_NS_PER_MS)   /* for a thread's last work, when it is to end */
#define STAMPS_NS (60 * CLOCK_NS_PER_S)    /* between two writes of them */
#define WATCH_NS CLOCK_NS_PER_S            /* between two looks at what the owner has changed */
#define WATCH_AFTER_WRITES_NS (10 * CLOCK_NS_PER_S) /* later at most, if it hurries */
#define WATCH_SHARE 20 /* of the writing thread's time is spent on that at most */
#define MAX_FAILURES 8 /* in a row; then it pauses */
#define PAUSE_NS (60 * CLOCK_NS_PER_S)

/* Without a lock, so that the engine never waits for a thread of low priority that holds one. One
 * thread adds, one takes; there are no more jobs than places. */
struct job_ring {
    struct kv_store_job *jobs[KV_STORE_MAX_JOBS];
    _Atomic uint32_t num_added, num_taken;
};

struct kv_store_threads {
    struct kv_store_file *file;
    void (*wake)(void *context);
    void *wake_context;
    struct kv_store_room rooms[2];  /* by is_read, as all below */
    struct kv_store_job *jobs;      /* [2 * KV_STORE_MAX_JOBS] */
    int32_t *tokens;                /* of the jobs */
    struct kv_store_job *unused[2]; /* engine's thread only */
    struct kv_store_job *abandoned; /* to be reported; engine's thread only */
    struct job_ring to_do[2], done[2];
    sem_t changed[2];        /* posted when there may be work for the thread */
    pthread_mutex_t lock[2]; /* of the jobs' states, and of their parts while a thread copies */
    pthread_t threads[2];
    int32_t num_started;
    int32_t num_running;       /* under the writer's lock */
    pthread_cond_t ended;      /* a write or a thread, with the writer's lock */
    pthread_mutex_t wake_lock; /* of `wake` and its context; the engine takes it when idle */
    int32_t num_failures;      /* in a row; writer only, up to watch_ns */
    const struct kv_store_index *owned; /* NULL: not the owner */
    uint64_t written_stamp;
    int64_t stamps_ns, watch_ns; /* when to write and to look again */
    _Atomic int64_t paused_until_ns;
    _Atomic uint64_t renewed; /* generation that the files are to have; 0: as they have */
    _Atomic(struct kv_store_view *) next_view;
    _Atomic(struct kv_store_index *) old_index; /* the writer's, to destroy */
    atomic_bool stops;
    atomic_bool has_gone;            /* a block of a shared folder that the view has */
    atomic_bool has_news;            /* of the writer, of which the reader tells the engine */
    _Atomic int64_t busy_from_ns[2]; /* 0: it waits for work */
    _Atomic uint64_t num_done[2], work_ns[2], num_failed_writes;
};

/* --- Rings --- */

static void ring_add(struct job_ring *ring, struct kv_store_job *job) {
    uint32_t added = atomic_load_explicit(&ring->num_added, memory_order_relaxed);
    ring->jobs[added % KV_STORE_MAX_JOBS] = job;
    atomic_store_explicit(&ring->num_added, added + 1, memory_order_release);
}

static bool ring_is_empty(struct job_ring *ring) {
    return atomic_load_explicit(&ring->num_added, memory_order_acquire) ==
           atomic_load_explicit(&ring->num_taken, memory_order_relaxed);
}

static struct kv_store_job *ring_take(struct job_ring *ring) {
    if (ring_is_empty(ring))
        return NULL;
    uint32_t taken = atomic_load_explicit(&ring->num_taken, memory_order_relaxed);
    struct kv_store_job *job = ring->jobs[taken % KV_STORE_MAX_JOBS];
    atomic_store_explicit(&ring->num_taken, taken + 1, memory_order_release);
    return job;
}

/* Tells the engine that a job has ended. Not called by the thread of low priority: the engine would
 * wait for it while it has the engine's lock. */
static void call_wake(struct kv_store_threads *threads) {
    pthread_mutex_lock(&threads->wake_lock); /* kept meanwhile: see kv_store_set_wake */
    if (threads->wake != NULL)
        threads->wake(threads->wake_context);
    pthread_mutex_unlock(&threads->wake_lock);
}

static void note_news(struct kv_store_threads *threads) {
    atomic_store(&threads->has_news, true);
    sem_post(&threads->changed[true]);
}

/* --- Jobs --- */

/* Copies between a job's parts and the thread's memory, unless it was abandoned. Returns whether it
 * was not. */
static bool copy_parts(struct kv_store_threads *threads, const struct kv_store_job *job) {
    unsigned char *block = threads->rooms[job->is_read].block;
    pthread_mutex_lock(&threads->lock[job->is_read]);
    bool is_wanted = job->state == JOB_ACCEPTED;
    for (int32_t i = 0; is_wanted && i < job->num_parts; i++) {
        const struct kv_store_part *part = &job->parts[i];
        memcpy(job->is_read ? part->data : block, job->is_read ? block : part->data, part->bytes);
        block += part->bytes;
    }
    pthread_mutex_unlock(&threads->lock[job->is_read]);
    return is_wanted;
}

static bool is_wanted(struct kv_store_threads *threads, const struct kv_store_job *job) {
    pthread_mutex_lock(&threads->lock[job->is_read]);
    bool is_wanted = job->state == JOB_ACCEPTED;
    pthread_mutex_unlock(&threads->lock[job->is_read]);
    return is_wanted;
}

/* Reports a job that the thread has worked on. */
static void end_job(struct kv_store_threads *threads, struct kv_store_job *job) {
    bool is_read = job->is_read;
    job->end_ns = clock_now_ns();
    atomic_fetch_add(&threads->work_ns[is_read], (uint64_t)(job->end_ns - job->begin_ns));
    if (job->is_ok)
        atomic_fetch_add(&threads->num_done[is_read], 1);
    pthread_mutex_lock(&threads->lock[is_read]);
    if (job->state == JOB_ACCEPTED)
        job->state = JOB_ENDED;
    ring_add(&threads->done[is_read], job);
    if (!is_read)
        pthread_cond_broadcast(&threads->ended);
    pthread_mutex_unlock(&threads->lock[is_read]);
    if (is_read) {
        call_wake(threads);
    } else {
        note_news(threads);
    }
}

static void note_end(struct kv_store_threads *threads) {
    pthread_mutex_lock(&threads->lock[false]);
    threads->num_running--;
    pthread_cond_broadcast(&threads->ended);
    pthread_mutex_unlock(&threads->lock[false]);
}

static struct timespec time_of(int64_t ns) {
    return (struct timespec){.tv_sec = ns / CLOCK_NS_PER_S, .tv_nsec = ns % CLOCK_NS_PER_S};
}

/* --- The writer --- */

/* Waits for work until that time at most. */
static void wait_until(struct kv_store_threads *threads, int64_t ns) {
    const struct timespec end = time_of(ns);
    sem_clockwait(&threads->changed[false], CLOCK_MONOTONIC, &end);
}

static void note_failure(struct kv_store_threads *threads) {
    atomic_fetch_add(&threads->num_failed_writes, 1);
    if (++threads->num_failures < MAX_FAILURES)
        return;
    log_warning("kv-store: %s: %s; writes nothing for a minute", threads->file->config.folder->path,
                strerror(errno));
    threads->num_failures = 0;
    atomic_store(&threads->paused_until_ns, clock_now_ns() + PAUSE_NS);
}

static void renew_files(struct kv_store_threads *threads, uint64_t generation) {
    if (generation == 0 || generation == threads->file->generation)
        return;
    if (threads->file->ops->renew(threads->file, &threads->rooms[false], generation) != 0)
        log_warning("kv-store: %s cannot be cleared: %s", threads->file->config.folder->path,
                    strerror(errno));
}

static void write_one(struct kv_store_threads *threads, struct kv_store_job *job) {
    const struct kv_store_file *file = threads->file;
    struct kv_store_room *room = &threads->rooms[false];
    job->begin_ns = clock_now_ns();
    if (!kv_store_threads_is_paused(threads) && is_wanted(threads, job)) {
        renew_files(threads, job->generation);
        if (copy_parts(threads, job)) {
            job->is_ok = file->ops->write(file, room, job->slot, &job->content, job->num_drafted,
                                          job->has_left ? &job->left : NULL) == 0;
            if (job->is_ok)
                threads->num_failures = 0;
            else
                note_failure(threads);
        }
    }
    end_job(threads, job);
}

static void lower_priority(void) {
    setpriority(PRIO_PROCESS, (id_t)gettid(), WRITER_NICE);
    syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, WRITER_IO_PRIORITY);
}

/* Writes the last uses if there are new ones. */
static void write_stamps(struct kv_store_threads *threads) {
    const struct kv_store_index *owned = threads->owned;
    threads->stamps_ns = clock_now_ns() + STAMPS_NS;
    if (owned == NULL || kv_store_index_last_stamp(owned) == threads->written_stamp)
        return;
    threads->written_stamp = kv_store_index_last_stamp(owned);
    if (threads->file->ops->write_stamps(threads->file, kv_store_index_stamps(owned)) != 0)
        log_debug("kv-store: %s: last uses: %s", threads->file->config.folder->path,
                  strerror(errno));
}

static int load_view(struct kv_store_threads *threads, struct kv_store_view *view,
                     uint64_t *num_damaged, struct error *err) {
    struct kv_store_file *file = threads->file;
    *view = (struct kv_store_view){.generation = file->generation,
                                   .is_owner = file->config.folder->is_owner};
    return file->ops->load(file, &threads->rooms[false], &view->index, num_damaged, err);
}

static void destroy_view(struct kv_store_view *view) {
    if (view != NULL)
        kv_store_index_destroy(view->index);
    free(view);
}

/* The last uses are of an index that stays: nobody else changes what the owner has. */
static const struct kv_store_index *owned_index(const struct kv_store_threads *threads,
                                                const struct kv_store_view *view) {
    bool is_owned = view->is_owner && threads->file->ops->write_stamps != NULL;
    return is_owned ? view->index : NULL;
}

/* Looks whether others have changed something, or the owner has ended. What another server
 * announced and is not there has pushed something out of the view that is. */
static void watch_others(struct kv_store_threads *threads) {
    struct kv_store_file *file = threads->file;
    int64_t begin_ns = clock_now_ns();
    uint64_t num_damaged = 0;
    bool is_old = atomic_exchange(&threads->has_gone, false);
    if (file->ops->look(file, &threads->rooms[false]) || is_old) {
        struct kv_store_view *view = calloc(1, sizeof(*view));
        if (view != NULL && load_view(threads, view, &num_damaged, NULL) == 0) {
            threads->owned = owned_index(threads, view);
            if (threads->owned != NULL)
                log_info("kv-store: %s is owned by this process now", file->config.folder->path);
            destroy_view(atomic_exchange(&threads->next_view, view));
            note_news(threads);
        } else { /* no memory */
            free(view);
            kv_store_folder_unlock(file->config.folder);
        }
    }
    int64_t end_ns = clock_now_ns();
    threads->watch_ns = end_ns + max_int64(WATCH_NS, (end_ns - begin_ns) * WATCH_SHARE);
}

/* Listing a large folder takes long: what somebody waits for comes first, for a while. */
static bool is_watch_due(const struct kv_store_threads *threads, bool has_jobs, int64_t now_ns) {
    bool may_wait = has_jobs && threads->file->config.hurries;
    return now_ns >= threads->watch_ns + (may_wait ? WATCH_AFTER_WRITES_NS : 0);
}

static void write_once(struct kv_store_threads *threads) {
    struct kv_store_job *job = ring_take(&threads->to_do[false]);
    int64_t now_ns = clock_now_ns();
    uint64_t generation = job == NULL ? atomic_exchange(&threads->renewed, 0) : 0;
    kv_store_index_destroy(atomic_exchange(&threads->old_index, NULL));
    atomic_store(&threads->busy_from_ns[false], now_ns);
    if (job != NULL)
        write_one(threads, job);
    if (generation != 0)
        renew_files(threads, generation);
    if (now_ns >= threads->stamps_ns)
        write_stamps(threads);
    if (threads->owned == NULL && is_watch_due(threads, job != NULL, now_ns))
        watch_others(threads);
    atomic_store(&threads->busy_from_ns[false], 0);
    if (job == NULL && generation == 0)
        wait_until(threads, threads->owned != NULL
                                ? threads->stamps_ns
                                : min_int64(threads->stamps_ns, threads->watch_ns));
}

static void *writer_main(void *argument) {
    struct kv_store_threads *threads = argument;
    if (!threads->file->config.hurries)
        lower_priority();
    threads->stamps_ns = clock_now_ns() + STAMPS_NS;
    threads->watch_ns = clock_now_ns() + WATCH_NS;
    while (!atomic_load(&threads->stops))
        write_once(threads);
    renew_files(threads, atomic_load(&threads->renewed));
    write_stamps(threads);
    note_end(threads);
    return NULL;
}

/* --- The reader --- */

static void read_one(struct kv_store_threads *threads, struct kv_store_job *job) {
    const struct kv_store_file *file = threads->file;
    job->begin_ns = clock_now_ns();
    atomic_store(&threads->busy_from_ns[true], job->begin_ns);
    if (is_wanted(threads, job)) {
        enum kv_store_found found =
            file->ops->read(file, &threads->rooms[true], job->slot, job->generation, &job->content,
                            &job->num_drafted);
        job->is_damaged = found == KV_STORE_DAMAGED;
        if (found == KV_STORE_GONE && file->config.folder->is_shared)
            atomic_store(&threads->has_gone, true);
        job->is_ok = found == KV_STORE_FOUND && copy_parts(threads, job);
    }
    atomic_store(&threads->busy_from_ns[true], 0);
    end_job(threads, job);
}

static void *reader_main(void *argument) {
    struct kv_store_threads *threads = argument;
    while (!atomic_load(&threads->stops)) {
        struct kv_store_job *job = ring_take(&threads->to_do[true]);
        if (atomic_exchange(&threads->has_news, false))
            call_wake(threads);
        if (job != NULL)
            read_one(threads, job);
        else
            sem_wait(&threads->changed[true]);
    }
    note_end(threads);
    return NULL;
}

/* --- For the engine's thread --- */

struct kv_store_job *kv_store_threads_new_job(struct kv_store_threads *threads, bool is_read) {
    struct kv_store_job *job = threads->unused[is_read];
    if (job == NULL)
        return NULL;
    threads->unused[is_read] = job->next;
    int32_t *tokens = job->tokens;
    *job = (struct kv_store_job){.is_read = is_read, .tokens = tokens};
    return job;
}

/* Its thread still has one that was abandoned. */
void kv_store_threads_free_job(struct kv_store_threads *threads, struct kv_store_job *job) {
    if (job->state == JOB_ABANDONED)
        return;
    job->next = threads->unused[job->is_read];
    threads->unused[job->is_read] = job;
}

void kv_store_threads_submit(struct kv_store_threads *threads, struct kv_store_job *job) {
    bool is_read = job->is_read;
    job->state = JOB_ACCEPTED;
    ring_add(&threads->to_do[is_read], job);
    sem_post(&threads->changed[is_read]);
}

struct kv_store_job *kv_store_threads_next_done(struct kv_store_threads *threads) {
    struct kv_store_job *job = threads->abandoned;
    if (job != NULL) {
        threads->abandoned = job->next;
        return job;
    }
    for (int is_read = 1; is_read >= 0; is_read--)
        while ((job = ring_take(&threads->done[is_read])) != NULL) {
            if (job->state != JOB_ABANDONED)
                return job;
            job->state = JOB_UNUSED; /* it was reported */
            kv_store_threads_free_job(threads, job);
        }
    return NULL;
}

void kv_store_threads_abandon(struct kv_store_threads *threads, bool is_read) {
    struct kv_store_job *jobs = threads->jobs + (is_read ? KV_STORE_MAX_JOBS : 0);
    pthread_mutex_lock(&threads->lock[is_read]);
    for (int32_t i = 0; i < KV_STORE_MAX_JOBS; i++) {
        if (jobs[i].state != JOB_ACCEPTED)
            continue;
        jobs[i].state = JOB_ABANDONED;
        jobs[i].next = threads->abandoned;
        threads->abandoned = &jobs[i];
    }
    pthread_mutex_unlock(&threads->lock[is_read]);
}

static bool has_open_writes(const struct kv_store_threads *threads) {
    bool is_open = false;
    for (int32_t i = 0; i < KV_STORE_MAX_JOBS; i++)
        is_open = is_open || threads->jobs[i].state == JOB_ACCEPTED;
    return is_open;
}

void kv_store_threads_end_jobs(struct kv_store_threads *threads) {
    const struct timespec end =
        time_of(clock_now_ns() + CLOSE_NS - kv_store_threads_busy_ns(threads, false));
    kv_store_threads_abandon(threads, true);
    pthread_mutex_lock(&threads->lock[false]);
    while (has_open_writes(threads) &&
           pthread_cond_timedwait(&threads->ended, &threads->lock[false], &end) == 0)
        continue;
    pthread_mutex_unlock(&threads->lock[false]);
    kv_store_threads_abandon(threads, false);
}

size_t kv_store_threads_bytes(const struct kv_store_file *file) {
    size_t of_job = sizeof(struct kv_store_job) + (size_t)file->config.block_size * sizeof(int32_t);
    return sizeof(struct kv_store_threads) + 2 * KV_STORE_MAX_JOBS * of_job +
           2 * (file->head_bytes + file->slot_bytes);
}

void kv_store_threads_set_wake(struct kv_store_threads *threads, void (*wake)(void *context),
                               void *context) {
    pthread_mutex_lock(&threads->wake_lock);
    threads->wake = wake;
    threads->wake_context = context;
    pthread_mutex_unlock(&threads->wake_lock);
}

int64_t kv_store_threads_busy_ns(const struct kv_store_threads *threads, bool is_reader) {
    int64_t from_ns = atomic_load(&threads->busy_from_ns[is_reader]);
    return from_ns != 0 ? max_int64(clock_now_ns() - from_ns, 1) : 0;
}

bool kv_store_threads_is_paused(struct kv_store_threads *threads) {
    return clock_now_ns() < atomic_load(&threads->paused_until_ns);
}

void kv_store_threads_renew(struct kv_store_threads *threads, uint64_t generation) {
    atomic_store(&threads->renewed, generation);
    sem_post(&threads->changed[false]);
}

bool kv_store_threads_next_view(struct kv_store_threads *threads, struct kv_store_view *view) {
    if (atomic_load(&threads->next_view) == NULL || atomic_load(&threads->old_index) != NULL)
        return false;
    struct kv_store_view *next = atomic_exchange(&threads->next_view, NULL);
    atomic_store(&threads->old_index, view->index);
    *view = *next;
    free(next);
    sem_post(&threads->changed[false]);
    return true;
}

void kv_store_threads_count(struct kv_store_threads *threads, struct kv_store_counts *out) {
    out->num_written = atomic_load(&threads->num_done[false]);
    out->num_read = atomic_load(&threads->num_done[true]);
    out->bytes_written = out->num_written * threads->file->config.block_bytes;
    out->bytes_read = out->num_read * threads->file->config.block_bytes;
    out->num_failed_writes = atomic_load(&threads->num_failed_writes);
    out->write_ns = atomic_load(&threads->work_ns[false]);
    out->read_ns = atomic_load(&threads->work_ns[true]);
}

/* --- Life --- */

static int allocate(struct kv_store_threads *threads, struct error *err) {
    const struct kv_store_file *file = threads->file;
    size_t count = 2 * KV_STORE_MAX_JOBS, block_size = (size_t)file->config.block_size;
    threads->jobs = calloc(count, sizeof(*threads->jobs));
    threads->tokens = calloc(count, block_size * sizeof(*threads->tokens));
    if (threads->jobs == NULL || threads->tokens == NULL)
        return error_set(err, ERROR_MEMORY, "kv-store: no memory for %zu jobs", count);
    for (size_t i = count; i-- > 0;) {
        threads->jobs[i].tokens = threads->tokens + i * block_size;
        threads->jobs[i].is_read = i >= KV_STORE_MAX_JOBS;
        kv_store_threads_free_job(threads, &threads->jobs[i]);
    }
    return kv_store_room_init(&threads->rooms[false], file, err) == 0
               ? kv_store_room_init(&threads->rooms[true], file, err)
               : -1;
}

/* Signals are for other threads. */
static int start(struct kv_store_threads *threads, struct error *err) {
    static void *(*const mains[])(void *) = {writer_main, reader_main};
    static const char *const names[] = {"quire-kv-write", "quire-kv-read"};
    sigset_t all, before;
    int status = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < 2 && status == 0; i++) {
        status = pthread_create(&threads->threads[i], NULL, mains[i], threads);
        threads->num_started += status == 0;
        if (status == 0)
            pthread_setname_np(threads->threads[i], names[i]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status == 0
               ? 0
               : error_set(err, ERROR_IO, "kv-store: cannot start a thread: %s", strerror(status));
}

static void init_sync(struct kv_store_threads *threads) {
    pthread_condattr_t attributes;
    CHECK(pthread_condattr_init(&attributes) == 0);
    CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&threads->ended, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
    CHECK(pthread_mutex_init(&threads->wake_lock, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_mutex_init(&threads->lock[i], NULL) == 0);
        CHECK(sem_init(&threads->changed[i], 0, 0) == 0);
    }
}

int kv_store_threads_create(struct kv_store_file *file, void (*wake)(void *context), void *context,
                            struct kv_store_view *view, uint64_t *num_damaged,
                            struct kv_store_threads **out, struct error *err) {
    struct kv_store_threads *threads = calloc(1, sizeof(*threads));
    if (threads == NULL)
        return error_set(err, ERROR_MEMORY, "kv-store: no memory for its threads");
    threads->file = file;
    threads->wake = wake;
    threads->wake_context = context;
    threads->num_running = 2; /* `stop` takes off those that were not started */
    init_sync(threads);
    if (allocate(threads, err) != 0 || load_view(threads, view, num_damaged, err) != 0) {
        kv_store_threads_destroy(threads);
        return -1;
    }
    threads->owned = owned_index(threads, view);
    if (start(threads, err) != 0) {
        kv_store_threads_destroy(threads);
        return -1;
    }
    *out = threads;
    return 0;
}

/* Returns whether both have ended. */
static bool stop(struct kv_store_threads *threads) {
    int64_t busy_ns = max_int64(kv_store_threads_busy_ns(threads, false),
                                kv_store_threads_busy_ns(threads, true));
    const struct timespec end = time_of(clock_now_ns() + max_int64(JOIN_NS - busy_ns, 0));
    int status = 0;
    atomic_store(&threads->stops, true);
    pthread_mutex_lock(&threads->lock[false]);
    threads->num_running -= 2 - threads->num_started;
    for (int i = 0; i < 2; i++)
        sem_post(&threads->changed[i]);
    while (threads->num_running > 0 && status == 0)
        status = pthread_cond_timedwait(&threads->ended, &threads->lock[false], &end);
    bool has_ended = threads->num_running == 0;
    pthread_mutex_unlock(&threads->lock[false]);
    for (int i = 0; i < threads->num_started; i++)
        CHECK((has_ended ? pthread_join(threads->threads[i], NULL)
                         : pthread_detach(threads->threads[i])) == 0);
    return has_ended;
}

bool kv_store_threads_destroy(struct kv_store_threads *threads) {
    if (threads == NULL)
        return true;
    if (!stop(threads))
        return false;
    pthread_cond_destroy(&threads->ended);
    pthread_mutex_destroy(&threads->wake_lock);
    for (int i = 0; i < 2; i++) {
        pthread_mutex_destroy(&threads->lock[i]);
        sem_destroy(&threads->changed[i]);
        kv_store_room_finish(&threads->rooms[i]);
    }
    destroy_view(atomic_load(&threads->next_view));
    kv_store_index_destroy(atomic_load(&threads->old_index));
    free(threads->tokens);
    free(threads->jobs);
    free(threads);
    return true;
}
