#include "engine/kv/kv_store_threads.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "config/base/numbers.h"
#include "engine/kv/kv_store_saved.h"

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
#define STAMPS_NS (60 * CLOCK_NS_PER_S)    /* between two writes of them */
#define WATCH_NS CLOCK_NS_PER_S            /* between two looks at what the owner has changed */
#define WATCH_SHARE 20 /* of the reading thread's time is spent on that at most */
#define MAX_FAILURES 8 /* in a row; then it pauses */
#define PAUSE_NS (60 * CLOCK_NS_PER_S)

/* Without a lock, so that the engine never waits for a thread of low priority that holds one. One
 * thread adds, one takes; there are no more jobs than places. */
struct job_ring {
    struct kv_store_job *jobs[KV_STORE_MAX_JOBS];
    _Atomic uint32_t num_added, num_taken;
};

struct kv_store_threads {
    struct kv_store_threads_config config;
    struct kv_store_room write_room, read_room;
    struct kv_store_job *jobs;      /* [2 * KV_STORE_MAX_JOBS] */
    int32_t *tokens;                /* of the jobs */
    struct kv_store_job *unused[2]; /* by is_read, like the rings; engine's thread only */
    struct job_ring to_do[2], done[2];
    sem_t changed[2]; /* posted when there may be work for the thread */
    pthread_t writer, reader;
    int32_t num_started;
    pthread_mutex_t wake_lock; /* of config.wake and its context; the engine takes it when idle */
    pthread_cond_t job_ended;
    int32_t num_failures;   /* in a row; writer only */
    uint64_t written_stamp; /* writer only */
    uint64_t seen_changes;  /* reader only */
    _Atomic int64_t paused_until_ns;
    _Atomic(const struct kv_store_index *) owned; /* NULL: not the owner */
    _Atomic uint64_t renewed; /* generation that the files are to have; 0: as they have */
    _Atomic(struct kv_store_view *) next_view;
    _Atomic(struct kv_store_index *) old_index; /* the reader's, to destroy */
    _Atomic int64_t stop_ns;                    /* 0: not stopping */
    _Atomic int64_t drop_ns;         /* jobs are dropped: reads now, writes then; 0: none */
    atomic_bool has_written;         /* a write has ended, of which the reader tells the engine */
    _Atomic int64_t reading_from_ns; /* when the running read began; 0: none runs */
    _Atomic uint64_t num_done[2], bytes_done[2], work_ns[2], num_failed_writes;
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
    if (threads->config.wake != NULL)
        threads->config.wake(threads->config.context);
    pthread_mutex_unlock(&threads->wake_lock);
}

/* Reports a job that the thread has worked on. */
static void end_job(struct kv_store_threads *threads, struct kv_store_job *job) {
    bool is_read = job->is_read;
    job->end_ns = clock_now_ns();
    atomic_fetch_add(&threads->work_ns[is_read], (uint64_t)(job->end_ns - job->begin_ns));
    if (job->is_ok) {
        atomic_fetch_add(&threads->num_done[is_read], 1);
        atomic_fetch_add(&threads->bytes_done[is_read], threads->config.file->config.block_bytes);
    }
    ring_add(&threads->done[is_read], job);
    pthread_mutex_lock(&threads->wake_lock);
    pthread_cond_broadcast(&threads->job_ended);
    pthread_mutex_unlock(&threads->wake_lock);
    if (is_read) {
        call_wake(threads);
    } else {
        atomic_store(&threads->has_written, true);
        sem_post(&threads->changed[true]);
    }
}

/* Waits for work until that time at most. */
static void wait_until(struct kv_store_threads *threads, bool is_reader, int64_t ns) {
    const struct timespec end = {.tv_sec = ns / CLOCK_NS_PER_S, .tv_nsec = ns % CLOCK_NS_PER_S};
    sem_clockwait(&threads->changed[is_reader], CLOCK_MONOTONIC, &end);
}

/* --- The writer --- */

