#include "tests/sim/fake_store.h"

#include "config/base/check.h"

#include <stdlib.h>
#include <string.h>

#define MOST_TICKS 8
#define LAST_HANG 500 /* tick at which a store that hangs has begun to */

static int32_t *copy_tokens(const struct fake_store *store, const int32_t *tokens) {
    size_t bytes = (size_t)store->executor->block_size * sizeof(*tokens);
    int32_t *copy = malloc(bytes);
    CHECK(copy != NULL);
    return memcpy(copy, tokens, bytes);
}

static struct shadow_slot *copy_slots(const struct fake_store *store,
                                      const struct shadow_slot *slots) {
    size_t bytes = (size_t)store->executor->block_size * sizeof(*slots);
    struct shadow_slot *copy = slots != NULL ? malloc(bytes) : NULL;
    CHECK(slots == NULL || copy != NULL);
    return slots != NULL ? memcpy(copy, slots, bytes) : NULL;
}

static void clear(struct fake_stored *stored) {
    free(stored->tokens);
    free(stored->slots);
    free(stored->drafted);
    *stored = (struct fake_stored){0};
}

static struct fake_stored *find(struct fake_store *store, const struct block_content *content) {
    size_t bytes = (size_t)store->executor->block_size * sizeof(*content->tokens);
    for (int32_t i = 0; i < FAKE_STORE_BLOCKS; i++) {
        struct fake_stored *stored = &store->blocks[i];
        if (stored->tokens != NULL && stored->group == content->group &&
            block_key_equal(&stored->key, &content->key) &&
            block_key_equal(&stored->previous, &content->previous) &&
            memcmp(stored->tokens, content->tokens, bytes) == 0)
            return stored;
    }
    return NULL;
}

static bool has(void *context, const struct block_content *content) {
    return find(context, content) != NULL;
}

/* A place with tokens and without slots: what another server has written, or has not. */
static void expect(void *context, const struct block_content *content) {
    struct fake_store *store = context;
    struct fake_stored *place =
        &store->blocks[random_range(&store->random, 0, FAKE_STORE_BLOCKS - 1)];
    if (find(store, content) != NULL)
        return;
    clear(place);
    *place = (struct fake_stored){.key = content->key,
                                  .previous = content->previous,
                                  .group = content->group,
                                  .tokens = copy_tokens(store, content->tokens)};
    store->num_expected++;
}

static bool takes_writes(void *context) {
    const struct fake_store *store = context;
    return !store->is_read_only;
}

static int64_t reading_ns(void *context) {
    const struct fake_store *store = context;
    for (int32_t i = 0; i < store->num_jobs; i++)
        if (store->jobs[i].ends_at == INT64_MAX)
            return INT64_MAX / 2;
    return 0;
}

static struct fake_store_job *begin_job(struct fake_store *store, int32_t host_block) {
    for (int32_t i = 0; i < store->num_jobs; i++)
        CHECK(store->jobs[i].host_block != host_block);
    if (store->num_jobs == FAKE_STORE_JOBS || random_once_in(&store->random, 20))
        return NULL;
    struct fake_store_job *job = &store->jobs[store->num_jobs++];
    *job = (struct fake_store_job){.ends_at =
                                       *store->now + random_range(&store->random, 0, MOST_TICKS),
                                   .host_block = host_block};
    return job;
}

static bool begin_write(void *context, const struct block_content *content, int32_t num_drafted,
                        int32_t host_block) {
    struct fake_store *store = context;
    CHECK(find(store, content) == NULL);
    struct fake_store_job *job = begin_job(store, host_block);
    if (job == NULL)
        return false;
    job->content = (struct fake_stored){.key = content->key,
                                        .previous = content->previous,
                                        .group = content->group,
                                        .num_drafted = num_drafted,
                                        .tokens = copy_tokens(store, content->tokens)};
    return true;
}

