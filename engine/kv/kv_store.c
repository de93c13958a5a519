#include "engine/kv/kv_store.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "engine/kv/kv_store_saved.h"
#include "engine/kv/kv_store_threads.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define LOG_NS (10 * CLOCK_NS_PER_S) /* between two lines about damaged blocks */
#define HANG_NS (5 * CLOCK_NS_PER_S) /* after which a thread's jobs are abandoned */
#define OPEN_NS (2 * CLOCK_NS_PER_S) /* for an owner to make the files */
#define OPEN_PAUSE_NS (20 * CLOCK_NS_PER_MS)

/* What was saved or erased, for the engine's thread. */
struct kept_change {
    struct kept_change *next;
    struct kv_saved before, after; /* without their data */
};

struct kv_store {
    struct kv_store_folder folder;
    struct kv_store_file file; /* the threads' */
    struct kv_store_threads *threads;
    struct kv_store_view view;
    uint64_t epoch;     /* grows when slots get another meaning */
    uint64_t forgotten; /* generation of which nothing is found */
    size_t block_bytes;
    int32_t block_size;
    int32_t num_jobs; /* accepted, not reported */
    bool hangs[2];    /* the writer, the reader */
    int64_t logged_ns;
    pthread_mutex_t saved_lock; /* of changes to the files in saved/, and of the next two */
    struct kept_change *first_change, **last_change;
    atomic_bool has_changes;
    /* for any thread */
    _Atomic int32_t num_blocks, max_blocks, num_kept;
    atomic_bool is_owner;
    _Atomic uint64_t num_evicted, num_damaged;
};

/* --- Life --- */

static void publish_counts(struct kv_store *store) {
    atomic_store_explicit(&store->num_blocks, kv_store_index_num_known(store->view.index),
                          memory_order_relaxed);
    atomic_store_explicit(&store->max_blocks, kv_store_index_num_slots(store->view.index),
                          memory_order_relaxed);
    atomic_store_explicit(&store->num_kept, kv_store_index_num_kept(store->view.index),
                          memory_order_relaxed);
    atomic_store_explicit(&store->is_owner, store->view.is_owner, memory_order_relaxed);
}

static int open_files(struct kv_store *store, const struct kv_store_config *config,
                      struct error *err) {
    const struct kv_store_folder_config folder = {.directory = config->directory,
                                                  .key_file = config->key_file,
                                                  .forgets = config->forgets,
                                                  .read_only = config->read_only,
                                                  .is_shared = config->is_shared};
    struct kv_store_file_config file = {.folder = &store->folder,
                                        .block_bytes = config->block_bytes,
                                        .block_size = config->block_size,
                                        .max_bytes = config->max_bytes,
                                        .read_only = config->read_only,
                                        .hurries = config->hurries};
    memcpy(file.identity, config->identity, sizeof(file.identity));
    if (kv_store_folder_open(&store->folder, &folder, err) != 0)
        return -1;
    if (kv_store_file_open(&store->file, &file, err) == 0)
        return 0;
    kv_store_folder_close(&store->folder);
    return -1;
}

/* Another process that has just started may not have made all files yet. */
static int open_made_files(struct kv_store *store, const struct kv_store_config *config,
                           struct error *err) {
    const struct timespec pause = {.tv_nsec = OPEN_PAUSE_NS};
    int64_t end_ns = clock_now_ns() + OPEN_NS;
    while (open_files(store, config, err) != 0) {
        if (err->code != ERROR_UNAVAILABLE || config->read_only || config->forgets ||
            clock_now_ns() >= end_ns)
            return -1;
        nanosleep(&pause, NULL);
    }
    return 0;
}

