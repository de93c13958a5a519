/* Random sequences of operations on the block manager, against a model of both memories.
 *
 * The model's memories hold one number for each token: a digest of the whole history up to it, as
 * keys and values depend on it, of whose cache it is and of the group of layers. Each step plans at
 * random, then makes the listed moves, compares what every sequence would read with its history,
 * writes what was planned, and audits the books. A step may stay in flight while the next is
 * planned, and both while results are committed: what they use is not free, although the model's
 * device has run them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/kv/block_manager.h"

#include <stdlib.h>
#include <string.h>

#define NUM_SEEDS 600
#define NUM_STEPS 40
#define NUM_SEQUENCES 8
#define MAX_TOKENS 64
#define MAX_BLOCKS 40
#define MAX_HOST_BLOCKS 24
#define MAX_BLOCK_SIZE 4
#define MAX_GROUPS 4
#define NUM_SCOPES 4
#define POISON 0xdeadbeefdeadbeef

struct model_sequence {
    bool active;
    bool came_in; /* in this step, or shares blocks with one that did */
    int32_t scope;
    struct block_table table;
    int32_t num_tokens, num_computed, num_planned;
    int32_t tokens[MAX_TOKENS];
    uint64_t digests[MAX_TOKENS]; /* of the history up to each token */
};

struct told_block {
    struct block_key key, previous;
    bool is_first, is_private;
    int32_t tokens[MAX_BLOCK_SIZE];
};

#define MAX_STORED 256
#define MAX_RUNNING_JOBS 6

/* A block in the store, or a job of it: nothing is stored before the job ends. */
struct stored_content {
    bool is_used;
    struct block_key key, previous;
    int32_t group, num_drafted;
    int32_t tokens[MAX_BLOCK_SIZE];
    uint64_t data[MAX_BLOCK_SIZE];
};

struct store_job {
    bool is_read;
    int32_t host_block;
    struct stored_content content;
};

/* Counts how often each thing happened, over all seeds: a test of what never happens is none. */
struct coverage {
    uint64_t hits, copies, swapped_out, swapped_in, found_on_the_way_in, taken_back, refused,
        replaced, forgotten, same, deferred, flushed, skipped;
    uint64_t kept, promoted, written, read, not_read, awaited, loaded, lost, given_up, ahead;
};

struct model {
    uint32_t seed;
    int32_t step;
    uint64_t random;
    struct serving_limits limits;
    struct block_manager manager;
    struct model_sequence sequences[NUM_SEQUENCES];
    uint64_t device[MAX_BLOCKS][MAX_BLOCK_SIZE];
    uint64_t host[MAX_HOST_BLOCKS][MAX_BLOCK_SIZE];
    uint64_t used_in[MAX_BLOCKS]; /* the last step that was submitted and uses the block */
    struct kv_event_sink events;
    struct told_block told[MAX_BLOCKS]; /* what the events leave: blocks that are found */
    int32_t num_told;
    struct block_key told_kept[MAX_HOST_BLOCKS]; /* in host memory */
    int32_t num_told_kept;
    struct kv_tier store;
    struct stored_content stored[MAX_STORED];
    struct store_job jobs[MAX_RUNNING_JOBS];
    int32_t num_jobs;
    bool has_moved; /* the moves that are still listed were made */
};

static struct coverage seen;

#define EXPECT(model, condition)                                                                   \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %u, step %d: not so: %s", (model)->seed, (model)->step, #condition);    \
    } while (0)

/* splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014) */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* 0 .. bound - 1 */
static int32_t below(struct model *model, int32_t bound) {
    model->random += 0x9e3779b97f4a7c15;
    return (int32_t)(mix(model->random) % (uint64_t)bound);
}

