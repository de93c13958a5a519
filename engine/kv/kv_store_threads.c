#include "engine/kv/kv_store_threads.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "config/base/numbers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WRITER_NICE 19
#define WRITER_IO_PRIORITY ((2 << 13) | 7) /* the lowest of class best-effort */
#define CLOSE_NS (3 * CLOCK_NS_PER_S)
#define STAMPS_NS (60 * CLOCK_NS_PER_S) /* between two writes of them */
#define WATCH_NS CLOCK_NS_PER_S         /* between two looks at what the owner has changed */
#define WATCH_SHARE 20                  /* of the reading thread's time is spent on that at most */
#define MAX_FAILURES 8                  /* in a row; then it pauses */
#define PAUSE_NS (60 * CLOCK_NS_PER_S)

struct job_queue {
    struct kv_store_job *first, **end;
};

struct kv_store_threads {
    struct kv_store_threads_config config;
    struct kv_store_room write_room, read_room;
    struct kv_store_job *jobs; /* [2 * KV_STORE_MAX_JOBS] */
    int32_t *tokens;           /* of the jobs */
    struct kv_store_job *unused[2];
    pthread_t writer, reader;
    int32_t num_started;
    _Atomic int64_t paused_until_ns;
    atomic_int num_done;
    atomic_bool has_view;
    int32_t num_failures;   /* in a row; writer only */
    uint64_t written_stamp; /* writer only */
    uint64_t seen_changes;  /* reader only */

    pthread_mutex_t lock;
    pthread_cond_t to_write_changed, to_read_changed;
    /* guarded by lock */
    struct job_queue to_write, to_read, done;
    const struct kv_store_index *owned; /* NULL: not the owner */
    uint64_t renewed;                   /* generation that the files are to have, if it differs */
    struct kv_store_view next_view;     /* index NULL: none */
    struct kv_store_index *old_index;
    struct kv_store_work work;
    int64_t stop_ns; /* 0: not stopping */
};

/* --- Queues --- */

static void queue_init(struct job_queue *queue) {
    queue->first = NULL;
    queue->end = &queue->first;
}

static void queue_add(struct job_queue *queue, struct kv_store_job *job) {
    job->next = NULL;
    *queue->end = job;
    queue->end = &job->next;
}

static struct kv_store_job *queue_take(struct job_queue *queue) {
    struct kv_store_job *job = queue->first;
    if (job == NULL)
        return NULL;
    queue->first = job->next;
    if (queue->first == NULL)
        queue->end = &queue->first;
    return job;
}

/* Called with the lock. */
static void end_job(struct kv_store_threads *threads, struct kv_store_job *job) {
    job->end_ns = clock_now_ns();
    queue_add(&threads->done, job);
    atomic_fetch_add(&threads->num_done, 1);
    pthread_mutex_unlock(&threads->lock);
    threads->config.wake(threads->config.context);
    pthread_mutex_lock(&threads->lock);
}

/* Returns at that time at the latest. Called with the lock. */
static void wait_until(struct kv_store_threads *threads, pthread_cond_t *changed, int64_t ns) {
    const struct timespec end = {.tv_sec = ns / CLOCK_NS_PER_S, .tv_nsec = ns % CLOCK_NS_PER_S};
    pthread_cond_timedwait(changed, &threads->lock, &end);
}

/* --- The writer --- */

static void gather(unsigned char *block, const struct kv_store_job *job) {
    for (int32_t i = 0; i < job->num_parts; i++) {
        memcpy(block, job->parts[i].data, job->parts[i].bytes);
        block += job->parts[i].bytes;
    }
}

