/* The scheduler with groups: forks, prefixes found again, blocks swapped out. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/schedule/scheduler.h"
#include "tests/unit/engine/sequence_fixture.h"

#define MAX_GROUPS 40

struct fixture {
    struct planned_sequence entries[64];
    struct step_plan plan;
    struct scheduler scheduler;
    struct sequence_group *groups[MAX_GROUPS];
    int num_groups;
};

static struct serving_limits limits;

static struct scheduler_config config_of(int32_t num_blocks, int32_t num_host_blocks) {
    limits = (struct serving_limits){.num_blocks = num_blocks,
                                     .num_host_blocks = num_host_blocks,
                                     .block_size = 4,
                                     .max_num_seqs = 36,
                                     .max_num_batched_tokens = 64,
                                     .max_model_len = 1000};
    return (struct scheduler_config){
        .kv.limits = &limits,
        .kv.num_tenants = 2,
        .kv.caching = true,
    };
}

static void start(struct fixture *f, const struct scheduler_config *config) {
    memset(f, 0, sizeof(*f));
    assert_int_equal(scheduler_init(&f->scheduler, config), 0);
}

static struct sequence_group *add(struct fixture *f, int32_t num_prompt_tokens,
                                  int32_t num_choices) {
    struct sampling_params params = fixture_params(20);
    params.num_choices = num_choices;
    struct sequence_group *group =
        fixture_group((uint64_t)f->num_groups + 1, 0, num_prompt_tokens, &params, 1000, 4);
    f->groups[f->num_groups++] = group;
    scheduler_add(&f->scheduler, group);
    return group;
}

static void stop(struct fixture *f) {
    for (int i = 0; i < f->num_groups; i++) {
        for (int32_t s = 0; s < f->groups[i]->num_sequences; s++)
            if (f->groups[i]->sequences[s].status != SEQUENCE_FINISHED)
                scheduler_remove(&f->scheduler, &f->groups[i]->sequences[s]);
        sequence_group_destroy(f->groups[i]);
    }
    assert_int_equal(f->scheduler.blocks.pool.num_used, 0);
    assert_int_equal(f->scheduler.blocks.host.num_used, 0);
    scheduler_finish(&f->scheduler);
}

static const struct step_plan *plan_step(struct fixture *f) {
    f->plan.entries = f->entries;
    scheduler_plan(&f->scheduler, &f->plan);
    return &f->plan;
}

/* Plans a step, which runs at once. */
static const struct step_plan *plan_and_run(struct fixture *f) {
    plan_step(f);
    scheduler_submit(&f->scheduler, &f->plan);
    scheduler_collect(&f->scheduler);
    return &f->plan;
}

static const struct step_plan *step(struct fixture *f) {
    const struct step_plan *plan = plan_and_run(f);
    for (int32_t i = 0; i < plan->num_entries; i++) {
        struct sequence *s = plan->entries[i].sequence;
        scheduler_commit(&f->scheduler, &plan->entries[i], 0);
        if (sequence_num_pending(s) == 0)
            assert_int_equal(sequence_append(s, 3), 0);
    }
    return plan;
}

/* A prompt of 6 tokens: a full block and half of one, both shared until someone writes. */
static void test_a_write_copies_the_shared_block(void **state) {
    struct scheduler_config config = config_of(20, 0);
    struct fixture f;
    start(&f, &config);
    struct sequence_group *group = add(&f, 6, 3);
    struct sequence *s = group->sequences;
    const struct step_plan *plan = plan_and_run(&f);
    scheduler_commit(&f.scheduler, &plan->entries[0], 0);
    for (int i = 1; i < 3; i++)
        scheduler_fork(&f.scheduler, &s[0], &s[i], 6);
    assert_int_equal(f.scheduler.blocks.pool.num_used, 2);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sequence_append(&s[i], 20 + i), 0);
    plan = plan_step(&f);
    assert_int_equal(plan->num_entries, 3);
    assert_int_equal(f.scheduler.blocks.copies.count, 2); /* the last of three keeps it */
    assert_int_equal(f.scheduler.blocks.pool.num_used, 4);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(s[i].table.blocks[0], s[0].table.blocks[0]);
        assert_int_not_equal(s[i].table.blocks[1], s[0].table.blocks[1]);
    }
    assert_int_not_equal(s[1].table.blocks[1], s[2].table.blocks[1]);
    stop(&f);
}

