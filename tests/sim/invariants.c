/* Blocks are counted anew each time, from the tables of all live sequences: the pools' own counts
 * must agree. */
#include "tests/sim/invariants.h"

#include "config/base/check.h"

#include <string.h>

#define MAX_BLOCKS 4096

/* Counts how many tables hold each block. */
struct owners {
    int32_t device[MAX_BLOCKS];
    int32_t host[MAX_BLOCKS];
};

static void add_owner(struct simulation *sim, struct owners *owners,
                      const struct block_table *table) {
    const struct block_manager *blocks = &sim->core.scheduler.blocks;
    int32_t num_blocks = table->on_host ? blocks->host.num_blocks : blocks->pool.num_blocks;
    for (int32_t g = 0; g < table->num_groups; g++)
        for (int32_t i = 0; i < table->num_blocks; i++) {
            int32_t block = *block_table_at(table, g, i);
            bool is_dropped = g >= sim->limits.num_full_groups && i < table->num_dropped;
            EXPECT(sim, (block < 0) == is_dropped && block < num_blocks, block);
            if (block >= 0 && block < num_blocks)
                (table->on_host ? owners->host : owners->device)[block]++;
        }
}

static const struct owners *count_owners(struct simulation *sim) {
    static struct owners owners;
    CHECK(sim->core.scheduler.blocks.pool.num_blocks <= MAX_BLOCKS &&
          sim->core.scheduler.blocks.host.num_blocks <= MAX_BLOCKS);
    memset(&owners, 0, sizeof(owners));
    for (const struct sequence_group *g = sim->core.first_group; g != NULL; g = g->next)
        for (int32_t i = 0; i < g->num_sequences; i++)
            add_owner(sim, &owners, &g->sequences[i].table);
    return &owners;
}

/* --- Writes --- */

void invariants_check_batch(struct simulation *sim, const struct batch *batch) {
    const struct owners *owners = count_owners(sim);
    const struct block *blocks = sim->core.scheduler.blocks.pool.blocks;
    for (int32_t i = 0; i < batch->inputs.num_groups * batch->inputs.num_tokens; i++) {
        int32_t block = batch->inputs.slot_mapping[i] / sim->limits.block_size;
        EXPECT(sim, block >= 0 && block < sim->limits.num_blocks, block);
        if (sim->broken)
            return;
        EXPECT(sim, owners->device[block] == 1 && blocks[block].references == 1, block);
        EXPECT(sim, !blocks[block].cached, block);
    }
    for (int32_t i = 0; i < batch->copies.count; i++)
        EXPECT(sim, owners->device[batch->copies.to[i]] > 0, batch->copies.to[i]);
    for (int32_t i = 0; i < batch->swap_in.count; i++)
        EXPECT(sim,
               owners->device[batch->swap_in.to[i]] > 0 || blocks[batch->swap_in.to[i]].pins > 0,
               batch->swap_in.to[i]);
    const enum kept_state *kept = sim->core.scheduler.blocks.tiers.states;
    for (int32_t i = 0; i < batch->swap_out.count; i++) {
        int32_t to = batch->swap_out.to[i];
        EXPECT(sim, owners->host[to] > 0 || (kept != NULL && kept[to] != KEPT_NONE), to);
    }
}

void invariants_check_capacity(struct simulation *sim, const struct batch *batch) {
    const struct batch_capacity most = step_batch_capacity(&sim->limits, sim->core.tokenizer);
    EXPECT(sim, batch->inputs.num_tokens <= most.num_tokens, batch->inputs.num_tokens);
    EXPECT(sim, batch->inputs.num_seqs <= most.num_seqs, batch->inputs.num_seqs);
    EXPECT(sim, batch->num_sample_rows <= most.num_sample_rows, batch->num_sample_rows);
    EXPECT(sim, (size_t)batch->num_counts <= most.num_counts, batch->num_counts);
    EXPECT(sim, (size_t)batch->num_biases <= most.num_biases, batch->num_biases);
    EXPECT(sim, (size_t)batch->num_listed <= most.num_listed, batch->num_listed);
    EXPECT(sim, batch->num_masks <= most.num_masks, batch->num_masks);
    EXPECT(sim, batch->num_hidden_sums <= most.num_seqs, batch->num_hidden_sums);
}

