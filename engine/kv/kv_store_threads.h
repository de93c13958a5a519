/* The threads of the store of KV blocks: one writes, with low priority, one reads and, unless this
 * process is the owner, watches what the owner changes. They own the files.
 *
 * Engine thread only. It never waits for them, except in
 * kv_store_threads_await and _set_wake. */
#ifndef QUIRE_ENGINE_KV_KV_STORE_THREADS_H
#define QUIRE_ENGINE_KV_KV_STORE_THREADS_H

#include "engine/kv/kv_store.h"
#include "engine/kv/kv_store_index.h"
#include "engine/kv/kv_store_slots.h"

struct kv_store_threads;

struct kv_store_job {
    struct kv_store_job *next;
    bool is_read;
    int32_t slot;
    uint64_t generation; /* that the slot's record has or gets */
    uint64_t epoch;      /* for the caller */
    struct block_content content;
    int32_t *tokens; /* [block_size] of the job; content.tokens */
    struct kv_store_part parts[KV_STORE_MAX_PARTS];
    int32_t num_parts;
    int32_t tag;
    int64_t begin_ns, end_ns;
    /* of a write: given; of a read: result */
    int32_t num_drafted;
    /* result */
    bool is_ok;
    bool is_damaged;
    bool is_dropped; /* nothing was done for it */
};

/* What the files hold, as of now. */
struct kv_store_view {
    struct kv_store_index *index;
    uint64_t generation;
    uint64_t num_changes; /* kv_store_file_num_changes before it was read */
    bool is_owner;
};

struct kv_store_work {
    uint64_t num_written, num_read, bytes_written, bytes_read, num_failed_writes;
    uint64_t write_ns, read_ns;
};

struct kv_store_threads_config {
    struct kv_store_folder *folder; /* outlives the threads */
    struct kv_store_file *file;     /* too */
    void (*wake)(void *context);
    void *context;
};

/* Reads the view of files that were opened; logs how many records are damaged and adds them up. */
int kv_store_view_load(struct kv_store_view *view, const struct kv_store_file *file,
                       struct kv_store_room *room, uint64_t *num_damaged, struct error *err);

/* Has the blocks of a saved conversation not leave. */
void kv_store_keep_saved(struct kv_store_index *index, const struct kv_saved *saved);

size_t kv_store_threads_bytes(const struct kv_store_file *file); /* what they allocate */
/* Starts them. The stamps of the view are written to the file now and then, if it is the owner's.
 */
int kv_store_threads_create(const struct kv_store_threads_config *config,
                            const struct kv_store_view *view, struct kv_store_threads **out,
                            struct error *err);
/* Drops what is not read yet, and what is not written within some seconds. Accepts NULL. */
void kv_store_threads_destroy(struct kv_store_threads *threads);

/* Returns an unused job, or NULL: all are used. */
struct kv_store_job *kv_store_threads_new_job(struct kv_store_threads *threads, bool is_read);
/* Puts a job into its queue. The jobs of a queue are done in order. */
void kv_store_threads_submit(struct kv_store_threads *threads, struct kv_store_job *job);
/* Returns a job that has ended, or NULL. */
struct kv_store_job *kv_store_threads_next_done(struct kv_store_threads *threads);
void kv_store_threads_free_job(struct kv_store_threads *threads, struct kv_store_job *job);
/* Waits until so many jobs have ended that were not taken by kv_store_threads_next_done. Drops
 * reads that have not begun, and writes that have not after some seconds. */
void kv_store_threads_await(struct kv_store_threads *threads, int32_t num_jobs);
void kv_store_threads_set_wake(struct kv_store_threads *threads, void (*wake)(void *context),
                               void *context);
/* Returns for how long the reader has worked on a job; 0: on none. */
int64_t kv_store_threads_reading_ns(const struct kv_store_threads *threads);
/* Returns whether writing has failed and is not to be tried now. */
bool kv_store_threads_is_paused(struct kv_store_threads *threads);
/* Has the files cleared under that generation, after the jobs before. */
void kv_store_threads_renew(struct kv_store_threads *threads, uint64_t generation);
/* Returns whether the view has changed; if so exchanges it. */
bool kv_store_threads_next_view(struct kv_store_threads *threads, struct kv_store_view *view);
/* Any thread. */
void kv_store_threads_get_work(struct kv_store_threads *threads, struct kv_store_work *out);

#endif