/* Two of one group about to write to the block they share, and no block for the copy: the plan is
 * made without them. */
static void test_a_copy_waits_for_a_block(void **state) {
    struct scheduler_config config = config_of(20, 0);
    struct fixture f;
    start(&f, &config);
    struct sequence *s = add(&f, 6, 2)->sequences;
    const struct step_plan *plan = plan_and_run(&f);
    scheduler_commit(&f.scheduler, &plan->entries[0], 0);
    scheduler_fork(&f.scheduler, &s[0], &s[1], 6);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sequence_append(&s[i], 20 + i), 0);
    int32_t taken[20];
    int num_taken = 0;
    while (block_pool_num_free(&f.scheduler.blocks.pool) > 0)
        taken[num_taken++] = block_pool_alloc(&f.scheduler.blocks.pool);
    assert_int_equal(plan_step(&f)->num_entries, 0);
    for (int i = 0; i < num_taken; i++)
        block_pool_unref(&f.scheduler.blocks.pool, taken[i]);
    assert_int_equal(plan_step(&f)->num_entries, 2);
    assert_int_equal(f.scheduler.blocks.copies.count, 1);
    stop(&f);
}

/* 32 equal prompts of 40 tokens at once: nine full blocks of it are computed and held once. */
static void test_a_prefix_is_computed_once(void **state) {
    struct scheduler_config config = config_of(400, 0);
    struct fixture f;
    start(&f, &config);
    for (int i = 0; i < 32; i++)
        add(&f, 40, 1);
    int32_t num_computed = 0;
    for (int i = 0; i < 4; i++)
        num_computed += step(&f)->num_tokens;
    assert_in_range(num_computed, 40 + 31 * 4, 40 + 31 * 4 + 3 * 32);
    for (int i = 1; i < 32; i++)
        for (int b = 0; b < 9; b++)
            assert_int_equal(f.groups[i]->sequences[0].table.blocks[b],
                             f.groups[0]->sequences[0].table.blocks[b]);
    assert_int_equal(f.groups[0]->num_cached_tokens, 0);
    assert_int_equal(f.groups[31]->num_cached_tokens, 36);
    assert_int_equal(f.scheduler.num_hit_tokens, 31 * 36);
    assert_int_equal(f.scheduler.num_queried_tokens, 32 * 39);
    stop(&f);
}

/* Nor is it, where a step has time for less than a block. */
static void test_a_prefix_is_computed_once_in_small_chunks(void **state) {
    struct scheduler_config config = config_of(100, 0);
    limits.block_size = 16;
    config.max_step_ns = -1;
    struct fixture f;
    start(&f, &config);
    for (int32_t i = 0; i < 200; i++) {
        struct step_work work = {0};
        const struct step_chunk chunk = {.begin = 10 * (i % 7), .num_tokens = 1 + i % 40};
        step_work_add(&work, &chunk);
        step_cost_add(&f.scheduler.step_cost, &work,
                      (int64_t)(1e7 * work.amounts[STEP_WORK_TOKENS]));
    }
    const struct sampling_params params = fixture_params(100);
    for (int i = 0; i < 4; i++) {
        f.groups[f.num_groups++] = fixture_group((uint64_t)i + 1, 0, 100, &params, 1000, 16);
        scheduler_add(&f.scheduler, f.groups[i]);
    }
    for (int i = 0; i < 60 && sequence_num_pending(&f.groups[3]->sequences[0]) > 1; i++)
        step(&f);
    for (int i = 1; i < 4; i++)
        assert_int_equal(f.groups[i]->num_cached_tokens, 96);
    stop(&f);
}

/* Nor is it by the next step while the one that computes it is in flight. */
static void test_a_prefix_in_flight_is_waited_for(void **state) {
    struct scheduler_config config = config_of(20, 0);
    struct fixture f;
    start(&f, &config);
    const struct sequence *first = add(&f, 13, 1)->sequences;
    assert_int_equal(plan_step(&f)->num_tokens, 13);
    first->group->num_in_flight++;
    scheduler_submit(&f.scheduler, &f.plan);
    const struct sequence *second = add(&f, 13, 1)->sequences;
    plan_step(&f);
    assert_int_equal(f.plan.num_entries, 1);
    assert_ptr_equal(f.plan.entries[0].sequence, first);
    assert_int_equal(second->status, SEQUENCE_RUNNING);
    scheduler_submit(&f.scheduler, &f.plan);
    scheduler_collect(&f.scheduler);
    scheduler_collect(&f.scheduler);
    stop(&f);
}