static void gather(unsigned char *block, const struct kv_store_job *job) {
    for (int32_t i = 0; i < job->num_parts; i++) {
        memcpy(block, job->parts[i].data, job->parts[i].bytes);
        block += job->parts[i].bytes;
    }
}

static void note_failure(struct kv_store_threads *threads) {
    atomic_fetch_add(&threads->num_failed_writes, 1);
    if (++threads->num_failures < MAX_FAILURES)
        return;
    log_warning("kv-store: %s: %s; writes nothing for a minute", threads->config.folder->path,
                strerror(errno));
    threads->num_failures = 0;
    atomic_store(&threads->paused_until_ns, clock_now_ns() + PAUSE_NS);
}

static void renew_files(struct kv_store_threads *threads, uint64_t generation) {
    if (generation == 0 || generation == threads->config.file->generation)
        return;
    if (kv_store_slots_renew(threads->config.file, &threads->write_room, generation) != 0)
        log_warning("kv-store: %s cannot be cleared: %s", threads->config.folder->path,
                    strerror(errno));
}

static void write_one(struct kv_store_threads *threads, struct kv_store_job *job) {
    job->begin_ns = clock_now_ns();
    int64_t drop_ns = atomic_load(&threads->drop_ns);
    job->is_dropped =
        kv_store_threads_is_paused(threads) || (drop_ns != 0 && job->begin_ns >= drop_ns);
    if (!job->is_dropped) {
        renew_files(threads, job->generation);
        gather(threads->write_room.block, job);
        job->is_ok = kv_store_slots_write(threads->config.file, &threads->write_room, job->slot,
                                          &job->content, job->num_drafted) == 0;
        if (job->is_ok)
            threads->num_failures = 0;
        else
            note_failure(threads);
    }
    end_job(threads, job);
}

static void lower_priority(void) {
    setpriority(PRIO_PROCESS, (id_t)gettid(), WRITER_NICE);
    syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, WRITER_IO_PRIORITY);
}

/* Writes the last uses if there are new ones. */
static void write_stamps(struct kv_store_threads *threads, const struct kv_store_index *owned) {
    if (owned == NULL || kv_store_index_last_stamp(owned) == threads->written_stamp)
        return;
    threads->written_stamp = kv_store_index_last_stamp(owned);
    if (kv_store_slots_write_stamps(threads->config.file, kv_store_index_stamps(owned)) != 0)
        log_debug("kv-store: %s: last uses: %s", threads->config.folder->path, strerror(errno));
}

static void run_once(struct kv_store_threads *threads, int64_t *stamps_ns) {
    struct kv_store_job *job = ring_take(&threads->to_do[false]);
    bool is_time = clock_now_ns() >= *stamps_ns;
    uint64_t generation = job == NULL ? atomic_exchange(&threads->renewed, 0) : 0;
    if (job != NULL)
        write_one(threads, job);
    else if (generation != 0)
        renew_files(threads, generation);
    else if (!is_time)
        wait_until(threads, false, *stamps_ns);
    if (is_time) {
        write_stamps(threads, atomic_load(&threads->owned));
        *stamps_ns = clock_now_ns() + STAMPS_NS;
    }
}

static void *writer_main(void *argument) {
    struct kv_store_threads *threads = argument;
    int64_t stamps_ns = clock_now_ns() + STAMPS_NS, stop_ns;
    lower_priority();
    while ((stop_ns = atomic_load(&threads->stop_ns)) == 0 ||
           (!ring_is_empty(&threads->to_do[false]) && clock_now_ns() < stop_ns))
        run_once(threads, &stamps_ns);
    renew_files(threads, atomic_load(&threads->renewed));
    write_stamps(threads, atomic_load(&threads->owned));
    return NULL;
}

/* --- The reader --- */

static void scatter(const unsigned char *block, const struct kv_store_job *job) {
    for (int32_t i = 0; i < job->num_parts; i++) {
        memcpy(job->parts[i].data, block, job->parts[i].bytes);
        block += job->parts[i].bytes;
    }
}