/* --- Pools --- */

static int32_t walk_free(struct simulation *sim, const struct block_pool *pool,
                         const struct free_list *list, int32_t queue) {
    int32_t count = 0, previous = -1;
    for (int32_t b = list->first; b >= 0 && count <= pool->num_blocks; b = pool->blocks[b].next) {
        const struct block *block = &pool->blocks[b];
        EXPECT(sim, block->references == 0 && block->pins == 0 && block->previous == previous, b);
        EXPECT(sim, block->cached == (queue >= 0), b);
        EXPECT(sim, queue < 0 || block->queue == queue, b);
        previous = b;
        count++;
    }
    EXPECT(sim, count == list->count && previous == list->last, count);
    return count;
}

/* Returns whether the store, or a step for it, uses a block of the host. */
static bool is_kept_for_job(const struct simulation *sim, const struct block_pool *pool,
                            int32_t block) {
    const struct block_manager *blocks = &sim->core.scheduler.blocks;
    const enum kept_state *kept = blocks->tiers.states;
    return pool == &blocks->host && kept != NULL && kept[block] != KEPT_NONE &&
           kept[block] != KEPT_READY;
}

/* Every block is free, or used by as many tables as it says; between steps nothing is pinned but
 * for the steps in flight and the store. Returns how many blocks only these use. */
static int32_t check_pool(struct simulation *sim, const struct block_pool *pool,
                          const int32_t *owners) {
    int32_t num_owned = 0, num_deferred = 0, num_free = walk_free(sim, pool, &pool->bare, -1);
    for (int32_t t = 0; t < pool->num_tenants; t++)
        num_free += walk_free(sim, pool, &pool->cached[t], t);
    for (int32_t b = 0; b < pool->num_blocks; b++) {
        EXPECT(sim, pool->blocks[b].references == owners[b], b);
        bool is_pinned = pool->blocks[b].is_deferred || is_kept_for_job(sim, pool, b);
        EXPECT(sim, pool->blocks[b].pins == is_pinned, b);
        num_owned += owners[b] > 0;
        num_deferred += owners[b] == 0 && is_pinned;
        sim->num_shared += owners[b] > 1;
    }
    EXPECT(sim, num_owned + num_deferred == pool->num_used, num_owned);
    EXPECT(sim, num_free + num_owned + num_deferred == pool->num_blocks, num_free);
    return num_deferred;
}

/* Blocks are deferred while a step is in flight, each once. */
static void check_held_blocks(struct simulation *sim, const struct block_manager *blocks) {
    int32_t num_marked = 0;
    for (int32_t b = 0; b < blocks->pool.num_blocks; b++)
        num_marked += blocks->pool.blocks[b].is_deferred;
    EXPECT(sim, num_marked == blocks->num_deferred, num_marked);
    EXPECT(sim, blocks->num_deferred == 0 || sim->core.num_in_flight > 0, blocks->num_deferred);
    int32_t in_flight = (int32_t)(blocks->num_submitted - blocks->num_collected);
    EXPECT(sim, in_flight == sim->core.num_in_flight, in_flight);
    int32_t free_in_flight = flight_watch_find_free(&sim->flights, &blocks->pool);
    EXPECT(sim, free_in_flight < 0, free_in_flight);
    sim->num_deferred += (uint64_t)blocks->num_deferred;
}

/* Of all groups: tokens that the sequence has and may read. */
static int64_t num_read_slots(const struct simulation *sim, const struct sequence *s) {
    int64_t num_full = sim->limits.num_full_groups, num_tokens = sequence_num_computed_ahead(s);
    int64_t num_awaited = (int64_t)s->table.num_awaited * sim->limits.block_size;
    int64_t num_there = num_awaited > 0 ? num_awaited : s->num_computed;
    num_tokens = num_awaited > 0 ? num_awaited : num_tokens;
    int64_t num_unseen = sim->limits.window > 0 ? num_there - sim->limits.window + 1 : 0;
    int64_t num_seen = num_tokens - (num_unseen > 0 ? num_unseen : 0);
    return num_full * num_tokens + (s->table.num_groups - num_full) * num_seen;
}

