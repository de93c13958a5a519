#include "tests/sim/flight_watch.h"

#include "config/base/check.h"
#include "tests/sim/fake_model.h"

#include <string.h>

/* --- Who held what --- */

/* Returns where the pair is, or would be added. */
static struct block_holder *find_holder(struct watched_step *step,
                                        const struct sequence_group *group, int32_t block) {
    uint64_t at = fake_model_hash((uint64_t)(uintptr_t)group, block);
    for (;; at++) {
        struct block_holder *holder = &step->holders[at % FLIGHT_WATCH_MAX_HOLDERS];
        if (holder->step != step->serial || (holder->group == group && holder->block == block))
            return holder;
    }
}

static bool is_used(const struct watched_step *step, int32_t block) {
    return step->used[block] == step->serial;
}

static bool held_it(struct watched_step *step, const struct sequence_group *group, int32_t block) {
    return find_holder(step, group, block)->step == step->serial;
}

/* Those that the table has dropped are -1. */
static void note_holders(struct watched_step *step, const struct sequence_group *group) {
    for (int32_t s = 0; s < group->num_sequences; s++) {
        const struct block_table *table = &group->sequences[s].table;
        for (int32_t g = 0; g < table->num_groups; g++)
            for (int32_t i = 0; i < table->num_blocks && !table->on_host; i++) {
                int32_t block = *block_table_at(table, g, i);
                if (block >= 0 && is_used(step, block))
                    *find_holder(step, group, block) =
                        (struct block_holder){step->serial, group, block};
            }
    }
}

/* --- Steps --- */

static void note_used(struct watched_step *watched, const struct step *step) {
    for (int32_t e = 0; e < step->plan.num_entries; e++) {
        const struct block_table *table = &step->plan.entries[e].sequence->table;
        for (int32_t g = 0; g < table->num_groups; g++)
            for (int32_t i = 0; i < table->num_blocks; i++)
                if (*block_table_at(table, g, i) >= 0)
                    watched->used[*block_table_at(table, g, i)] = watched->serial;
    }
    for (int32_t i = 0; i < step->batch.copies.count; i++)
        watched->used[step->batch.copies.from[i]] = watched->serial;
}

static int32_t find_used(const struct watched_step *before, const struct block_pairs *moves) {
    for (int32_t i = 0; i < moves->count; i++)
        if (is_used(before, moves->to[i]))
            return moves->to[i];
    return -1;
}

/* Returns a block that the step writes to and `before` uses for somebody else. */
static int32_t find_taken(struct watched_step *before, const struct step *step, int32_t size) {
    const struct step_inputs *in = &step->batch.inputs;
    for (int32_t e = 0; e < step->plan.num_entries; e++)
        for (int32_t g = 0; g < in->num_groups; g++)
            for (int32_t i = in->query_start[e]; i < in->query_start[e + 1]; i++) {
                int32_t block = step_slots(in, g)[i] / size;
                if (is_used(before, block) &&
                    !held_it(before, step->plan.entries[e].sequence->group, block))
                    return block;
            }
    int32_t copied = find_used(before, &step->batch.copies);
    return copied >= 0 ? copied : find_used(before, &step->batch.swap_in);
}

static struct watched_step *step_at(struct flight_watch *watch, uint64_t index) {
    return &watch->steps[index % EXECUTOR_MAX_STEPS];
}

int32_t flight_watch_submit(struct flight_watch *watch, const struct engine_core *core,
                            const struct step *step) {
    CHECK(watch->num_submitted - watch->num_collected < EXECUTOR_MAX_STEPS);
    CHECK(core->scheduler.blocks.pool.num_blocks <= FLIGHT_WATCH_MAX_BLOCKS);
    int32_t taken = -1;
    for (uint64_t i = watch->num_collected; i < watch->num_submitted && taken < 0; i++)
        taken = find_taken(step_at(watch, i), step, core->config.schedule.kv.limits->block_size);
    struct watched_step *watched = step_at(watch, watch->num_submitted++);
    watched->serial = watch->num_submitted;
    note_used(watched, step);
    for (const struct sequence_group *g = core->first_group; g != NULL; g = g->next)
        note_holders(watched, g);
    return taken;
}

void flight_watch_collect(struct flight_watch *watch) {
    CHECK(watch->num_collected < watch->num_submitted);
    watch->num_collected++;
}

int32_t flight_watch_find_free(struct flight_watch *watch, const struct block_pool *pool) {
    for (uint64_t i = watch->num_collected; i < watch->num_submitted; i++)
        for (int32_t b = 0; b < pool->num_blocks; b++)
            if (is_used(step_at(watch, i), b) && pool->blocks[b].references == 0 &&
                pool->blocks[b].pins == 0)
                return b;
    return -1;
}