static void read_one(struct kv_store_threads *threads, struct kv_store_job *job, bool is_owner) {
    job->begin_ns = clock_now_ns();
    job->is_dropped = atomic_load(&threads->drop_ns) != 0;
    if (job->is_dropped) {
        end_job(threads, job);
        return;
    }
    atomic_store(&threads->reading_from_ns, job->begin_ns);
    enum kv_store_found found =
        kv_store_slots_read(threads->config.file, &threads->read_room, job->slot, job->generation,
                            &job->content, &job->num_drafted);
    atomic_store(&threads->reading_from_ns, 0);
    job->is_ok = found == KV_STORE_FOUND;
    /* Nobody else writes to the owner's records. */
    job->is_damaged = found == KV_STORE_DAMAGED || (found == KV_STORE_GONE && is_owner);
    if (job->is_ok)
        scatter(threads->read_room.block, job);
    end_job(threads, job);
}

static void add_found(void *context, int32_t slot, const struct block_content *content,
                      uint64_t stamp) {
    kv_store_index_load(context, slot, content, stamp);
}

void kv_store_keep_saved(struct kv_store_index *index, const struct kv_saved *saved) {
    for (int32_t i = 0; i < saved->num_keys; i++)
        for (int32_t group = 0; group < saved->num_groups; group++)
            kv_store_index_keep(index, &saved->keys[i], group);
}

static void keep_found(void *context, const struct kv_saved *saved) {
    kv_store_keep_saved(context, saved);
}

int kv_store_view_load(struct kv_store_view *view, const struct kv_store_file *file,
                       struct kv_store_room *room, uint64_t *num_damaged, struct error *err) {
    const struct kv_store_folder *folder = file->config.folder;
    struct kv_store_index *index = kv_store_index_create(file->num_slots, file->config.block_size);
    const struct kv_store_visitor visitor = {.found = add_found, .context = index};
    uint64_t num_changes = kv_store_file_num_changes(file);
    int32_t damaged = 0;
    if (index == NULL)
        return error_set(err, ERROR_MEMORY, "kv-store: no memory for an index of %d blocks",
                         file->num_slots);
    if (kv_store_slots_load(file, room, &visitor, &damaged, err) != 0) {
        kv_store_index_destroy(index);
        return -1;
    }
    if (folder->is_owner)
        kv_saved_visit(file, keep_found, index);
    kv_store_index_begin(index);
    if (damaged > 0 && folder->is_owner)
        log_warning("kv-store: %s: %d records are damaged, their blocks are lost", folder->path,
                    damaged);
    *num_damaged += folder->is_owner ? (uint64_t)damaged : 0;
    *view = (struct kv_store_view){.index = index,
                                   .generation = file->generation,
                                   .num_changes = num_changes,
                                   .is_owner = folder->is_owner};
    return 0;
}

static int make_empty_view(struct kv_store_view *view, const struct kv_store_file *file) {
    struct kv_store_index *index = kv_store_index_create(1, file->config.block_size);
    if (index == NULL)
        return -1;
    kv_store_index_begin(index);
    *view = (struct kv_store_view){.index = index};
    return 0;
}

/* Returns whether this process is the owner from now on. The files are of this store. */
static bool take_over(struct kv_store_threads *threads) {
    struct kv_store_folder *folder = threads->config.folder;
    if (!kv_store_folder_try_lock(folder))
        return false;
    if (kv_store_file_refresh(threads->config.file, &threads->read_room, NULL) == 0)
        return true;
    kv_store_folder_unlock(folder); /* it is to be another's */
    return false;
}

static void destroy_view(struct kv_store_view *view) {
    if (view != NULL)
        kv_store_index_destroy(view->index);
    free(view);
}

static void offer_view(struct kv_store_threads *threads, struct kv_store_view *view) {
    bool is_owner = view->is_owner;
    if (is_owner)
        atomic_store(&threads->owned, view->index);
    destroy_view(atomic_exchange(&threads->next_view, view));
    if (is_owner)
        log_info("kv-store: %s is owned by this process now", threads->config.folder->path);
}