/* Counts what the used blocks hold, without their sharing when there is none. What only a step in
 * flight uses counts as full. */
static void check_held_tokens(struct simulation *sim, bool nothing_shared, int32_t num_deferred) {
    int64_t size = sim->limits.block_size, held = num_deferred * size;
    for (const struct sequence_group *g = sim->core.first_group; g != NULL; g = g->next)
        for (int32_t i = 0; i < g->num_sequences; i++)
            if (g->sequences[i].status == SEQUENCE_RUNNING)
                held += num_read_slots(sim, &g->sequences[i]);
    int64_t counted = sim->core.stats.num_held_tokens;
    EXPECT(sim, counted >= 0 && counted <= sim->core.stats.num_used_blocks * size, counted);
    EXPECT(sim, !nothing_shared || counted == held, counted);
}

static void check_pools(struct simulation *sim) {
    const struct block_manager *blocks = &sim->core.scheduler.blocks;
    const struct owners *owners = count_owners(sim);
    uint64_t num_shared = sim->num_shared;
    int32_t num_deferred = check_pool(sim, &blocks->pool, owners->device);
    check_held_tokens(sim, num_shared == sim->num_shared, num_deferred);
    check_pool(sim, &blocks->host, owners->host);
    check_held_blocks(sim, blocks);
    EXPECT(sim,
           blocks->swap_out.count == 0 && blocks->swap_in.count == 0 && blocks->copies.count == 0,
           blocks->copies.count);
    EXPECT(sim, blocks->pool.num_used == sim->core.stats.num_used_blocks, blocks->pool.num_used);
    EXPECT(sim, blocks->host.num_used == sim->core.stats.num_used_host_blocks,
           blocks->host.num_used);
    if (engine_core_is_idle(&sim->core))
        EXPECT(sim,
               blocks->pool.num_used == 0 &&
                   (blocks->host.num_used == 0 || block_manager_has_writes(blocks) ||
                    blocks->tiers.num_reads > 0),
               blocks->pool.num_used);
}

/* Returns whether a step was not made, which the core may not know yet. */
static bool has_failed(const struct simulation *sim) {
    const struct fake_executor *fake = &sim->executor;
    return fake->is_lost || (fake->fail_at_call > 0 && fake->num_calls >= fake->fail_at_call);
}

/* --- Content --- */

struct place {
    bool on_host;
    int32_t block;
};

static void follow_move(const struct block_pairs *moves, bool from_host, struct place *place) {
    for (int32_t i = 0; i < moves->count; i++)
        if (moves->to[i] == place->block) {
            *place = (struct place){from_host, moves->from[i]};
            return;
        }
}

/* Returns where the content of a block is until the moves of the batch, which has not run, are
 * made. The last moves come first. */
static struct place find_content(const struct batch *batch, struct place place) {
    if (!place.on_host)
        follow_move(&batch->copies, false, &place);
    if (!place.on_host)
        follow_move(&batch->swap_in, true, &place);
    if (place.on_host)
        follow_move(&batch->swap_out, false, &place);
    return place;
}

/* Returns the slots with the content of a block. Steps that were submitted may not have run. */
static const struct shadow_slot *slots_at(const struct simulation *sim, struct place place) {
    const struct fake_executor *fake = &sim->executor;
    for (int32_t i = fake->num_submitted - 1; i >= 0; i--)
        if (!fake->submitted[i].has_run)
            place = find_content(fake->submitted[i].batch, place);
    return (place.on_host ? fake->host : fake->slots) +
           (int64_t)place.block * sim->limits.block_size;
}

/* A set of hashes. */
struct hash_set {
    uint64_t items[2 * MAX_BLOCKS]; /* 0: none */
};

/* Returns whether it was new. */
static bool add_to_set(struct hash_set *set, uint64_t hash) {
    uint64_t at = hash % (2 * MAX_BLOCKS);
    hash += hash == 0;
    for (; set->items[at] != 0; at = (at + 1) % (2 * MAX_BLOCKS))
        if (set->items[at] == hash)
            return false;
    set->items[at] = hash;
    return true;
}

/* Checks that the content that a cache knows of a block is in its slots, and was computed for the
 * tenant. */