int kv_store_open(const struct kv_store_config *config, struct kv_store **out, struct error *err) {
    struct kv_store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return error_set(err, ERROR_MEMORY, "kv-store: no memory");
    CHECK(pthread_mutex_init(&store->saved_lock, NULL) == 0);
    store->last_change = &store->first_change;
    store->folder.fd = store->folder.lock_fd = -1;
    store->file.records_fd = store->file.slots_fd = -1;
    store->block_bytes = config->block_bytes;
    store->block_size = config->block_size;
    store->logged_ns = -LOG_NS;
    uint64_t num_damaged = 0;
    if (open_made_files(store, config, err) != 0 ||
        kv_store_threads_create(&store->file, config->wake, config->context, &store->view,
                                &num_damaged, &store->threads, err) != 0) {
        kv_store_close(store);
        return -1;
    }
    atomic_store(&store->num_damaged, num_damaged);
    publish_counts(store);
    *out = store;
    return 0;
}

static void free_change(struct kept_change *change) {
    kv_saved_finish(&change->before);
    kv_saved_finish(&change->after);
    free(change);
}

/* Keeps what was saved, and no longer what was before. */
static void apply_change(struct kv_store *store, const struct kept_change *change) {
    kv_saved_unkeep(store->view.index, &change->before);
    kv_saved_keep(store->view.index, &change->after);
}

static void apply_changes(struct kv_store *store) {
    if (!atomic_exchange(&store->has_changes, false))
        return;
    pthread_mutex_lock(&store->saved_lock);
    struct kept_change *change = store->first_change;
    store->first_change = NULL;
    store->last_change = &store->first_change;
    pthread_mutex_unlock(&store->saved_lock);
    while (change != NULL) {
        struct kept_change *next = change->next;
        apply_change(store, change);
        free_change(change);
        change = next;
    }
    publish_counts(store);
}

void kv_store_close(struct kv_store *store) {
    if (store == NULL)
        return;
    if (store->threads != NULL)
        kv_store_threads_end_jobs(store->threads);
    if (!kv_store_threads_destroy(store->threads)) {
        log_warning("kv-store: %s does not answer; it is left", store->folder.path);
        return;
    }
    apply_changes(store);
    pthread_mutex_destroy(&store->saved_lock);
    kv_store_index_destroy(store->view.index);
    kv_store_file_close(&store->file);
    kv_store_folder_close(&store->folder);
    free(store);
}

const struct block_key_secret *kv_store_secret(const struct kv_store *store) {
    return &store->folder.secret;
}

bool kv_store_is_owner(const struct kv_store *store) {
    return store->view.is_owner;
}

bool kv_store_is_idle(const struct kv_store *store) {
    return store->num_jobs == 0;
}

void kv_store_set_wake(struct kv_store *store, void (*wake)(void *context), void *context) {
    CHECK(store->num_jobs == 0);
    kv_store_threads_set_wake(store->threads, wake, context);
}

void kv_store_name(const struct kv_store *store, char out[static KV_STORE_NAME_BYTES]) {
    const struct kv_store_file_config *file = &store->file.config;
    const struct block_key none = {0};
    struct block_key key =
        block_key_root_of(&store->folder.secret, &none, file->identity, sizeof(file->identity));
    snprintf(out, KV_STORE_NAME_BYTES, "quire-%016" PRIx64, key.high);
}

int64_t kv_store_reading_ns(const struct kv_store *store) {
    return kv_store_threads_busy_ns(store->threads, true);
}

void kv_store_drain(const struct kv_store *store) {
    kv_store_threads_end_jobs(store->threads);
}

/* --- Use --- */

/* Uses what the threads have found that others have changed. */
static void update_view(struct kv_store *store) {
    uint64_t generation = store->view.generation;
    bool was_owner = store->view.is_owner;
    if (!kv_store_threads_next_view(store->threads, &store->view))
        return;
    bool is_forgotten = store->view.generation == store->forgotten;
    store->epoch++;
    if (was_owner) { /* it may have been read before all was forgotten */
        is_forgotten = store->view.generation != generation;
        store->view.generation = generation;
    }
    if (is_forgotten)
        kv_store_index_clear(store->view.index);
    publish_counts(store);
    if (is_forgotten && store->view.is_owner && !was_owner)
        kv_store_forget_all(store);
}