/* Room for 2 of 3 to grow: one goes out, and comes back as it was. */
static void test_swapping_keeps_what_is_computed(void **state) {
    struct scheduler_config config = config_of(12, 12);
    struct fixture f;
    config.kv.caching = false;
    start(&f, &config);
    for (int i = 0; i < 3; i++)
        add(&f, 9, 1);
    f.scheduler.token_ns = 1;
    struct sequence *last = &f.groups[2]->sequences[0];
    while (step(&f)->num_swapped_out == 0)
        assert_in_range(last->num_tokens, 9, 29);
    int32_t num_computed = last->num_computed;
    assert_int_equal(last->status, SEQUENCE_SWAPPED);
    assert_true(f.groups[2]->is_swapped);
    assert_true(last->table.on_host);
    assert_int_equal(f.scheduler.blocks.host.num_used, last->table.num_blocks);
    scheduler_remove(&f.scheduler, &f.groups[0]->sequences[0]);
    step(&f);
    assert_int_equal(last->status, SEQUENCE_RUNNING);
    assert_int_equal(last->num_computed, num_computed + 1);
    assert_int_equal(f.scheduler.blocks.host.num_used, 0);
    assert_int_equal(f.scheduler.num_swaps, 1);
    assert_int_equal(f.scheduler.num_recomputes, 0);
    stop(&f);
}

static int32_t dropped_after(struct fixture *f, const struct scheduler_config *config,
                             double token_ns) {
    start(f, config);
    for (int i = 0; i < 3; i++)
        add(f, 9, 1);
    f->scheduler.token_ns = token_ns;
    const struct step_plan *plan;
    do
        plan = step(f);
    while (plan->num_swapped_out + plan->num_dropped == 0);
    int32_t num_dropped = plan->num_dropped;
    stop(f);
    return num_dropped;
}

/* Three or four blocks out and in, or up to 16 tokens through the model again. */
static void test_the_cheaper_way_is_taken(void **state) {
    struct scheduler_config config = config_of(12, 12);
    struct fixture f;
    config.kv.caching = false;
    config.swap_block_ns = 1000;
    assert_int_equal(dropped_after(&f, &config, 10), 1);
    assert_int_equal(dropped_after(&f, &config, 10000), 0);
    limits.num_host_blocks = 2; /* no room for it */
    assert_int_equal(dropped_after(&f, &config, 10000), 1);
}

/* Four choices, and blocks for one or two of them at a time. */
static void test_choices_wait_for_a_slot(void **state) {
    struct scheduler_config config = config_of(9, 0);
    struct fixture f;
    start(&f, &config);
    struct sequence_group *group = add(&f, 9, 4); /* 2 blocks shared, 5 of its own each */
    assert_int_equal(group->max_running, 1);
    const struct step_plan *plan = step(&f);
    assert_int_equal(plan->num_entries, 1);
    assert_int_equal(sequence_group_count(group, SEQUENCE_WAITING), 3);
    scheduler_remove(&f.scheduler, &group->sequences[0]);
    plan = step(&f);
    assert_int_equal(plan->num_entries, 1);
    assert_ptr_equal(plan->entries[0].sequence, &group->sequences[1]);
    assert_int_equal(group->sequences[1].num_computed, 9); /* 8 of them found again */
    assert_int_equal(plan->entries[0].num_tokens, 1);
    stop(&f);
}

/* Four running slots, two of them taken: a group of four choices does not wait for the others, nor
 * does it keep a slot from those behind it that it has no use for. */
static void test_choices_take_the_slots_there_are(void **state) {
    struct scheduler_config config = config_of(100, 0);
    struct fixture f;
    limits.max_num_seqs = 4;
    start(&f, &config);
    struct sequence_group *first = add(&f, 5, 1), *second = add(&f, 5, 1);
    step(&f);
    struct sequence_group *group = add(&f, 9, 4), *behind = add(&f, 5, 1);
    step(&f);
    assert_int_equal(group->status, GROUP_RUNNING);
    assert_int_equal(group->max_running, 2);
    assert_int_equal(behind->status, GROUP_WAITING);
    scheduler_remove(&f.scheduler, &first->sequences[0]);
    step(&f);
    assert_int_equal(group->max_running, 3); /* it was there first */
    assert_int_equal(behind->status, GROUP_WAITING);
    scheduler_remove(&f.scheduler, &group->sequences[3]);
    scheduler_remove(&f.scheduler, &second->sequences[0]);
    step(&f);
    assert_int_equal(group->max_running, 3);
    assert_int_equal(behind->status, GROUP_RUNNING);
    stop(&f);
}