static void check_cached_block(struct simulation *sim, const struct prefix_cache *cache,
                               int32_t block, const struct shadow_slot *slots) {
    int32_t size = sim->limits.block_size;
    const int32_t *tokens = cache->tokens + (int64_t)block * size;
    EXPECT(sim, slots[0].position >= 0 && slots[0].position % size == 0, block);
    for (int32_t i = 0; i < size; i++) {
        EXPECT(sim, slots[i].token == tokens[i], block);
        EXPECT(sim, slots[i].position == slots[0].position + i, block);
        EXPECT(sim, slots[i].scope == slots[0].scope, block);
        EXPECT(sim, slots[i].group == slots[0].group, block);
        EXPECT(sim,
               i == 0 || slots[i].history == fake_model_hash(slots[i - 1].history, slots[i].token),
               block);
    }
}

/* No content is known twice. */
static void check_cache(struct simulation *sim) {
    static struct hash_set set;
    const struct block_pool *pool = &sim->core.scheduler.blocks.pool;
    int32_t size = sim->limits.block_size, num_cached = 0;
    memset(&set, 0, sizeof(set));
    for (int32_t b = 0; b < pool->num_blocks; b++) {
        if (!pool->blocks[b].cached)
            continue;
        EXPECT(sim, sim->config.schedule.kv.caching, b);
        if (!sim->config.schedule.kv.caching)
            return;
        const struct shadow_slot *slots = slots_at(sim, (struct place){false, b});
        check_cached_block(sim, &sim->core.scheduler.blocks.cache, b, slots);
        const struct shadow_slot *last = &slots[size - 1];
        EXPECT(sim,
               add_to_set(&set, last->history ^ (last->scope * 3) ^ (uint64_t)last->group << 40),
               b);
        num_cached++;
    }
}

/* Of those that are not on their way from the store. */
static void check_kept(struct simulation *sim) {
    const struct block_tiers *tiers = &sim->core.scheduler.blocks.tiers;
    for (int32_t b = 0; tiers->states != NULL && b < tiers->kept.num_blocks; b++)
        if (prefix_cache_serial(&tiers->kept, b) != 0 && tiers->states[b] != KEPT_READING)
            check_cached_block(sim, &tiers->kept, b, slots_at(sim, (struct place){true, b}));
}

/* --- Sequences --- */

static int32_t first_held(const struct simulation *sim, const struct block_table *table,
                          int32_t group) {
    return group < sim->limits.num_full_groups ? 0 : table->num_dropped;
}

/* Checks that a group's slots hold what was computed of it, by somebody who may share it. */
static void check_content(struct simulation *sim, const struct sequence *s, int32_t group) {
    const struct block_table *table = &s->table;
    int32_t size = sim->limits.block_size, p = first_held(sim, table, group) * size;
    const struct shadow_slot *slots = NULL;
    const struct simulated_request *request = s->group->request->user;
    for (; p < s->num_computed && !sim->broken; p++) {
        if (slots == NULL || p % size == 0)
            slots = slots_at(
                sim, (struct place){table->on_host, *block_table_at(table, group, p / size)});
        const struct shadow_slot *slot = &slots[p % size];
        EXPECT(sim, slot->position == p && slot->group == group, p);
        EXPECT(sim, slot->token == sequence_token(s, p), p);
        EXPECT(sim, slot->scope == request->scope, p);
    }
}

/* The same of what the draft model has computed, once nothing is in flight. An MTP layer has a
 * token in the place of the one before it; at the end of a block, which others share, it may be
 * theirs, as may one that is not computed yet, whose place is drafted again before it is used. */
static void check_drafted(struct simulation *sim, const struct sequence *s) {
    const struct block_table *table = &s->table;
    const struct simulated_request *request = s->group->request->user;
    int32_t size = sim->limits.block_size;
    if (sim->executor.drafted == NULL || table->on_host || sim->core.num_in_flight > 0)
        return;
    int32_t end = block_manager_num_drafted(&sim->core.scheduler.blocks, table, s->num_computed);
    for (int32_t p = first_held(sim, table, 0) * size; p < end && !sim->broken; p++) {
        const struct shadow_slot *slot =
            &sim->executor.drafted[table->blocks[p / size] * size + p % size];
        EXPECT(sim, slot->position == p, p);
        int32_t next = sim->executor.has_mtp ? p + 1 : p;
        bool is_known = next == p || (next % size > 0 && next < s->num_computed);
        EXPECT(sim, !is_known || slot->token == sequence_token(s, next), p);
        EXPECT(sim, slot->scope == request->scope, p);
    }
}

