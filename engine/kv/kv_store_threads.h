/* The threads of the store of KV blocks: one reads, the other, of low priority, writes and looks at
 * what other processes change. They own the files.
 *
 * A disk may take long, or never answer. So a job can be abandoned: it is reported at once, and its
 * parts are not touched any more; its thread goes on with its own memory.
 *
 * Engine thread only. It never waits for them, except in kv_store_threads_end_jobs, _set_wake and
 * _destroy. */
#ifndef QUIRE_ENGINE_KV_KV_STORE_THREADS_H
#define QUIRE_ENGINE_KV_KV_STORE_THREADS_H

#include "engine/kv/kv_store.h"
#include "engine/kv/kv_store_file.h"

struct kv_store_threads;

struct kv_store_job {
    struct kv_store_job *next;
    enum { JOB_UNUSED, JOB_ACCEPTED, JOB_ENDED, JOB_ABANDONED } state; /* under its thread's lock */
    bool is_read;
    int32_t slot;
    uint64_t generation; /* that the slot's record has or gets */
    uint64_t epoch;      /* for the caller */
    struct block_content content;
    int32_t *tokens;           /* [block_size] of the job; content.tokens */
    struct block_content left; /* of a write: what the slot had, if has_left */
    bool has_left;
    struct kv_store_part parts[KV_STORE_MAX_PARTS];
    int32_t num_parts;
    int32_t tag;
    int64_t begin_ns, end_ns;
    /* of a write: given; of a read: result */
    int32_t num_drafted;
    /* result, undefined if it was abandoned */
    bool is_ok;
    bool is_damaged;
};

/* What the files hold, as of now. */
struct kv_store_view {
    struct kv_store_index *index;
    uint64_t generation;
    bool is_owner;
};

size_t kv_store_threads_bytes(const struct kv_store_file *file); /* what they allocate */
/* Reads what the files hold, of which it adds up what is damaged, and starts the threads. The last
 * uses of the view are written to the file now and then, if it is the owner's. The file and its
 * folder outlive them. `wake`: see kv_store_config. */
int kv_store_threads_create(struct kv_store_file *file, void (*wake)(void *context), void *context,
                            struct kv_store_view *view, uint64_t *num_damaged,
                            struct kv_store_threads **out, struct error *err);
/* Waits some seconds for them. Returns false if one hangs: it uses what it was given for as long as
 * the process lives. Accepts NULL. */
bool kv_store_threads_destroy(struct kv_store_threads *threads);

/* Returns an unused job, or NULL: all are used. */
struct kv_store_job *kv_store_threads_new_job(struct kv_store_threads *threads, bool is_read);
/* Puts a job into its queue. The jobs of a queue are done in order. */
void kv_store_threads_submit(struct kv_store_threads *threads, struct kv_store_job *job);
/* Returns a job that has ended or was abandoned, or NULL. */
struct kv_store_job *kv_store_threads_next_done(struct kv_store_threads *threads);
void kv_store_threads_free_job(struct kv_store_threads *threads, struct kv_store_job *job);
/* Abandons what has not ended of either kind. */
void kv_store_threads_abandon(struct kv_store_threads *threads, bool is_read);
/* Abandons reads, and writes that do not end within some seconds. */
void kv_store_threads_end_jobs(struct kv_store_threads *threads);
void kv_store_threads_set_wake(struct kv_store_threads *threads, void (*wake)(void *context),
                               void *context);
/* Returns for how long a thread has worked on one thing; 0: on none. */
int64_t kv_store_threads_busy_ns(const struct kv_store_threads *threads, bool is_reader);
/* Returns whether writing has failed and is not to be tried now. */
bool kv_store_threads_is_paused(struct kv_store_threads *threads);
/* Has the files cleared under that generation, after the jobs before. */
void kv_store_threads_renew(struct kv_store_threads *threads, uint64_t generation);
/* Returns whether the view has changed; if so exchanges it. */
bool kv_store_threads_next_view(struct kv_store_threads *threads, struct kv_store_view *view);
/* Sets what was read and written. Any thread. */
void kv_store_threads_count(struct kv_store_threads *threads, struct kv_store_counts *out);

#endif