/* Eight running slots. Alone, a group of 40 choices takes them all; once somebody waits it has its
 * turn of 16 choices as any group, and then half of the slots. */
static void test_many_choices_leave_room(void **state) {
    struct scheduler_config config = config_of(100, 0);
    struct fixture f;
    limits.max_num_seqs = 8;
    start(&f, &config);
    struct sequence_group *group = add(&f, 5, 40);
    step(&f);
    assert_int_equal(group->max_running, 8);
    assert_int_equal(group->num_tables, 8); /* what only waits has no memory for blocks */
    for (int i = 1; i < 8; i++)
        scheduler_fork(&f.scheduler, &group->sequences[0], &group->sequences[i], 5);
    struct sequence_group *behind = add(&f, 5, 1);
    for (int i = 0; i < 8; i++) {
        scheduler_remove(&f.scheduler, &group->sequences[i]);
        step(&f);
    }
    assert_int_equal(behind->status, GROUP_WAITING); /* 32 left: still its turn */
    assert_int_equal(group->max_running, 8);
    for (int i = 8; i < 12; i++) {
        scheduler_remove(&f.scheduler, &group->sequences[i]);
        step(&f);
    }
    assert_int_equal(behind->status, GROUP_RUNNING);
    assert_int_equal(group->max_running, 7);
    struct sequence_group *more[4];
    for (int i = 0; i < 4; i++)
        more[i] = add(&f, 5, 1);
    step(&f);
    assert_int_equal(group->max_running, 4);
    assert_int_equal(more[2]->status, GROUP_RUNNING);
    assert_int_equal(more[3]->status, GROUP_WAITING);
    stop(&f);
}

/* Tokens more than a window back are given up, block by block. */
static void test_a_window_frees_blocks(void **state) {
    struct scheduler_config config = config_of(40, 0);
    struct fixture f;
    limits.window = 6;
    start(&f, &config);
    struct sequence *s = &add(&f, 9, 1)->sequences[0];
    for (int32_t computed = 9; computed < 28; computed++) {
        step(&f);
        assert_int_equal(s->num_computed, computed);
        /* the next token sees positions computed - 5 and later */
        assert_int_equal(s->table.num_dropped, (computed - 5) / 4);
        assert_int_equal(f.scheduler.blocks.pool.num_used,
                         s->table.num_blocks - s->table.num_dropped);
        for (int32_t b = 0; b < s->table.num_dropped; b++)
            assert_int_equal(s->table.blocks[b], -1);
    }
    stop(&f);
}

/* Choices that fork when a step in flight is committed count as running. */
static void test_who_is_about_to_fork_keeps_its_slot(void **state) {
    struct scheduler_config config = config_of(200, 0);
    struct fixture f;
    start(&f, &config);
    struct sequence_group *group = add(&f, 5, 30);
    plan_step(&f);
    assert_int_equal(group->max_running, 30);
    f.plan.entries[0].num_forks = 29;
    group->num_in_flight++;
    scheduler_submit(&f.scheduler, &f.plan);
    add(&f, 5, 1);
    plan_step(&f); /* without room for others a group has 16 */
    assert_int_equal(group->max_running, 30);
    scheduler_submit(&f.scheduler, &f.plan);
    scheduler_collect(&f.scheduler);
    scheduler_collect(&f.scheduler);
    stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_write_copies_the_shared_block),
        cmocka_unit_test(test_a_copy_waits_for_a_block),
        cmocka_unit_test(test_a_prefix_is_computed_once),
        cmocka_unit_test(test_a_prefix_is_computed_once_in_small_chunks),
        cmocka_unit_test(test_a_prefix_in_flight_is_waited_for),
        cmocka_unit_test(test_swapping_keeps_what_is_computed),
        cmocka_unit_test(test_the_cheaper_way_is_taken),
        cmocka_unit_test(test_choices_wait_for_a_slot),
        cmocka_unit_test(test_choices_take_the_slots_there_are),
        cmocka_unit_test(test_many_choices_leave_room),
        cmocka_unit_test(test_who_is_about_to_fork_keeps_its_slot),
        cmocka_unit_test(test_a_window_frees_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