/* Sums up what the steps in flight say of a sequence. */
static struct sequence_in_flight count_in_flight(const struct engine_core *core,
                                                 const struct sequence *s) {
    struct sequence_in_flight sum = {0};
    for (int32_t k = 0; k < core->num_in_flight; k++) {
        const struct step *step = &core->steps[(core->first_in_flight + k) % core->num_steps];
        for (int32_t i = 0; i < step->plan.num_entries; i++) {
            const struct planned_sequence *entry = &step->plan.entries[i];
            if (entry->sequence != s)
                continue;
            sum.num_tokens += entry->num_tokens;
            sum.num_drafts += entry->num_drafts;
            sum.num_samples += entry->samples;
            sum.sample_row = entry->first_row + entry->num_scores;
        }
    }
    return sum;
}

static void check_in_flight(struct simulation *sim, const struct sequence *s) {
    const struct sequence_in_flight counted = count_in_flight(&sim->core, s);
    const struct sequence_in_flight *known = &s->in_flight;
    EXPECT(sim, known->num_tokens == counted.num_tokens, counted.num_tokens);
    EXPECT(sim, known->num_drafts == counted.num_drafts, counted.num_drafts);
    EXPECT(sim, known->num_samples == counted.num_samples, counted.num_samples);
    EXPECT(sim, counted.num_tokens == 0 || known->sample_row == counted.sample_row, s->choice);
    EXPECT(sim, counted.num_samples <= 1, counted.num_samples);
    EXPECT(sim,
           counted.num_tokens == 0 || s->status == SEQUENCE_RUNNING ||
               s->status == SEQUENCE_FINISHED,
           s->status);
}

/* A sequence holds blocks for exactly the tokens that are computed, or will be by the steps in
 * flight, and inside the window. */
static void check_sequence(struct simulation *sim, const struct sequence *s) {
    int32_t size = sim->limits.block_size, window = sim->limits.window;
    bool holds = s->status == SEQUENCE_RUNNING || s->status == SEQUENCE_SWAPPED;
    int32_t needed = holds ? blocks_for_tokens(sequence_num_computed_ahead(s), size) : 0;
    int32_t num_there = s->num_computed;
    if (s->table.num_awaited > 0) {
        EXPECT(sim, s->table.num_awaited > needed, s->table.num_awaited);
        needed = s->table.num_awaited;
        num_there = needed * size;
    }
    int32_t passed =
        window > 0 && holds && num_there >= window ? (num_there - window + 1) / size : 0;
    EXPECT(sim, s->table.num_blocks == needed, s->num_computed);
    EXPECT(sim, s->table.num_dropped == (passed < needed ? passed : needed), s->num_computed);
    EXPECT(sim, needed == 0 || s->table.on_host == (s->status == SEQUENCE_SWAPPED), s->choice);
    /* one that ended among accepted drafts has computed more than it has */
    EXPECT(sim, s->num_computed <= s->num_tokens || s->status == SEQUENCE_FINISHED,
           s->num_computed);
    EXPECT(sim, s->num_scheduled_tokens == 0, s->num_scheduled_tokens);
    EXPECT(sim, s->status != SEQUENCE_WAITING || s->num_computed == 0, s->num_computed);
    EXPECT(sim, s->status != SEQUENCE_FINISHED || s->finish != FINISH_NONE, s->choice);
    check_in_flight(sim, s);
    sim->num_dropped += (uint64_t)s->table.num_dropped;
    for (int32_t g = 0; g < s->table.num_groups && holds && !has_failed(sim) && !sim->broken; g++)
        check_content(sim, s, g);
    if (holds && !has_failed(sim) && !sim->broken)
        check_drafted(sim, s);
}