static void note_failure(struct kv_store_threads *threads) {
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
    int64_t begin_ns = clock_now_ns();
    renew_files(threads, job->generation);
    if (!kv_store_threads_is_paused(threads)) {
        gather(threads->write_room.block, job);
        job->is_ok = kv_store_slots_write(threads->config.file, &threads->write_room, job->slot,
                                          &job->content, job->num_drafted) == 0;
        if (job->is_ok)
            threads->num_failures = 0;
        else
            note_failure(threads);
    }
    int64_t ns = clock_now_ns() - begin_ns;
    pthread_mutex_lock(&threads->lock);
    threads->work.write_ns += (uint64_t)ns;
    threads->work.num_written += job->is_ok;
    threads->work.num_failed_writes += !job->is_ok;
    if (job->is_ok)
        threads->work.bytes_written += threads->config.file->config.block_bytes;
    end_job(threads, job);
    pthread_mutex_unlock(&threads->lock);
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

/* Called with the lock, which it gives back for the time of the work. */
static void run_once(struct kv_store_threads *threads, int64_t *stamps_ns) {
    struct kv_store_job *job = queue_take(&threads->to_write);
    const struct kv_store_index *owned = threads->owned;
    uint64_t generation = threads->renewed;
    bool is_time = clock_now_ns() >= *stamps_ns;
    if (job == NULL && generation == 0 && !is_time) {
        wait_until(threads, &threads->to_write_changed, *stamps_ns);
        return;
    }
    if (job == NULL)
        threads->renewed = 0;
    pthread_mutex_unlock(&threads->lock);
    if (job != NULL)
        write_one(threads, job);
    else
        renew_files(threads, generation);
    if (is_time) {
        write_stamps(threads, owned);
        *stamps_ns = clock_now_ns() + STAMPS_NS;
    }
    pthread_mutex_lock(&threads->lock);
}

static void *writer_main(void *argument) {
    struct kv_store_threads *threads = argument;
    int64_t stamps_ns = clock_now_ns() + STAMPS_NS;
    lower_priority();
    pthread_mutex_lock(&threads->lock);
    while (threads->stop_ns == 0 ||
           (threads->to_write.first != NULL && clock_now_ns() < threads->stop_ns))
        run_once(threads, &stamps_ns);
    uint64_t generation = threads->renewed;
    const struct kv_store_index *owned = threads->owned;
    pthread_mutex_unlock(&threads->lock);
    renew_files(threads, generation);
    write_stamps(threads, owned);
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
    int64_t begin_ns = clock_now_ns();
    enum kv_store_found found =
        kv_store_slots_read(threads->config.file, &threads->read_room, job->slot, job->generation,
                            &job->content, &job->num_drafted);
    job->is_ok = found == KV_STORE_FOUND;
    /* Nobody else writes to the owner's records. */
    job->is_damaged = found == KV_STORE_DAMAGED || (found == KV_STORE_GONE && is_owner);
    if (job->is_ok)
        scatter(threads->read_room.block, job);
    int64_t ns = clock_now_ns() - begin_ns;
    pthread_mutex_lock(&threads->lock);
    threads->work.read_ns += (uint64_t)ns;
    threads->work.num_read += job->is_ok;
    if (job->is_ok)
        threads->work.bytes_read += threads->config.file->config.block_bytes;
    end_job(threads, job);
    pthread_mutex_unlock(&threads->lock);
}

static void add_found(void *context, int32_t slot, const struct block_content *content,
                      uint64_t stamp) {
    kv_store_index_load(context, slot, content, stamp);
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

static void offer_view(struct kv_store_threads *threads, const struct kv_store_view *view) {
    pthread_mutex_lock(&threads->lock);
    struct kv_store_index *unseen = threads->next_view.index;
    threads->next_view = *view;
    if (view->is_owner)
        threads->owned = view->index;
    atomic_store(&threads->has_view, true);
    pthread_mutex_unlock(&threads->lock);
    kv_store_index_destroy(unseen);
    if (view->is_owner)
        log_info("kv-store: %s is owned by this process now", threads->config.folder->path);
}

/* Looks whether the owner has ended or has changed something. Returns when to look again. */
static int64_t watch_owner(struct kv_store_threads *threads) {
    struct kv_store_file *file = threads->config.file;
    struct kv_store_view view;
    uint64_t num_damaged = 0;
    int64_t begin_ns = clock_now_ns();
    uint64_t changes = kv_store_file_num_changes(file);
    bool fits = kv_store_file_refresh(file, &threads->read_room, NULL) == 0;
    bool is_owner = fits && take_over(threads);
    if (is_owner || changes != threads->seen_changes) {
        int status = fits ? kv_store_view_load(&view, file, &threads->read_room, &num_damaged, NULL)
                          : make_empty_view(&view, file);
        if (status == 0) {
            threads->seen_changes = changes;
            offer_view(threads, &view);
        } else if (is_owner) {
            kv_store_folder_unlock(threads->config.folder);
        }
    }
    int64_t end_ns = clock_now_ns();
    return end_ns + max_int64(WATCH_NS, (end_ns - begin_ns) * WATCH_SHARE);
}

static void *reader_main(void *argument) {
    struct kv_store_threads *threads = argument;
    int64_t watch_ns = clock_now_ns();
    pthread_mutex_lock(&threads->lock);
    while (threads->stop_ns == 0) {
        struct kv_store_index *old = threads->old_index;
        bool is_owner = threads->owned != NULL, watches = !is_owner;
        struct kv_store_job *job = queue_take(&threads->to_read);
        threads->old_index = NULL;
        if (job == NULL && old == NULL && !(watches && clock_now_ns() >= watch_ns)) {
            if (watches)
                wait_until(threads, &threads->to_read_changed, watch_ns);
            else
                pthread_cond_wait(&threads->to_read_changed, &threads->lock);
            continue;
        }
        pthread_mutex_unlock(&threads->lock);
        kv_store_index_destroy(old);
        if (job != NULL)
            read_one(threads, job, is_owner);
        if (watches && clock_now_ns() >= watch_ns)
            watch_ns = watch_owner(threads);
        pthread_mutex_lock(&threads->lock);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

/* --- For the engine's thread --- */

struct kv_store_job *kv_store_threads_new_job(struct kv_store_threads *threads, bool is_read) {
    struct kv_store_job *job = threads->unused[is_read];
    if (job == NULL)
        return NULL;
    threads->unused[is_read] = job->next;
    int32_t *tokens = job->tokens;
    *job = (struct kv_store_job){.is_read = is_read, .tokens = tokens, .begin_ns = clock_now_ns()};
    return job;
}

void kv_store_threads_free_job(struct kv_store_threads *threads, struct kv_store_job *job) {
    job->next = threads->unused[job->is_read];
    threads->unused[job->is_read] = job;
}

void kv_store_threads_submit(struct kv_store_threads *threads, struct kv_store_job *job) {
    pthread_mutex_lock(&threads->lock);
    queue_add(job->is_read ? &threads->to_read : &threads->to_write, job);
    pthread_cond_signal(job->is_read ? &threads->to_read_changed : &threads->to_write_changed);
    pthread_mutex_unlock(&threads->lock);
}

struct kv_store_job *kv_store_threads_next_done(struct kv_store_threads *threads) {
    if (atomic_load(&threads->num_done) == 0)
        return NULL;
    pthread_mutex_lock(&threads->lock);
    struct kv_store_job *job = queue_take(&threads->done);
    pthread_mutex_unlock(&threads->lock);
    atomic_fetch_sub(&threads->num_done, 1);
    return job;
}

bool kv_store_threads_is_paused(struct kv_store_threads *threads) {
    return clock_now_ns() < atomic_load(&threads->paused_until_ns);
}

void kv_store_threads_renew(struct kv_store_threads *threads, uint64_t generation) {
    pthread_mutex_lock(&threads->lock);
    threads->renewed = generation;
    pthread_cond_signal(&threads->to_write_changed);
    pthread_mutex_unlock(&threads->lock);
}

bool kv_store_threads_next_view(struct kv_store_threads *threads, struct kv_store_view *view) {
    if (!atomic_load(&threads->has_view))
        return false;
    pthread_mutex_lock(&threads->lock);
    bool has_view = threads->next_view.index != NULL && threads->old_index == NULL;
    if (has_view) {
        threads->old_index = view->index;
        *view = threads->next_view;
        threads->next_view.index = NULL;
        atomic_store(&threads->has_view, false);
        pthread_cond_signal(&threads->to_read_changed);
    }
    pthread_mutex_unlock(&threads->lock);
    return has_view;
}

void kv_store_threads_get_work(struct kv_store_threads *threads, struct kv_store_work *out) {
    pthread_mutex_lock(&threads->lock);
    *out = threads->work;
    pthread_mutex_unlock(&threads->lock);
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
    pthread_condattr_t monotonic;
    if (threads == NULL)
        return error_set(err, ERROR_MEMORY, "kv-store: no memory for its threads");
    threads->config = *config;
    threads->owned = view->is_owner ? view->index : NULL;
    threads->seen_changes = view->num_changes;
    queue_init(&threads->to_write);
    queue_init(&threads->to_read);
    queue_init(&threads->done);
    CHECK(pthread_condattr_init(&monotonic) == 0);
    CHECK(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_mutex_init(&threads->lock, NULL) == 0);
    CHECK(pthread_cond_init(&threads->to_write_changed, &monotonic) == 0);
    CHECK(pthread_cond_init(&threads->to_read_changed, &monotonic) == 0);
    pthread_condattr_destroy(&monotonic);
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
    pthread_mutex_lock(&threads->lock);
    threads->stop_ns = clock_now_ns() + CLOSE_NS;
    pthread_cond_signal(&threads->to_write_changed);
    pthread_cond_signal(&threads->to_read_changed);
    pthread_mutex_unlock(&threads->lock);
    if (threads->num_started >= 1)
        CHECK(pthread_join(threads->writer, NULL) == 0);
    if (threads->num_started >= 2)
        CHECK(pthread_join(threads->reader, NULL) == 0);
    pthread_cond_destroy(&threads->to_read_changed);
    pthread_cond_destroy(&threads->to_write_changed);
    pthread_mutex_destroy(&threads->lock);
    kv_store_room_finish(&threads->write_room);
    kv_store_room_finish(&threads->read_room);
    kv_store_index_destroy(threads->next_view.index);
    kv_store_index_destroy(threads->old_index);
    free(threads->tokens);
    free(threads->jobs);
    free(threads);
}