/* Returns NULL when memory is short. */
static struct kv_store_view *read_view(struct kv_store_threads *threads, bool fits) {
    struct kv_store_view *view = calloc(1, sizeof(*view));
    uint64_t num_damaged = 0;
    if (view == NULL)
        return NULL;
    int status = fits ? kv_store_view_load(view, threads->config.file, &threads->read_room,
                                           &num_damaged, NULL)
                      : make_empty_view(view, threads->config.file);
    if (status == 0)
        return view;
    free(view);
    return NULL;
}

/* Looks whether the owner has ended or has changed something. Returns when to look again. */
static int64_t watch_owner(struct kv_store_threads *threads) {
    struct kv_store_file *file = threads->config.file;
    int64_t begin_ns = clock_now_ns();
    uint64_t changes = kv_store_file_num_changes(file);
    bool fits = kv_store_file_refresh(file, &threads->read_room, NULL) == 0;
    bool is_owner = fits && take_over(threads);
    if (is_owner || changes != threads->seen_changes) {
        struct kv_store_view *view = read_view(threads, fits);
        if (view != NULL) {
            threads->seen_changes = changes;
            offer_view(threads, view);
        } else if (is_owner) {
            kv_store_folder_unlock(threads->config.folder);
        }
    }
    int64_t end_ns = clock_now_ns();
    return end_ns + max_int64(WATCH_NS, (end_ns - begin_ns) * WATCH_SHARE);
}

static void *reader_main(void *argument) {
    struct kv_store_threads *threads = argument;
    int64_t watch_ns = clock_now_ns() + WATCH_NS;
    while (atomic_load(&threads->stop_ns) == 0) {
        bool is_owner = atomic_load(&threads->owned) != NULL;
        struct kv_store_job *job = ring_take(&threads->to_do[true]);
        kv_store_index_destroy(atomic_exchange(&threads->old_index, NULL));
        if (atomic_exchange(&threads->has_written, false))
            call_wake(threads);
        if (job != NULL)
            read_one(threads, job, is_owner);
        else if (is_owner)
            sem_wait(&threads->changed[true]);
        else
            wait_until(threads, true, watch_ns);
        if (!is_owner && clock_now_ns() >= watch_ns)
            watch_ns = watch_owner(threads);
    }
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

void kv_store_threads_free_job(struct kv_store_threads *threads, struct kv_store_job *job) {
    job->next = threads->unused[job->is_read];
    threads->unused[job->is_read] = job;
}

void kv_store_threads_submit(struct kv_store_threads *threads, struct kv_store_job *job) {
    bool is_read = job->is_read;
    ring_add(&threads->to_do[is_read], job);
    sem_post(&threads->changed[is_read]);
}

struct kv_store_job *kv_store_threads_next_done(struct kv_store_threads *threads) {
    struct kv_store_job *job = ring_take(&threads->done[true]);
    return job != NULL ? job : ring_take(&threads->done[false]);
}

size_t kv_store_threads_bytes(const struct kv_store_file *file) {
    size_t of_job = sizeof(struct kv_store_job) + (size_t)file->config.block_size * sizeof(int32_t);
    return sizeof(struct kv_store_threads) + 2 * KV_STORE_MAX_JOBS * of_job + 2 * file->slot_bytes;
}

static int32_t ring_length(struct job_ring *ring) {
    return (int32_t)(atomic_load(&ring->num_added) - atomic_load(&ring->num_taken));
}

void kv_store_threads_await(struct kv_store_threads *threads, int32_t num_jobs) {
    atomic_store(&threads->drop_ns, clock_now_ns() + CLOSE_NS);
    pthread_mutex_lock(&threads->wake_lock);
    while (ring_length(&threads->done[false]) + ring_length(&threads->done[true]) < num_jobs)
        pthread_cond_wait(&threads->job_ended, &threads->wake_lock);
    pthread_mutex_unlock(&threads->wake_lock);
    atomic_store(&threads->drop_ns, 0);
}

void kv_store_threads_set_wake(struct kv_store_threads *threads, void (*wake)(void *context),
                               void *context) {
    pthread_mutex_lock(&threads->wake_lock);
    threads->config.wake = wake;
    threads->config.context = context;
    pthread_mutex_unlock(&threads->wake_lock);
}

int64_t kv_store_threads_reading_ns(const struct kv_store_threads *threads) {
    int64_t from_ns = atomic_load(&threads->reading_from_ns);
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
    sem_post(&threads->changed[true]);
    return true;
}

void kv_store_threads_get_work(struct kv_store_threads *threads, struct kv_store_work *out) {
    *out = (struct kv_store_work){.num_written = atomic_load(&threads->num_done[false]),
                                  .num_read = atomic_load(&threads->num_done[true]),
                                  .bytes_written = atomic_load(&threads->bytes_done[false]),
                                  .bytes_read = atomic_load(&threads->bytes_done[true]),
                                  .num_failed_writes = atomic_load(&threads->num_failed_writes),
                                  .write_ns = atomic_load(&threads->work_ns[false]),
                                  .read_ns = atomic_load(&threads->work_ns[true])};
}

/* --- Life --- */

static int allocate(struct kv_store_threads *threads, struct error *err) {
    const struct kv_store_file *file = threads->config.file;
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
    if (kv_store_room_init(&threads->write_room, file, err) != 0)
        return -1;
    return kv_store_room_init(&threads->read_room, file, err);
}

/* Signals are for other threads. */
static int start(struct kv_store_threads *threads, struct error *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&threads->writer, NULL, writer_main, threads);
    threads->num_started += status == 0;
    if (status == 0)
        status = pthread_create(&threads->reader, NULL, reader_main, threads);
    threads->num_started += status == 0 && threads->num_started == 1;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status != 0)
        return error_set(err, ERROR_IO, "kv-store: cannot start a thread: %s", strerror(status));
    pthread_setname_np(threads->writer, "quire-kv-write");
    pthread_setname_np(threads->reader, "quire-kv-read");
    return 0;
}