static void check_entries_in_flight(struct simulation *sim, const struct sequence_group *g) {
    const struct engine_core *core = &sim->core;
    int32_t num_entries = 0, num_forks = 0;
    for (int32_t k = 0; k < core->num_in_flight; k++) {
        const struct step *step = &core->steps[(core->first_in_flight + k) % core->num_steps];
        for (int32_t i = 0; i < step->plan.num_entries; i++)
            if (step->plan.entries[i].sequence->group == g) {
                num_entries++;
                num_forks += step->plan.entries[i].num_forks;
            }
    }
    EXPECT(sim, g->num_in_flight == num_entries, num_entries);
    EXPECT(sim, g->num_forking == num_forks, num_forks);
    EXPECT(sim, num_entries == 0 || g->status == GROUP_RUNNING, g->status);
}

/* What waits for the store can be found: the store gets nothing else. */
static void check_handover(struct simulation *sim, const struct sequence_group *g) {
    const struct sequence *leader = sequence_group_leader(g);
    const struct block *blocks = sim->core.scheduler.blocks.pool.blocks;
    if (!g->handover.is_storing || leader == NULL || leader->status != SEQUENCE_RUNNING)
        return;
    for (int32_t i = 0; i < g->handover.num_tokens / sim->limits.block_size; i++)
        for (int32_t group = 0; group < leader->table.num_groups; group++) {
            int32_t block = *block_table_at(&leader->table, group, i);
            EXPECT(sim, block < 0 || blocks[block].cached, i);
        }
}

/* All of a group's sequences are on the device, or none. */
static void check_group(struct simulation *sim, const struct sequence_group *g) {
    struct simulated_request *request = g->request->user;
    check_entries_in_flight(sim, g);
    request->was_preempted |= g->status == GROUP_WAITING && g->started;
    int32_t num_running = sequence_group_count(g, SEQUENCE_RUNNING);
    int32_t num_swapped = sequence_group_count(g, SEQUENCE_SWAPPED);
    EXPECT(sim, g->status == GROUP_RUNNING || num_running == 0, num_running);
    EXPECT(sim, g->status == GROUP_WAITING || num_swapped == 0, num_swapped);
    EXPECT(sim, g->is_swapped == (num_swapped > 0), num_swapped);
    EXPECT(sim, num_running <= g->max_running, num_running);
    check_handover(sim, g);
    /* what was cancelled before the step has ended with it */
    EXPECT(sim, !atomic_load(&g->request->cancelled), (int64_t)g->request->id);
}

static void check_sequences(struct simulation *sim) {
    const struct engine_core *core = &sim->core;
    int32_t num_running = 0, num_groups = 0, num_waiting = 0;
    for (const struct sequence_group *g = core->first_group; g != NULL; g = g->next) {
        for (int32_t i = 0; i < g->num_sequences; i++) {
            check_sequence(sim, &g->sequences[i]);
            num_running += g->sequences[i].status == SEQUENCE_RUNNING;
        }
        check_group(sim, g);
        num_groups += g->status == GROUP_RUNNING;
        num_waiting += g->status == GROUP_WAITING;
    }
    EXPECT(sim, num_running <= core->config.schedule.kv.limits->max_num_seqs, num_running);
    EXPECT(sim, num_running == core->stats.num_running, num_running);
    EXPECT(sim, num_groups == core->scheduler.running.count, num_groups);
    EXPECT(sim, num_waiting == core->scheduler.waiting.count, num_waiting);
}

/* Groups stand in order, in a share by priority and arrival, and so do the places of those that
 * run; what a share has reserved is what its groups have. */