static int32_t smaller(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static int32_t block_size(const struct model *model) {
    return model->limits.block_size;
}

static int32_t num_groups(const struct model *model) {
    return serving_limits_groups(&model->limits);
}

/* How many groups hold block `index` of the table. */
static int32_t groups_at(const struct model *model, const struct block_table *table,
                         int32_t index) {
    return index < table->num_dropped ? model->limits.num_full_groups : num_groups(model);
}

/* Blocks before those that a token at that position sees, of a group with the window. */
static int32_t num_unseen(const struct model *model, int32_t position) {
    int32_t unseen = position - model->limits.window + 1;
    return unseen > 0 && model->limits.window > 0 ? unseen / block_size(model) : 0;
}

static struct model_sequence *any_sequence(struct model *model) {
    return &model->sequences[below(model, NUM_SEQUENCES)];
}

static bool on_device(const struct model_sequence *s) {
    return s->active && !s->table.on_host && s->table.num_awaited == 0;
}

static struct token_view tokens_of(const struct model_sequence *s) {
    int32_t half = s->num_tokens / 2;
    return (struct token_view){s->tokens, half, s->tokens + half, s->num_tokens - half};
}

/* --- Histories --- */

/* Makes tokens of one of two texts, changed in few places: many histories share their
 * beginnings. */
static void write_tokens(struct model *model, struct model_sequence *s, int32_t first,
                         int32_t num_tokens) {
    int32_t text = below(model, 2), last = first + below(model, 2 * MAX_TOKENS);
    uint64_t digest = first > 0 ? s->digests[first - 1] : (uint64_t)s->scope;
    for (int32_t i = first; i < num_tokens; i++) {
        s->tokens[i] = i < last ? text : below(model, 2);
        digest = mix(digest ^ mix((uint64_t)s->tokens[i] + 1000));
        s->digests[i] = digest;
    }
    s->num_tokens = num_tokens;
}

static int32_t tenant_of(const struct model *model, int32_t scope) {
    return scope % model->manager.config.num_tenants;
}

/* Scopes of one tenant differ in the salt. */
static struct block_key root_of(const struct model *model, int32_t scope) {
    return block_key_root(&model->manager.config.secret, tenant_of(model, scope), &scope,
                          sizeof(scope));
}

/* --- Events --- */

static struct told_block *find_told(struct model *model, const struct block_key *key) {
    for (int32_t i = 0; i < model->num_told; i++)
        if (block_key_equal(&model->told[i].key, key))
            return &model->told[i];
    return NULL;
}

static void note_stored(void *context, const struct stored_block *block) {
    struct model *model = context;
    EXPECT(model, find_told(model, &block->key) == NULL && model->num_told < MAX_BLOCKS);
    struct told_block *told = &model->told[model->num_told++];
    *told = (struct told_block){.key = block->key,
                                .previous = block->previous,
                                .is_first = block->is_first,
                                .is_private = block->is_private};
    memcpy(told->tokens, block->tokens, (size_t)block_size(model) * sizeof(*told->tokens));
}

static void note_removed(void *context, const struct block_key *key) {
    struct model *model = context;
    struct told_block *told = find_told(model, key);
    EXPECT(model, told != NULL);
    *told = model->told[--model->num_told];
}

static int32_t find_kept(const struct model *model, const struct block_key *key) {
    int32_t i = 0;
    while (i < model->num_told_kept && !block_key_equal(&model->told_kept[i], key))
        i++;
    return i;
}

static void note_kept(void *context, const struct block_key *key) {
    struct model *model = context;
    EXPECT(model,
           find_kept(model, key) == model->num_told_kept && model->num_told_kept < MAX_HOST_BLOCKS);
    model->told_kept[model->num_told_kept++] = *key;
}

static void note_dropped(void *context, const struct block_key *key) {
    struct model *model = context;
    int32_t i = find_kept(model, key);
    EXPECT(model, i < model->num_told_kept);
    model->told_kept[i] = model->told_kept[--model->num_told_kept];
}

static void note_cleared(void *context) {
    struct model *model = context;
    model->num_told = model->num_told_kept = 0;
}

/* Those of the first group that can be found in host memory. */
static void audit_kept_events(const struct model *model) {
    const struct block_manager *m = &model->manager;
    int32_t num_kept = 0;
    for (int32_t b = 0; m->tiers.states != NULL && b < m->host.num_blocks; b++) {
        if (!m->host.blocks[b].cached)
            continue;
        const struct block_content content = prefix_cache_content(&m->tiers.kept, b);
        num_kept += content.group == 0;
        EXPECT(model, content.group != 0 || find_kept(model, &content.key) < model->num_told_kept);
    }
    EXPECT(model, model->num_told_kept == num_kept);
}

/* What the events leave is what the cache knows; keys follow from what was told. */
static void audit_events(struct model *model) {
    const struct block_manager *m = &model->manager;
    int32_t num_cached = 0;
    for (int32_t id = 0; id < m->pool.num_blocks; id++)
        num_cached += m->pool.blocks[id].cached;
    EXPECT(model, m->cache.num_known == num_cached);
    audit_kept_events(model);
    EXPECT(model,
           num_groups(model) > 1 ? model->num_told <= num_cached : model->num_told == num_cached);
    for (int32_t i = 0; i < model->num_told; i++) {
        const struct told_block *told = &model->told[i];
        const struct block_key key =
            block_key_next(&m->config.secret, &told->previous, told->tokens, block_size(model));
        EXPECT(model, block_key_equal(&key, &told->key) && told->is_private);
        bool from_root = false;
        for (int32_t scope = 0; scope < NUM_SCOPES; scope++) {
            const struct block_key root = root_of(model, scope);
            from_root = from_root || block_key_equal(&root, &told->previous);
        }
        EXPECT(model, told->is_first == from_root);
    }
}

/* --- The store --- */

static bool is_content(const struct stored_content *stored, const struct block_content *content,
                       int32_t num_tokens) {
    return stored->is_used && stored->group == content->group &&
           block_key_equal(&stored->key, &content->key) &&
           block_key_equal(&stored->previous, &content->previous) &&
           memcmp(stored->tokens, content->tokens, (size_t)num_tokens * sizeof(int32_t)) == 0;
}

static struct stored_content *find_stored(struct model *model,
                                          const struct block_content *content) {
    for (int32_t i = 0; i < MAX_STORED; i++)
        if (is_content(&model->stored[i], content, block_size(model)))
            return &model->stored[i];
    return NULL;
}

static bool store_has(void *context, const struct block_content *content) {
    return find_stored(context, content) != NULL;
}

static bool store_takes_writes(void *context) {
    return ((const struct model *)context)->seed % 6 > 0;
}

static bool begin_job(struct model *model, const struct store_job *job) {
    for (int32_t i = 0; i < model->num_jobs; i++)
        EXPECT(model, model->jobs[i].host_block != job->host_block);
    if (model->num_jobs == MAX_RUNNING_JOBS || below(model, 8) == 0)
        return false;
    model->jobs[model->num_jobs++] = *job;
    return true;
}

static bool store_write(void *context, const struct block_content *content, int32_t num_drafted,
                        int32_t host_block) {
    struct model *model = context;
    struct store_job job = {.host_block = host_block,
                            .content = {.is_used = true,
                                        .key = content->key,
                                        .previous = content->previous,
                                        .group = content->group,
                                        .num_drafted = num_drafted}};
    memcpy(job.content.tokens, content->tokens, (size_t)block_size(model) * sizeof(int32_t));
    EXPECT(model, find_stored(model, content) == NULL);
    return begin_job(model, &job);
}

static bool store_read(void *context, const struct block_content *content, int32_t host_block) {
    struct model *model = context;
    const struct stored_content *stored = find_stored(model, content);
    EXPECT(model, stored != NULL);
    const struct store_job job = {.is_read = true, .host_block = host_block, .content = *stored};
    return begin_job(model, &job);
}

/* What a job reads or writes does not change while it runs: all of it is copied at its end. */
static bool store_next_done(void *context, struct kv_tier_done *out) {
    struct model *model = context;
    if (model->num_jobs == 0 || below(model, 3) == 0)
        return false;
    int32_t which = below(model, model->num_jobs);
    struct store_job job = model->jobs[which];
    model->jobs[which] = model->jobs[--model->num_jobs];
    uint64_t *data = model->host[job.host_block];
    *out = (struct kv_tier_done){.host_block = job.host_block,
                                 .is_read = job.is_read,
                                 .is_ok = below(model, 8) > 0,
                                 .num_drafted = job.content.num_drafted,
                                 .ns = 1 + below(model, 1000)};
    if (job.is_read && out->is_ok)
        memcpy(data, job.content.data, sizeof(job.content.data));
    memcpy(job.content.data, data, sizeof(job.content.data));
    if (!job.is_read && out->is_ok)
        model->stored[below(model, MAX_STORED)] = job.content;
    seen.written += !job.is_read && out->is_ok;
    seen.read += job.is_read && out->is_ok;
    seen.not_read += job.is_read && !out->is_ok;
    for (int32_t i = 0; i < MAX_STORED && job.is_read && !out->is_ok; i++)
        model->stored[i].is_used &= !block_key_equal(&model->stored[i].key, &job.content.key);
    return true;
}

static int64_t store_reading_ns(void *context) {
    (void)context;
    return 0;
}

/* Nothing is left to wait for. */
static void store_drain(void *context) {
    struct model *model = context;
    EXPECT(model, model->num_jobs == 0);
}

/* --- Audits --- */

static int32_t count_owners(const struct model *model, bool of_host, int32_t block) {
    int32_t owners = 0;
    for (int32_t i = 0; i < NUM_SEQUENCES; i++) {
        const struct model_sequence *s = &model->sequences[i];
        if (!s->active || s->table.on_host != of_host)
            continue;
        for (int32_t b = 0; b < s->table.num_blocks; b++)
            for (int32_t g = 0; g < groups_at(model, &s->table, b); g++)
                owners += *block_table_at(&s->table, g, b) == block;
    }
    return owners;
}

static void audit_list(const struct model *model, const struct block_pool *pool,
                       const struct free_list *list, bool cached) {
    int32_t count = 0, previous = -1;
    for (int32_t b = list->first; b >= 0; b = pool->blocks[b].next) {
        EXPECT(model, pool->blocks[b].references == 0 && pool->blocks[b].pins == 0);
        EXPECT(model, pool->blocks[b].cached == cached);
        EXPECT(model, pool->blocks[b].previous == previous);
        previous = b;
        count++;
    }
    EXPECT(model, list->last == previous && list->count == count);
}

static void audit_pool(const struct model *model, const struct block_pool *pool, bool of_host) {
    int32_t num_used = 0, num_free = pool->bare.count;
    for (int32_t b = 0; b < pool->num_blocks; b++) {
        EXPECT(model, pool->blocks[b].references == count_owners(model, of_host, b));
        num_used += pool->blocks[b].references > 0 || pool->blocks[b].pins > 0;
    }
    audit_list(model, pool, &pool->bare, false);
    for (int32_t t = 0; t < pool->num_tenants; t++) {
        audit_list(model, pool, &pool->cached[t], true);
        num_free += pool->cached[t].count;
    }
    EXPECT(model, num_used == pool->num_used);
    EXPECT(model, num_free == block_pool_num_free(pool));
    EXPECT(model, num_used + num_free == pool->num_blocks);
}

/* A source has a pin for each move, and a block deferred for a step in flight one for that. */
static void audit_pins(const struct model *model, const struct block_pool *pool,
                       const struct move_list *moves) {
    const enum kept_state *states = model->manager.tiers.states;
    for (int32_t b = 0; b < pool->num_blocks; b++) {
        int32_t pins = pool->blocks[b].is_deferred;
        if (pool == &model->manager.host && states != NULL)
            pins += states[b] != KEPT_NONE && states[b] != KEPT_READY;
        for (int32_t i = 0; i < moves->count; i++)
            pins += moves->from[i] == b;
        EXPECT(model, pool->blocks[b].pins == pins);
    }
}

static void audit_moves(const struct model *model, const struct move_list *moves,
                        const struct block_pool *to, bool within_a_pool) {
    for (int32_t i = 0; i < moves->count; i++) {
        const struct block *block = &to->blocks[moves->to[i]];
        EXPECT(model, block->references > 0 || block->pins > 0);
        for (int32_t j = 0; j < moves->count; j++) {
            EXPECT(model, i == j || moves->to[i] != moves->to[j]);
            EXPECT(model, !within_a_pool || moves->from[i] != moves->to[j]);
        }
    }
}

/* Nothing that a step in flight uses may be handed out. */
static void audit_flights(const struct model *model) {
    const struct block_manager *m = &model->manager;
    for (int32_t b = 0; b < m->pool.num_blocks; b++) {
        const struct block *block = &m->pool.blocks[b];
        bool in_flight = model->used_in[b] > m->num_collected;
        EXPECT(model, !in_flight || block->references > 0 || block->pins > 0);
        EXPECT(model, !block->is_deferred || m->num_submitted > m->num_collected);
        seen.deferred += in_flight && block->references == 0;
    }
}

/* Every content that the host keeps has one block, every free one of them is ready. */
static void audit_tiers(const struct model *model) {
    const struct block_manager *m = &model->manager;
    const struct block_tiers *tiers = &m->tiers;
    int32_t num_known = 0, num_filling = 0, num_reads = 0, num_writes = 0;
    for (int32_t b = 0; tiers->states != NULL && b < m->host.num_blocks; b++) {
        bool is_known = prefix_cache_serial(&tiers->kept, b) != 0;
        num_known += is_known;
        num_filling += tiers->states[b] == KEPT_FILLING;
        num_writes += tiers->states[b] == KEPT_WRITING;
        num_reads += tiers->states[b] == KEPT_READING;
        EXPECT(model, !m->host.blocks[b].cached || is_known);
        EXPECT(model, tiers->states[b] != KEPT_READY || (is_known && m->host.blocks[b].cached));
    }
    if (tiers->states == NULL)
        return;
    EXPECT(model, num_known == tiers->kept.num_known && num_filling == tiers->num_filling);
    EXPECT(model, num_writes + num_reads == model->num_jobs);
    EXPECT(model, num_writes == tiers->num_writes && num_reads <= model->num_jobs);
}

static void audit(const struct model *model) {
    const struct block_manager *m = &model->manager;
    audit_pool(model, &m->pool, false);
    audit_pool(model, &m->host, true);
    audit_pins(model, &m->pool, &m->copies);
    audit_pins(model, &m->host, &m->swap_in);
    audit_flights(model);
    audit_tiers(model);
    audit_moves(model, &m->swap_out, &m->host, false);
    audit_moves(model, &m->swap_in, &m->pool, false);
    audit_moves(model, &m->copies, &m->pool, true);
}

static uint64_t digest_of(const struct model_sequence *s, int32_t group, int32_t position) {
    return s->digests[position] + (uint64_t)group;
}

/* What a device block has once the moves that are listed by now are made: those of the cache. */
static const uint64_t *coming_content(const struct model *model, int32_t block) {
    const struct block_manager *m = &model->manager;
    int32_t host = model->has_moved ? -1 : move_list_source(&m->swap_in, block);
    int32_t device = host >= 0 ? move_list_source(&m->swap_out, host) : block;
    return device >= 0 ? model->device[device] : model->host[host];
}

/* Of all groups that hold it. */
static void expect_content(const struct model *model, const struct model_sequence *s, int32_t first,
                           int32_t end) {
    int32_t size = block_size(model);
    for (int32_t p = first; p < end; p++)
        for (int32_t g = 0; g < num_groups(model); g++) {
            int32_t block = *block_table_at(&s->table, g, p / size);
            EXPECT(model, (block >= 0) == (g < groups_at(model, &s->table, p / size)));
            if (block < 0)
                continue;
            const uint64_t *found =
                s->table.on_host ? model->host[block] : coming_content(model, block);
            EXPECT(model, found[p % size] == digest_of(s, g, p));
        }
}

/* Checks that every sequence can still see its history. */
static void audit_contents(const struct model *model) {
    for (int32_t i = 0; i < NUM_SEQUENCES; i++) {
        const struct model_sequence *s = &model->sequences[i];
        if (s->active)
            expect_content(model, s, 0, s->num_computed);
    }
}

/* --- Operations while a step is planned --- */

static void match(struct model *model, struct model_sequence *s) {
    const struct token_view view = tokens_of(s);
    int32_t before = s->num_computed, limit = below(model, s->num_tokens + 1);
    int32_t num_dropped = s->table.num_dropped;
    int32_t added = block_manager_match(&model->manager, &s->table, &view, limit);
    s->num_computed += added;
    EXPECT(model, added == 0 || s->num_computed <= limit);
    EXPECT(model, s->num_computed == s->table.num_blocks * block_size(model));
    EXPECT(model, added == 0 || model->manager.config.caching);
    int32_t unseen = num_unseen(model, s->num_computed);
    EXPECT(model, s->table.num_dropped == num_dropped || s->table.num_dropped == unseen);
    EXPECT(model, added == 0 || s->table.num_dropped <= unseen);
    expect_content(model, s, before, s->num_computed);
    seen.hits += added > 0;
    seen.skipped += s->table.num_dropped > num_dropped;
}

/* What the store has beyond that. */
static void await(struct model *model, struct model_sequence *s) {
    struct block_manager *m = &model->manager;
    int32_t num_reads, limit = s->num_tokens;
    const struct token_view view = tokens_of(s);
    int32_t found = block_manager_find_stored(m, &s->table, &view, limit, &num_reads);
    if (found == 0)
        return;
    EXPECT(model, found % block_size(model) == 0 && num_reads > 0);
    EXPECT(model, s->num_computed + found <= limit);
    block_manager_await(m, &s->table, &view, limit);
    EXPECT(model, s->table.num_awaited * block_size(model) == s->num_computed + found);
    EXPECT(model, block_manager_num_awaited(m, &s->table) == num_reads);
    seen.awaited++;
}

static void begin(struct model *model, struct model_sequence *s) {
    memset(s, 0, sizeof(*s));
    s->scope = below(model, NUM_SCOPES);
    struct block_key root = root_of(model, s->scope);
    assert_int_equal(block_table_init(&s->table,
                                      (MAX_TOKENS + block_size(model) - 1) / block_size(model),
                                      num_groups(model), tenant_of(model, s->scope), &root),
                     0);
    s->active = true;
}

/* For a sequence that begins only later, or now. */
static void read_ahead(struct model *model, const struct model_sequence *s) {
    struct block_manager *m = &model->manager;
    struct read_ahead ahead = {0};
    const struct token_view view = tokens_of(s);
    for (int32_t n = 1 + below(model, 3); n > 0; n--)
        block_manager_read_ahead(m, &s->table, &view, s->num_tokens, &ahead);
    EXPECT(model, ahead.num_reads <= m->host.num_blocks / 2);
    EXPECT(model, ahead.num_blocks * block_size(model) <= s->num_tokens);
    seen.ahead += ahead.num_reads > 0;
}

static void start(struct model *model) {
    struct model_sequence *s = any_sequence(model);
    if (s->active)
        return;
    begin(model, s);
    write_tokens(model, s, 0, 1 + below(model, MAX_TOKENS));
    if (below(model, 4) == 0)
        read_ahead(model, s);
    match(model, s);
    if (below(model, 2) > 0)
        await(model, s);
}

static void offer(struct model *model) {
    const struct model_sequence *s = any_sequence(model);
    if (s->active)
        block_manager_offer(&model->manager, &s->table);
}

static void await_more(struct model *model) {
    struct model_sequence *s = any_sequence(model);
    if (!on_device(s) || s->num_planned > 0 ||
        s->num_computed != s->table.num_blocks * block_size(model))
        return;
    match(model, s);
    await(model, s);
}

static void load(struct model *model, struct model_sequence *s) {
    struct block_manager *m = &model->manager;
    if (!s->active || s->table.num_awaited == 0)
        return;
    const struct token_view view = tokens_of(s);
    int32_t num_awaited = s->table.num_awaited, size = block_size(model);
    bool gives_up = below(model, 8) == 0;
    enum block_load arrived = block_manager_load(m, &s->table, &view, gives_up);
    EXPECT(model, arrived != BLOCKS_COMING || (!gives_up && s->table.num_awaited == num_awaited));
    if (arrived == BLOCKS_COMING)
        return;
    EXPECT(model, s->table.num_awaited == 0 && s->table.num_keyed == s->table.num_blocks);
    EXPECT(model, arrived != BLOCKS_THERE || s->table.num_blocks == num_awaited);
    s->num_computed = s->table.num_blocks * size;
    expect_content(model, s, s->table.num_dropped * size, s->num_computed);
    seen.loaded += arrived == BLOCKS_THERE;
    seen.lost += arrived == BLOCKS_LOST && !gives_up;
    seen.given_up += arrived == BLOCKS_LOST && gives_up;
}

static void load_more(struct model *model) {
    load(model, any_sequence(model));
}

static void poll_store(struct model *model) {
    block_manager_poll(&model->manager);
}

static void save_some(struct model *model) {
    block_manager_save(&model->manager);
}

static void match_more(struct model *model) {
    struct model_sequence *s = any_sequence(model);
    if (on_device(s) && s->num_planned == 0 &&
        s->num_computed == s->table.num_blocks * block_size(model))
        match(model, s);
}

static void release(struct model *model, struct model_sequence *s) {
    struct block_manager *m = &model->manager;
    int32_t moves = m->swap_out.count + m->swap_in.count + m->copies.count;
    block_manager_release(m, &s->table);
    seen.taken_back += m->swap_out.count + m->swap_in.count + m->copies.count < moves;
    block_table_finish(&s->table);
    s->active = false;
}

static void release_any(struct model *model) {
    struct model_sequence *s = any_sequence(model);
    if (s->active)
        release(model, s);
}

static void fork_any(struct model *model) {
    struct model_sequence *from = any_sequence(model), *to = any_sequence(model);
    if (!on_device(from) || to->active || from->num_planned > 0)
        return;
    int32_t least = from->table.num_dropped * block_size(model);
    if (from->num_computed < least)
        return;
    int32_t shared = least + below(model, from->num_computed - least + 1);
    begin(model, to);
    block_manager_release(&model->manager, &to->table);
    to->scope = from->scope;
    to->table.tenant = from->table.tenant;
    to->table.root = to->table.key = from->table.root;
    to->came_in = from->came_in;
    memcpy(to->tokens, from->tokens, sizeof(to->tokens));
    memcpy(to->digests, from->digests, sizeof(to->digests));
    write_tokens(model, to, shared, shared + below(model, MAX_TOKENS - shared + 1));
    to->num_computed = shared;
    block_manager_fork(&model->manager, &from->table, &to->table, shared);
}

static bool make_writable(struct model *model, struct model_sequence *s, int32_t position) {
    struct block_manager *m = &model->manager;
    int32_t place = position / block_size(model), num_free = block_pool_num_free(&m->pool);
    int32_t blocks[MAX_GROUPS], num_shared = 0;
    bool shared[MAX_GROUPS], cached[MAX_GROUPS];
    for (int32_t g = 0; g < num_groups(model); g++) {
        blocks[g] = *block_table_at(&s->table, g, place);
        shared[g] = count_owners(model, false, blocks[g]) > 1;
        cached[g] = m->pool.blocks[blocks[g]].cached;
        num_shared += shared[g];
    }
    EXPECT(model, block_manager_num_copies(m, &s->table, position) == num_shared);
    bool done = block_manager_make_writable(m, &s->table, position);
    EXPECT(model, done == (num_free >= num_shared));
    for (int32_t g = 0; g < num_groups(model); g++) {
        int32_t block = *block_table_at(&s->table, g, place);
        EXPECT(model, (block != blocks[g]) == (done && shared[g]));
        EXPECT(model, !done || !m->pool.blocks[block].cached);
        seen.copies += done && shared[g];
        seen.forgotten += done && cached[g] && !shared[g];
    }
    EXPECT(model, !done || s->table.num_keyed <= place);
    return done;
}

static bool take_block(struct model *model, struct model_sequence *s) {
    bool has_room = block_pool_num_free(&model->manager.pool) >= num_groups(model);
    bool grew = block_manager_grow(&model->manager, &s->table);
    EXPECT(model, grew == has_room);
    seen.refused += !grew;
    return grew;
}

/* Plans some of its tokens; what was written before may be written again. */
static void grant(struct model *model) {
    struct model_sequence *s = any_sequence(model);
    int32_t first = s->num_computed + s->num_planned;
    if (!on_device(s) || first >= s->num_tokens)
        return;
    int32_t end = first + 1 + below(model, smaller(s->num_tokens - first, 3 * block_size(model)));
    for (int32_t p = first; p < end; p++) {
        bool held = p < s->table.num_blocks * block_size(model);
        bool enters = p == first || p % block_size(model) == 0;
        if (held ? enters && !make_writable(model, s, p) : !take_block(model, s))
            return;
        s->num_planned++;
    }
}

/* What was planned is not, but the blocks for it are there. */
static void withdraw(struct model *model) {
    any_sequence(model)->num_planned = 0;
}

/* Other tokens from some position on. */
static void rewrite(struct model *model) {
    struct model_sequence *s = any_sequence(model);
    int32_t least = s->table.num_dropped * block_size(model);
    if (!on_device(s) || s->num_planned > 0 || s->num_computed < least)
        return;
    int32_t first = least + below(model, s->num_computed - least + 1);
    write_tokens(model, s, first, first + below(model, MAX_TOKENS - first + 1));
    s->num_computed = first;
    if (below(model, 2) > 0)
        return;
    block_manager_trim(&model->manager, &s->table, first);
    EXPECT(model, s->table.num_blocks == (first + block_size(model) - 1) / block_size(model));
    EXPECT(model, s->table.num_keyed <= first / block_size(model));
}

static void generate(struct model *model) {
    struct model_sequence *s = any_sequence(model);
    if (s->active && s->num_tokens < MAX_TOKENS)
        write_tokens(model, s, s->num_tokens,
                     s->num_tokens + 1 + below(model, MAX_TOKENS - s->num_tokens));
}

static void drop_before(struct model *model) {
    struct model_sequence *s = any_sequence(model);
    if (!s->active || s->table.num_awaited > 0 || below(model, 3) > 0)
        return;
    int32_t position = below(model, s->num_computed + 1);
    block_manager_drop_before(&model->manager, &s->table, position);
    EXPECT(model,
           s->table.num_dropped >= smaller(position / block_size(model), s->table.num_blocks));
}

/* Some of the sequences on that side. */
static int32_t choose_group(struct model *model, bool on_host, struct model_sequence **group,
                            struct block_table **tables) {
    int32_t count = 0;
    for (int32_t i = 0; i < NUM_SEQUENCES; i++) {
        struct model_sequence *s = &model->sequences[i];
        bool fits = s->active && s->table.on_host == on_host && (on_host || !s->came_in);
        fits &= s->table.num_awaited == 0 || below(model, 4) == 0;
        if (!fits || below(model, 3) == 0)
            continue;
        group[count] = s;
        tables[count++] = &s->table;
    }
    return count;
}

static bool comes_in(const struct model *model, const struct block_table *table) {
    const struct block_manager *m = &model->manager;
    bool comes = table->num_awaited > 0;
    for (int32_t b = 0; b < table->num_blocks; b++)
        for (int32_t g = 0; g < groups_at(model, table, b); g++) {
            int32_t block = *block_table_at(table, g, b);
            int32_t source = move_list_source(&m->copies, block);
            comes |= move_list_source(&m->swap_in, source >= 0 ? source : block) >= 0;
        }
    return comes;
}

static void swap_out(struct model *model) {
    struct block_manager *m = &model->manager;
    struct model_sequence *group[NUM_SEQUENCES];
    struct block_table *tables[NUM_SEQUENCES];
    int32_t num_tables = choose_group(model, false, group, tables);
    int32_t num_before = m->swap_out.count, num_free = block_pool_num_free(&m->host);
    int32_t distinct = block_manager_count_distinct(m, tables, num_tables);
    bool comes = false;
    for (int32_t i = 0; i < num_tables; i++)
        comes |= comes_in(model, tables[i]);
    bool done = block_manager_swap_out(m, tables, num_tables);
    EXPECT(model, done ? !comes : comes || distinct > num_free);
    EXPECT(model, done || m->swap_out.count == num_before);
    for (int32_t i = 0; i < num_tables; i++) {
        EXPECT(model, tables[i]->on_host == done);
        if (done)
            group[i]->num_planned = 0;
    }
    int32_t moved = block_manager_count_distinct(m, tables, num_tables);
    EXPECT(model,
           !done || (moved <= distinct && num_free - moved == block_pool_num_free(&m->host)));
    seen.swapped_out += done && moved > 0;
}

static void swap_in(struct model *model) {
    struct block_manager *m = &model->manager;
    struct model_sequence *group[NUM_SEQUENCES];
    struct block_table *tables[NUM_SEQUENCES];
    int32_t num_tables = choose_group(model, true, group, tables);
    int32_t num_before = m->swap_in.count, num_free = block_pool_num_free(&m->pool);
    int32_t distinct = block_manager_count_distinct(m, tables, num_tables);
    bool done = block_manager_swap_in(m, tables, num_tables);
    EXPECT(model, done || distinct > num_free);
    EXPECT(model, done || m->swap_in.count == num_before);
    for (int32_t i = 0; i < num_tables; i++) {
        EXPECT(model, tables[i]->on_host != done);
        group[i]->came_in = done;
    }
    int32_t moved = m->swap_in.count - num_before;
    EXPECT(model, !done || block_manager_count_distinct(m, tables, num_tables) <= distinct);
    EXPECT(model, moved <= distinct);
    seen.swapped_in += moved > 0;
    seen.found_on_the_way_in += done && moved < distinct;
}

/* Has computed that many whole blocks and no token more; the next one's tokens are there. */
static bool is_at(const struct model *model, const struct model_sequence *s, int32_t num_blocks) {
    int32_t size = block_size(model);
    return on_device(s) && s->num_computed == num_blocks * size &&
           s->num_tokens >= (num_blocks + 1) * size && s->table.num_keyed <= num_blocks;
}

/* Two that would compute the same block next, by their histories. */
static void same_next(struct model *model) {
    struct model_sequence *a = any_sequence(model), *b = any_sequence(model);
    int32_t num_blocks = a->num_computed / block_size(model);
    if (!is_at(model, a, num_blocks) || !is_at(model, b, num_blocks))
        return;
    const struct token_view a_view = tokens_of(a), b_view = tokens_of(b);
    int32_t last = (num_blocks + 1) * block_size(model) - 1;
    bool same = model->manager.config.caching && a->digests[last] == b->digests[last];
    EXPECT(model, block_manager_same_next(&model->manager, &a->table, &a_view, &b->table, &b_view,
                                          num_blocks) == same);
    seen.same += same && a != b;
}

static void plan_something(struct model *model) {
    static void (*const operations[])(struct model *) = {
        start,     start,     start,       start,       grant,      grant,
        grant,     grant,     grant,       grant,       match_more, fork_any,
        fork_any,  fork_any,  generate,    rewrite,     withdraw,   swap_in,
        swap_out,  same_next, drop_before, release_any, await_more, await_more,
        load_more, load_more, poll_store,  save_some,   offer,
    };
    operations[below(model, (int32_t)(sizeof(operations) / sizeof(operations[0])))](model);
}

/* --- Running a step --- */

static void move(const struct model *model, const struct move_list *moves,
                 const uint64_t from[][MAX_BLOCK_SIZE], uint64_t to[][MAX_BLOCK_SIZE]) {
    for (int32_t i = 0; i < moves->count; i++)
        memcpy(to[moves->to[i]], from[moves->from[i]], sizeof(to[0]));
}

static void write_planned(struct model *model, const struct model_sequence *s) {
    for (int32_t p = s->num_computed; p < s->num_computed + s->num_planned; p++)
        for (int32_t g = 0; g < num_groups(model); g++) {
            int32_t slot = block_table_slot(&s->table, g, block_size(model), p);
            int32_t block = slot / block_size(model);
            EXPECT(model, count_owners(model, false, block) == 1);
            EXPECT(model, !model->manager.pool.blocks[block].cached);
            model->device[block][p % block_size(model)] = digest_of(s, g, p);
        }
}

static void run_step(struct model *model) {
    struct block_manager *m = &model->manager;
    move(model, &m->swap_out, (const uint64_t(*)[MAX_BLOCK_SIZE])model->device, model->host);
    move(model, &m->swap_in, (const uint64_t(*)[MAX_BLOCK_SIZE])model->host, model->device);
    move(model, &m->copies, (const uint64_t(*)[MAX_BLOCK_SIZE])model->device, model->device);
    model->has_moved = true;
    audit_contents(model);
    for (int32_t i = 0; i < NUM_SEQUENCES; i++)
        if (on_device(&model->sequences[i]))
            write_planned(model, &model->sequences[i]);
}

/* Submits the step, which uses the tables of those that compute something. */
static void submit(struct model *model) {
    struct block_manager *m = &model->manager;
    struct block_table *tables[NUM_SEQUENCES];
    int32_t num_tables = 0;
    uint64_t number = m->num_submitted + 1;
    for (int32_t i = 0; i < NUM_SEQUENCES; i++) {
        struct model_sequence *s = &model->sequences[i];
        if (!on_device(s) || s->num_planned == 0)
            continue;
        for (int32_t b = 0; b < s->table.num_blocks; b++)
            for (int32_t g = 0; g < groups_at(model, &s->table, b); g++)
                model->used_in[*block_table_at(&s->table, g, b)] = number;
        tables[num_tables++] = &s->table;
    }
    for (int32_t i = 0; i < m->copies.count; i++)
        model->used_in[m->copies.from[i]] = number;
    seen.kept += m->tiers.num_kept > 0;
    seen.promoted += m->tiers.num_promoted > 0;
    block_manager_submit(m, tables, num_tables);
    model->has_moved = false;
}

static void collect_down_to(struct model *model, int32_t num_left) {
    struct block_manager *m = &model->manager;
    while (m->num_submitted > m->num_collected + (uint64_t)num_left)
        block_manager_collect(m);
}

static void publish(struct model *model, struct model_sequence *s) {
    struct block_manager *m = &model->manager;
    const struct token_view view = tokens_of(s);
    int32_t num_full = s->num_computed / block_size(model);
    struct block_table *table = &s->table;
    int32_t num_before = block_manager_count_distinct(m, &table, 1);
    int32_t used_before = m->pool.num_used;
    block_manager_publish(m, table, &view, s->num_computed);
    EXPECT(model, block_manager_count_distinct(m, &table, 1) == num_before);
    seen.replaced += m->pool.num_used < used_before;
    for (int32_t i = 0; m->config.caching && i < num_full; i++)
        for (int32_t g = 0; g < groups_at(model, table, i); g++)
            EXPECT(model, m->pool.blocks[*block_table_at(table, g, i)].cached);
}

/* Whatever it has computed is found by another with its tokens. */
static void expect_found(struct model *model, const struct model_sequence *s) {
    struct model_sequence *probe = NULL;
    for (int32_t i = 0; i < NUM_SEQUENCES && probe == NULL; i++)
        if (!model->sequences[i].active)
            probe = &model->sequences[i];
    int32_t num_full = s->num_computed / block_size(model);
    int32_t unseen = num_unseen(model, num_full * block_size(model));
    if (probe == NULL || !model->manager.config.caching || s->table.num_dropped > unseen)
        return;
    *probe = *s;
    assert_int_equal(block_table_init(&probe->table, s->table.max_blocks, s->table.num_groups,
                                      s->table.tenant, &s->table.root),
                     0);
    const struct token_view view = tokens_of(probe);
    EXPECT(model, block_manager_match(&model->manager, &probe->table, &view, s->num_computed) ==
                      num_full * block_size(model));
    EXPECT(model, probe->table.num_dropped == unseen);
    for (int32_t i = 0; i < num_full; i++)
        for (int32_t g = 0; g < groups_at(model, &probe->table, i); g++)
            EXPECT(model, *block_table_at(&probe->table, g, i) == *block_table_at(&s->table, g, i));
    release(model, probe);
}

static void commit(struct model *model, struct model_sequence *s) {
    s->num_computed += s->num_planned;
    s->num_planned = 0;
    s->came_in = false;
    if (!on_device(s) || below(model, 5) == 0)
        return;
    publish(model, s);
    if (below(model, 4) == 0)
        expect_found(model, s);
    else if (below(model, 8) == 0)
        release(model, s);
}

/* Scrambles what nobody may read any more. */
static void poison_free(struct model *model) {
    const struct block_manager *m = &model->manager;
    for (int32_t b = m->pool.bare.first; b >= 0; b = m->pool.blocks[b].next)
        for (int32_t i = 0; i < MAX_BLOCK_SIZE; i++)
            model->device[b][i] = POISON;
    for (int32_t b = m->host.bare.first; b >= 0; b = m->host.blocks[b].next)
        for (int32_t i = 0; i < MAX_BLOCK_SIZE; i++)
            model->host[b][i] = POISON;
}

/* Sequences that go on would publish none of what they have computed. */
static void flush(struct model *model) {
    seen.flushed++;
    block_manager_flush_cache(&model->manager);
    EXPECT(model, model->num_told == 0);
    audit_events(model);
    for (int32_t i = 0; i < NUM_SEQUENCES; i++)
        if (model->sequences[i].active)
            release(model, &model->sequences[i]);
}

static void step(struct model *model) {
    for (int32_t i = 0; i < NUM_SEQUENCES; i++) {
        poll_store(model);
        load(model, &model->sequences[i]);
    }
    for (int32_t n = below(model, below(model, 4) == 0 ? 200 : 20); n > 0; n--) {
        plan_something(model);
        audit(model);
    }
    run_step(model);
    submit(model);
    audit(model);
    collect_down_to(model, below(model, 3));
    for (int32_t i = 0; i < NUM_SEQUENCES; i++)
        if (model->sequences[i].active)
            commit(model, &model->sequences[i]);
    audit(model);
    collect_down_to(model, below(model, 2));
    audit(model);
    audit_events(model);
    if (below(model, model->manager.config.store != NULL ? 6 : 30) == 0)
        flush(model);
    poison_free(model);
    audit_contents(model);
}

/* Until the manager has seen all of them. */
static void end_jobs(struct model *model) {
    block_manager_flush_cache(&model->manager);
    while (block_manager_has_writes(&model->manager) || model->manager.tiers.num_reads > 0)
        block_manager_poll(&model->manager);
    EXPECT(model, model->num_jobs == 0);
}

static void run(uint32_t seed) {
    static const int32_t sizes[] = {1, 2, 4};
    struct model *model = calloc(1, sizeof(*model));
    assert_non_null(model);
    model->seed = seed;
    model->random = mix(seed + 1);
    model->limits.num_blocks = 3 + below(model, MAX_BLOCKS - 2);
    model->limits.num_host_blocks = below(model, MAX_HOST_BLOCKS + 1);
    model->limits.block_size = sizes[below(model, 3)];
    if (below(model, 2) > 0) {
        model->limits.window = 1 + below(model, 12);
        model->limits.num_groups = 2 + below(model, MAX_GROUPS - 1);
        model->limits.num_full_groups = 1 + below(model, model->limits.num_groups - 1);
    }
    struct block_manager_config config = {.limits = &model->limits,
                                          .num_tenants = 1 + below(model, NUM_SCOPES),
                                          .caching = below(model, 8) > 0};
    model->events = (struct kv_event_sink){.stored = note_stored,
                                           .removed = note_removed,
                                           .kept = note_kept,
                                           .dropped = note_dropped,
                                           .cleared = note_cleared,
                                           .context = model};
    config.events = &model->events;
    config.keeps_evicted = below(model, 2) > 0;
    model->store = (struct kv_tier){.has = store_has,
                                    .takes_writes = store_takes_writes,
                                    .write = store_write,
                                    .read = store_read,
                                    .next_done = store_next_done,
                                    .reading_ns = store_reading_ns,
                                    .drain = store_drain,
                                    .context = model};
    if (below(model, 3) > 0)
        config.store = &model->store;
    for (int i = 0; i < BLOCK_KEY_SECRET_BYTES; i++)
        config.secret.bytes[i] = (unsigned char)below(model, 256);
    assert_int_equal(block_manager_init(&model->manager, &config), 0);
    for (model->step = 0; model->step < NUM_STEPS; model->step++)
        step(model);
    for (int32_t i = 0; i < NUM_SEQUENCES; i++)
        if (model->sequences[i].active)
            release(model, &model->sequences[i]);
    collect_down_to(model, 0);
    EXPECT(model, model->manager.pool.num_used == 0);
    end_jobs(model);
    EXPECT(model, model->manager.host.num_used == 0);
    block_manager_finish(&model->manager);
    EXPECT(model, model->num_told == 0);
    free(model);
}

static void test_random_operations(void **state) {
    for (uint32_t seed = 0; seed < NUM_SEEDS; seed++)
        run(seed);
    const uint64_t counts[] = {
        seen.hits,       seen.copies,  seen.swapped_out, seen.swapped_in, seen.found_on_the_way_in,
        seen.taken_back, seen.refused, seen.replaced,    seen.forgotten,  seen.same,
        seen.deferred,   seen.flushed, seen.skipped,     seen.kept,       seen.promoted,
        seen.written,    seen.read,    seen.awaited};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        assert_true(counts[i] > NUM_SEEDS / 2);
    const uint64_t rare[] = {seen.not_read, seen.loaded, seen.lost, seen.given_up, seen.ahead};
    for (size_t i = 0; i < sizeof(rare) / sizeof(rare[0]); i++)
        assert_true(rare[i] > NUM_SEEDS / 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_operations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