static bool begin_read(void *context, const struct block_content *content, int32_t host_block) {
    struct fake_store *store = context;
    struct fake_stored *stored = find(store, content);
    struct fake_store_job *job = stored != NULL ? begin_job(store, host_block) : NULL;
    if (job == NULL)
        return false;
    job->is_read = true;
    if (*store->now >= store->hangs_from)
        job->ends_at = INT64_MAX;
    job->content = *stored;
    job->content.tokens = copy_tokens(store, stored->tokens);
    job->content.slots = copy_slots(store, stored->slots);
    job->content.drafted = copy_slots(store, stored->drafted);
    return true;
}

/* --- The end of a job --- */

static void read_block(struct fake_store *store, const struct fake_store_job *job) {
    int32_t size = store->executor->block_size;
    struct shadow_slot *host = store->executor->host + job->host_block * size;
    memcpy(host, job->content.slots, (size_t)size * sizeof(*host));
    if (job->content.drafted != NULL)
        memcpy(store->executor->drafted_host + job->host_block * size, job->content.drafted,
               (size_t)size * sizeof(*host));
    store->num_read++;
}

/* In the place of another block, perhaps. */
static void write_block(struct fake_store *store, struct fake_store_job *job) {
    const struct fake_executor *executor = store->executor;
    int32_t first = job->host_block * executor->block_size;
    job->content.slots = copy_slots(store, executor->host + first);
    if (executor->drafted_host != NULL)
        job->content.drafted = copy_slots(store, executor->drafted_host + first);
    struct fake_stored *place =
        &store->blocks[random_range(&store->random, 0, FAKE_STORE_BLOCKS - 1)];
    clear(place);
    *place = job->content;
    job->content = (struct fake_stored){0};
    store->num_written++;
}

/* A block that cannot be read is not there any more. */
static void fail_job(struct fake_store *store, const struct fake_store_job *job) {
    for (int32_t i = 0; i < FAKE_STORE_BLOCKS; i++)
        if (job->is_read && block_key_equal(&store->blocks[i].key, &job->content.key))
            clear(&store->blocks[i]);
    store->num_failed++;
}

static bool next_done(void *context, struct kv_tier_done *out) {
    struct fake_store *store = context;
    int32_t which = 0;
    while (which < store->num_jobs && store->jobs[which].ends_at > *store->now)
        which++;
    if (which == store->num_jobs)
        return false;
    struct fake_store_job job = store->jobs[which];
    store->jobs[which] = store->jobs[--store->num_jobs];
    *out = (struct kv_tier_done){.host_block = job.host_block,
                                 .is_read = job.is_read,
                                 .is_ok = !random_once_in(&store->random, 15) &&
                                          (!job.is_read || job.content.slots != NULL),
                                 .num_drafted = job.content.num_drafted,
                                 .ns = random_range(&store->random, 1, 3)};
    if (!out->is_ok)
        fail_job(store, &job);
    else if (job.is_read)
        read_block(store, &job);
    else
        write_block(store, &job);
    clear(&job.content);
    return true;
}

static void drain(void *context) {
    struct fake_store *store = context;
    for (int32_t i = 0; i < store->num_jobs; i++)
        store->jobs[i].ends_at = *store->now;
}

void fake_store_init(struct fake_store *store, struct fake_executor *executor, uint64_t seed,
                     const int64_t *now) {
    *store = (struct fake_store){.tier = {.has = has,
                                          .expect = expect,
                                          .takes_writes = takes_writes,
                                          .write = begin_write,
                                          .read = begin_read,
                                          .next_done = next_done,
                                          .reading_ns = reading_ns,
                                          .drain = drain,
                                          .context = store},
                                 .random = random_from(seed),
                                 .executor = executor,
                                 .now = now,
                                 .hangs_from = INT64_MAX};
    if (random_once_in(&store->random, 6))
        store->hangs_from = random_range(&store->random, 0, LAST_HANG);
}

void fake_store_finish(struct fake_store *store) {
    for (int32_t i = 0; i < FAKE_STORE_BLOCKS; i++)
        clear(&store->blocks[i]);
    for (int32_t i = 0; i < store->num_jobs; i++)
        clear(&store->jobs[i].content);
}