static void check_shares(struct simulation *sim) {
    const struct share_queue *queue = &sim->core.scheduler.waiting;
    const struct sequence_group *running = sim->core.scheduler.running.first;
    int64_t num_reserved[8] = {0};
    for (const struct sequence_group *g = sim->core.first_group; g != NULL; g = g->next)
        num_reserved[g->request->share] += g->num_reserved;
    for (int32_t i = 0; i < queue->num_shares; i++)
        EXPECT(sim, queue->shares[i].num_reserved == num_reserved[i], i);
    for (const struct sequence_group *g = running; g != NULL; g = g->list_next) {
        const struct sequence_group *next = g->list_next;
        EXPECT(sim, next == NULL || sequence_group_before(g, next), (int64_t)g->request->id);
        for (; next != NULL; next = next->list_next)
            EXPECT(sim, g->place <= next->place, (int64_t)g->request->id);
    }
    int32_t count = 0;
    for (const struct sequence_group *g = share_queue_next(queue, NULL); g != NULL;
         g = share_queue_next(queue, g)) {
        const struct sequence_group *next = g->list_next;
        EXPECT(sim, next == NULL || (sequence_group_before(g, next) && g->place <= next->place),
               (int64_t)g->request->id);
        count++;
    }
    EXPECT(sim, count == queue->count, count);
}

/* A group ends in the first step that begins behind its deadline, and whoever waits for its readers
 * knows of the next one. */
static void check_deadlines(struct simulation *sim) {
    const struct engine_core *core = &sim->core;
    int64_t step_ns = sim->now + 1;
    for (const struct sequence_group *g = core->first_group; g != NULL; g = g->next) {
        const struct request *request = g->request;
        const int64_t deadlines[] = {request->deadline_ns,
                                     g->started ? 0 : request->queue_deadline_ns};
        for (int i = 0; i < 2; i++) {
            bool is_set = deadlines[i] != 0;
            EXPECT(sim, !is_set || deadlines[i] > step_ns, (int64_t)request->id);
            EXPECT(sim,
                   !is_set ||
                       (core->first_deadline_ns != 0 && core->first_deadline_ns <= deadlines[i]),
                   (int64_t)request->id);
        }
    }
}

static void check_step_times(struct simulation *sim) {
    const struct engine_stats *stats = &sim->core.stats;
    EXPECT(sim, stats->step_gap.total == stats->step, (int64_t)stats->step_gap.total);
    for (int i = 0; i < NUM_STEP_PARTS; i++) {
        EXPECT(sim, stats->step_host[i].total == stats->step, i);
        EXPECT(sim, stats->step_host[i].sum >= 0, i);
    }
}

/* --- Adapters --- */

static enum adapter_state state_of(const struct adapter_slot *slot) {
    if (slot->is_unloading)
        return ADAPTER_UNLOADING;
    return slot->was_ready ? ADAPTER_READY : ADAPTER_LOADING;
}

/* The requests of a slot are the live groups that name it, and those of steps in flight. */
static void check_adapters(struct simulation *sim) {
    const struct adapter_slots *slots = &sim->core.adapters;
    for (int32_t i = 0; i < slots->shape.num_slots; i++) {
        const struct adapter_slot *slot = &slots->slots[i];
        int64_t num_live = 0, num_running = 0;
        if (slot->adapter == NULL)
            continue;
        for (const struct sequence_group *g = sim->core.first_group; g != NULL; g = g->next) {
            num_live += g->request->adapter == slot->adapter;
            num_running += g->request->adapter == slot->adapter && g->status == GROUP_RUNNING;
        }
        EXPECT(sim, atomic_load(&slot->adapter->state) == state_of(slot), i);
        EXPECT(sim, !slot->is_unloading || slot->num_requests > 0, i);
        EXPECT(sim,
               slot->num_requests == num_live ||
                   (slot->num_requests > num_live && sim->core.num_in_flight > 0),
               slot->num_requests);
        EXPECT(sim, atomic_load(&slot->adapter->num_running) == num_running, num_running);
        EXPECT(sim, atomic_load(&slot->adapter->num_waiting) == num_live - num_running, num_live);
    }
}

void invariants_check_state(struct simulation *sim) {
    check_adapters(sim);
    check_step_times(sim);
    check_deadlines(sim);
    check_pools(sim);
    check_sequences(sim);
    check_shares(sim);
    if (!sim->broken && !has_failed(sim)) {
        check_cache(sim);
        check_kept(sim);
    }
    const struct step_plan *plan = sim->core.scheduler.plan; /* NULL: none was made yet */
    EXPECT(sim, plan == NULL || plan->num_tokens <= sim->limits.max_num_batched_tokens,
           plan->num_tokens);
    if (sim->executor.violation[0] != '\0')
        simulation_fail(sim, sim->executor.violation, 0);
}