int kv_store_threads_create(const struct kv_store_threads_config *config,
                            const struct kv_store_view *view, struct kv_store_threads **out,
                            struct error *err) {
    struct kv_store_threads *threads = calloc(1, sizeof(*threads));
    if (threads == NULL)
        return error_set(err, ERROR_MEMORY, "kv-store: no memory for its threads");
    threads->config = *config;
    atomic_init(&threads->owned, view->is_owner ? view->index : NULL);
    threads->seen_changes = view->num_changes;
    CHECK(pthread_mutex_init(&threads->wake_lock, NULL) == 0);
    CHECK(pthread_cond_init(&threads->job_ended, NULL) == 0);
    CHECK(sem_init(&threads->changed[false], 0, 0) == 0);
    CHECK(sem_init(&threads->changed[true], 0, 0) == 0);
    if (allocate(threads, err) != 0 || start(threads, err) != 0) {
        kv_store_threads_destroy(threads);
        return -1;
    }
    *out = threads;
    return 0;
}

void kv_store_threads_destroy(struct kv_store_threads *threads) {
    if (threads == NULL)
        return;
    atomic_store(&threads->stop_ns, clock_now_ns() + CLOSE_NS);
    sem_post(&threads->changed[false]);
    sem_post(&threads->changed[true]);
    if (threads->num_started >= 1)
        CHECK(pthread_join(threads->writer, NULL) == 0);
    if (threads->num_started >= 2)
        CHECK(pthread_join(threads->reader, NULL) == 0);
    pthread_cond_destroy(&threads->job_ended);
    pthread_mutex_destroy(&threads->wake_lock);
    sem_destroy(&threads->changed[false]);
    sem_destroy(&threads->changed[true]);
    kv_store_room_finish(&threads->write_room);
    kv_store_room_finish(&threads->read_room);
    destroy_view(atomic_load(&threads->next_view));
    kv_store_index_destroy(atomic_load(&threads->old_index));
    free(threads->tokens);
    free(threads->jobs);
    free(threads);
}