/* Takes nothing more from or to a disk that does not answer, until it does. */
static void look_for_hangs(struct kv_store *store) {
    for (int i = 0; i < 2; i++) {
        bool hangs = kv_store_threads_busy_ns(store->threads, i) > HANG_NS;
        if (hangs && !store->hangs[i])
            log_warning("kv-store: %s does not answer for %d s: %s", store->folder.path,
                        (int)(HANG_NS / CLOCK_NS_PER_S),
                        i == 0 ? "nothing is written" : "what it has is computed");
        if (hangs)
            kv_store_threads_abandon(store->threads, i);
        store->hangs[i] = hangs;
    }
}

static int32_t find(struct kv_store *store, const struct block_content *content) {
    int32_t slot = store->hangs[true] ? -1 : kv_store_index_find(store->view.index, content);
    if (slot >= 0)
        kv_store_index_touch(store->view.index, slot);
    return slot;
}

bool kv_store_has(struct kv_store *store, const struct block_content *content) {
    return find(store, content) >= 0;
}

static void fill_job(const struct kv_store *store, struct kv_store_job *job,
                     const struct block_content *content, const struct kv_store_part *parts,
                     int32_t num_parts) {
    size_t bytes = 0;
    CHECK(num_parts >= 1 && num_parts <= KV_STORE_MAX_PARTS);
    for (int32_t i = 0; i < num_parts; i++) {
        bytes += parts[i].bytes;
        job->parts[i] = parts[i];
    }
    CHECK(bytes == store->block_bytes);
    job->num_parts = num_parts;
    job->generation = store->view.generation;
    job->epoch = store->epoch;
    job->content = (struct block_content){.key = content->key,
                                          .group = content->group,
                                          .previous = content->previous,
                                          .tokens = job->tokens};
    memcpy(job->tokens, content->tokens, (size_t)store->block_size * sizeof(*job->tokens));
}

bool kv_store_write(struct kv_store *store, const struct block_content *content,
                    int32_t num_drafted, const struct kv_store_part *parts, int32_t num_parts,
                    int32_t tag) {
    bool evicted = false;
    struct block_content left;
    if (!store->view.is_owner || store->hangs[false] || kv_store_threads_is_paused(store->threads))
        return false;
    struct kv_store_job *job = kv_store_threads_new_job(store->threads, false);
    if (job == NULL)
        return false;
    job->slot = kv_store_index_take(store->view.index, content, &evicted, &left);
    if (job->slot < 0) {
        kv_store_threads_free_job(store->threads, job);
        return false;
    }
    if (evicted)
        atomic_fetch_add_explicit(&store->num_evicted, 1, memory_order_relaxed);
    fill_job(store, job, content, parts, num_parts);
    job->has_left = evicted;
    if (evicted)
        job->left = left;
    job->num_drafted = num_drafted;
    job->tag = tag;
    store->num_jobs++;
    publish_counts(store);
    kv_store_threads_submit(store->threads, job);
    return true;
}

bool kv_store_read(struct kv_store *store, const struct block_content *content,
                   const struct kv_store_part *parts, int32_t num_parts, int32_t tag) {
    int32_t slot = find(store, content);
    struct kv_store_job *job = slot >= 0 ? kv_store_threads_new_job(store->threads, true) : NULL;
    if (job == NULL)
        return false;
    fill_job(store, job, content, parts, num_parts);
    job->slot = slot;
    job->tag = tag;
    kv_store_index_pin(store->view.index, slot);
    store->num_jobs++;
    kv_store_threads_submit(store->threads, job);
    return true;
}

static void note_damage(struct kv_store *store, int64_t now_ns) {
    uint64_t count = atomic_fetch_add_explicit(&store->num_damaged, 1, memory_order_relaxed) + 1;
    if (now_ns - store->logged_ns < LOG_NS)
        return;
    store->logged_ns = now_ns;
    log_warning("kv-store: %s: a block is damaged and computed again (%llu since the start)",
                store->folder.path, (unsigned long long)count);
}

/* Slots still mean what they did when the job was accepted. Of an abandoned one the result is not
 * known. */
static void apply(struct kv_store *store, const struct kv_store_job *job, bool is_ok) {
    struct kv_store_index *index = store->view.index;
    bool is_known = job->state == JOB_ENDED;
    if (!job->is_read && is_ok)
        kv_store_index_written(index, job->slot);
    else if (!job->is_read || (is_known && !is_ok))
        kv_store_index_drop(index, job->slot);
    if (job->is_read)
        kv_store_index_unpin(index, job->slot);
    if (is_known && job->is_damaged)
        note_damage(store, job->end_ns);
}

/* Adds what is in the folder, but not in the view of it. What leaves for it does not leave the
 * folder; the next listing sees to that. */
static void add_known(struct kv_store *store, const struct block_content *content) {
    struct block_content left;
    bool evicted;
    int32_t slot = kv_store_index_take(store->view.index, content, &evicted, &left);
    if (slot >= 0)
        kv_store_index_written(store->view.index, slot);
}

void kv_store_expect(struct kv_store *store, const struct block_content *content) {
    if (store->folder.is_shared)
        add_known(store, content);
}

bool kv_store_next_done(struct kv_store *store, struct kv_store_done *out) {
    update_view(store);
    apply_changes(store);
    look_for_hangs(store);
    struct kv_store_job *job = kv_store_threads_next_done(store->threads);
    if (job == NULL)
        return false;
    *out = (struct kv_store_done){.tag = job->tag, .is_read = job->is_read};
    if (job->state == JOB_ENDED) {
        /* What was verified stays right when a new view gives slots another meaning. */
        bool is_forgotten =
            job->generation == store->forgotten || job->generation != store->view.generation;
        out->is_ok = job->is_ok && !(job->is_read && is_forgotten);
        out->num_drafted = job->num_drafted;
        out->ns = job->end_ns - job->begin_ns;
    }
    if (job->epoch == store->epoch)
        apply(store, job, job->state == JOB_ENDED && job->is_ok);
    else if (!job->is_read && out->is_ok && job->generation == store->view.generation)
        add_known(store, &job->content); /* it may have been written while the folder was listed */
    kv_store_threads_free_job(store->threads, job);
    store->num_jobs--;
    publish_counts(store);
    return true;
}

void kv_store_forget_all(struct kv_store *store) {
    uint64_t generation;
    update_view(store);
    store->epoch++;
    store->forgotten = store->view.generation;
    kv_store_index_clear(store->view.index);
    publish_counts(store);
    if (!store->view.is_owner)
        return;
    if (getrandom(&generation, sizeof(generation), 0) != (ssize_t)sizeof(generation))
        generation = store->view.generation + 1;
    store->view.generation = generation;
    kv_store_threads_renew(store->threads, generation);
}

/* --- Saved conversations --- */

static int refuse_change(const struct kv_store *store, struct error *err) {
    if (store->file.config.read_only)
        return error_set(err, ERROR_CONFIG, "kv-store: this server only reads it");
    return error_set(err, ERROR_CONFIG, "kv-store: another process owns it; ask that one");
}

/* Returns how many more blocks are kept after a change. */
static int64_t num_more_kept(const struct kept_change *change) {
    return (int64_t)change->after.num_keys * change->after.num_groups -
           (int64_t)change->before.num_keys * change->before.num_groups;
}

static int check_room(const struct kv_store *store, const struct kept_change *change,
                      struct error *err) {
    int64_t num_kept = atomic_load(&store->num_kept), more = num_more_kept(change);
    int32_t most = kv_store_index_max_kept(atomic_load(&store->max_blocks));
    if (more <= 0 || num_kept + more <= most)
        return 0;
    return error_set(err, ERROR_CONFIG,
                     "kv-store: saved conversations have %lld blocks, and at most half of the "
                     "store's, %d, are kept for them: %lld more do not fit; erase others or raise "
                     "--kv-store-bytes",
                     (long long)num_kept, (int)most, (long long)more);
}

/* Has the engine's thread see it. */
static void add_change(struct kv_store *store, struct kept_change *change) {
    *store->last_change = change;
    store->last_change = &change->next;
    atomic_store(&store->has_changes, true);
}

/* Reads what the name has now, if anything. */
static struct kept_change *begin_change(const struct kv_store *store, const char *name,
                                        struct error *err) {
    struct kept_change *change = calloc(1, sizeof(*change));
    if (change == NULL)
        error_set(err, ERROR_MEMORY, "kv-store: no memory to save a conversation");
    else
        kv_saved_read(&store->file, name, &change->before, NULL);
    return change;
}

static int copy_keys(const struct kv_saved *from, struct kv_saved *to, struct error *err) {
    size_t bytes = (size_t)from->num_keys * sizeof(*from->keys);
    to->keys = malloc(bytes + 1);
    if (to->keys == NULL)
        return error_set(err, ERROR_MEMORY, "kv-store: no memory to save a conversation");
    if (bytes > 0)
        memcpy(to->keys, from->keys, bytes);
    to->num_keys = from->num_keys;
    to->num_groups = from->num_groups;
    return 0;
}

/* Under the lock. */
static int save(struct kv_store *store, const char *name, const struct kv_saved *saved,
                struct error *err) {
    if (!atomic_load(&store->is_owner))
        return refuse_change(store, err);
    struct kept_change *change = begin_change(store, name, err);
    if (change == NULL)
        return -1;
    if (copy_keys(saved, &change->after, err) != 0 || check_room(store, change, err) != 0 ||
        kv_saved_write(&store->file, name, saved, err) != 0) {
        free_change(change);
        return -1;
    }
    add_change(store, change);
    return 0;
}

int kv_store_save(struct kv_store *store, const char *name, const struct kv_saved *saved,
                  struct error *err) {
    pthread_mutex_lock(&store->saved_lock);
    int status = save(store, name, saved, err);
    pthread_mutex_unlock(&store->saved_lock);
    return status;
}

int kv_store_read_saved(struct kv_store *store, const char *name, struct kv_saved *out,
                        struct error *err) {
    pthread_mutex_lock(&store->saved_lock);
    int status = kv_saved_read(&store->file, name, out, err);
    pthread_mutex_unlock(&store->saved_lock);
    return status;
}

/* Under the lock. */
static int erase(struct kv_store *store, const char *name, struct error *err) {
    if (!atomic_load(&store->is_owner))
        return refuse_change(store, err);
    struct kept_change *change = begin_change(store, name, err);
    if (change == NULL)
        return -1;
    if (kv_saved_remove(&store->file, name, err) != 0) {
        free_change(change);
        return -1;
    }
    add_change(store, change);
    return 0;
}

int kv_store_erase_saved(struct kv_store *store, const char *name, struct error *err) {
    pthread_mutex_lock(&store->saved_lock);
    int status = erase(store, name, err);
    pthread_mutex_unlock(&store->saved_lock);
    return status;
}

void kv_store_get_counts(struct kv_store *store, struct kv_store_counts *out) {
    int32_t max_blocks = atomic_load(&store->max_blocks);
    *out = (struct kv_store_counts){
        .num_blocks = atomic_load(&store->num_blocks),
        .max_blocks = max_blocks,
        .block_bytes = store->file.slot_bytes,
        .memory_bytes = kv_store_index_bytes(max_blocks, store->block_size) +
                        kv_store_threads_bytes(&store->file),
        .is_owner = atomic_load(&store->is_owner),
        .num_evicted = atomic_load(&store->num_evicted),
        .num_damaged = atomic_load(&store->num_damaged),
    };
    kv_store_threads_count(store->threads, out);
}
