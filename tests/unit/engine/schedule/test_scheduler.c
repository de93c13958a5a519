#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/schedule/scheduler.h"
#include "tests/unit/engine/sequence_fixture.h"

#include <stdlib.h>
#include <string.h>

#define MAX_GROUPS 8

struct fixture {
    struct planned_sequence entries[64];
    struct step_plan plan;
    struct scheduler scheduler;
    struct sequence_group *groups[MAX_GROUPS];
    int num_groups;
};

static struct serving_limits limits;

static struct scheduler_config config_of(int32_t slots, int32_t budget, int32_t num_blocks) {
    limits = (struct serving_limits){.num_blocks = num_blocks,
                                     .block_size = 4,
                                     .max_num_seqs = slots,
                                     .max_num_batched_tokens = budget,
                                     .max_model_len = 1000};
    return (struct scheduler_config){
        .kv.limits = &limits,
        .kv.num_tenants = 1,
    };
}

static void start_with(struct fixture *f, const struct scheduler_config *config) {
    memset(f, 0, sizeof(*f));
    assert_int_equal(scheduler_init(&f->scheduler, config), 0);
}

static void start(struct fixture *f, int32_t slots, int32_t budget, int32_t num_blocks) {
    const struct scheduler_config config = config_of(slots, budget, num_blocks);
    start_with(f, &config);
}

static struct sequence *add(struct fixture *f, int32_t priority, int32_t num_prompt_tokens) {
    int32_t room = limits.num_blocks * 4 - num_prompt_tokens;
    struct sampling_params params = fixture_params(room < 500 ? room : 500);
    struct sequence_group *group =
        fixture_group((uint64_t)f->num_groups + 1, priority, num_prompt_tokens, &params, 1000, 4);
    f->groups[f->num_groups++] = group;
    scheduler_add(&f->scheduler, group);
    return &group->sequences[0];
}

static void stop(struct fixture *f) {
    for (int i = 0; i < f->num_groups; i++) {
        if (f->groups[i]->sequences[0].status != SEQUENCE_FINISHED)
            scheduler_remove(&f->scheduler, &f->groups[i]->sequences[0]);
        sequence_group_destroy(f->groups[i]);
    }
    assert_int_equal(f->scheduler.blocks.pool.num_used, 0);
    scheduler_finish(&f->scheduler);
}

/* Plans a step, which runs at once. */
static const struct step_plan *plan_and_run(struct fixture *f) {
    f->plan.entries = f->entries;
    scheduler_plan(&f->scheduler, &f->plan);
    scheduler_submit(&f->scheduler, &f->plan);
    scheduler_collect(&f->scheduler);
    return &f->plan;
}

static int32_t planned(const struct step_plan *plan, const struct sequence *sequence) {
    for (int32_t i = 0; i < plan->num_entries; i++)
        if (plan->entries[i].sequence == sequence)
            return plan->entries[i].num_tokens;
    return 0;
}

/* Computes the planned tokens; whoever has nothing pending samples a token. */
static void commit(struct fixture *f, const struct step_plan *plan) {
    for (int32_t i = 0; i < plan->num_entries; i++) {
        struct sequence *s = plan->entries[i].sequence;
        scheduler_commit(&f->scheduler, &plan->entries[i], 0);
        int32_t needed = blocks_for_tokens(s->num_computed, 4);
        assert_int_equal(s->table.num_blocks, needed);
        if (sequence_num_pending(s) == 0)
            assert_int_equal(sequence_append(s, 3), 0);
    }
}

static const struct step_plan *step(struct fixture *f) {
    const struct step_plan *plan = plan_and_run(f);
    commit(f, plan);
    return plan;
}

static int32_t num_preempted(const struct step_plan *plan) {
    return plan->num_swapped_out + plan->num_dropped;
}

static void test_a_long_prompt_comes_in_chunks(void **state) {
    struct fixture f;
    start(&f, 4, 10, 100);
    struct sequence *s = add(&f, 0, 25);
    assert_int_equal(planned(step(&f), s), 10);
    assert_int_equal(planned(step(&f), s), 10);
    assert_int_equal(planned(step(&f), s), 5);
    assert_int_equal(planned(step(&f), s), 1); /* its first generated token */
    assert_int_equal(s->table.num_blocks, 7);
    stop(&f);
}

static void test_decoding_is_not_held_up(void **state) {
    struct fixture f;
    start(&f, 4, 8, 100);
    struct sequence *a = add(&f, 0, 3), *b = add(&f, 0, 3);
    step(&f);
    struct sequence *prompt = add(&f, -5, 100); /* even an urgent one */
    for (int i = 0; i < 5; i++) {
        const struct step_plan *plan = step(&f);
        assert_int_equal(planned(plan, a), 1);
        assert_int_equal(planned(plan, b), 1);
        assert_int_equal(planned(plan, prompt), 6);
        assert_int_equal(plan->num_tokens, 8);
    }
    stop(&f);
}

/* Arrives last, gets its whole prompt in the first step it is in; the oldest still gets half. */
static void test_a_short_prompt_passes_long_ones(void **state) {
    struct fixture f;
    start(&f, 8, 20, 1000);
    struct sequence *first = add(&f, 0, 300);
    for (int i = 0; i < 4; i++)
        add(&f, 0, 300);
    step(&f);
    struct sequence *late = add(&f, 0, 6);
    const struct step_plan *plan = step(&f);
    assert_int_equal(planned(plan, late), 6);
    assert_true(planned(plan, first) >= 10);
    assert_int_equal(plan->num_tokens, 20);
    stop(&f);
}

static void test_urgent_prompts_first(void **state) {
    struct fixture f;
    start(&f, 8, 20, 1000);
    struct sequence *old = add(&f, 0, 100), *urgent = add(&f, -1, 100);
    const struct step_plan *plan = step(&f);
    assert_int_equal(planned(plan, urgent), 20);
    assert_int_equal(planned(plan, old), 0);
    struct sequence *more_urgent = add(&f, -2, 100), *also = add(&f, -2, 5);
    plan = step(&f);
    assert_int_equal(planned(plan, more_urgent), 15);
    assert_int_equal(planned(plan, also), 5);
    scheduler_remove(&f.scheduler, more_urgent);
    scheduler_remove(&f.scheduler, also);
    while (sequence_num_pending(urgent) > 15)
        step(&f);
    plan = step(&f);
    assert_int_equal(planned(plan, urgent) + planned(plan, old), 20); /* nothing is left over */
    assert_true(planned(plan, old) > 0);
    stop(&f);
}

static void test_running_slots(void **state) {
    struct fixture f;
    start(&f, 2, 20, 1000);
    struct sequence *a = add(&f, 0, 3), *b = add(&f, 0, 3), *c = add(&f, 0, 3);
    step(&f);
    assert_int_equal(f.scheduler.running.count, 2);
    assert_int_equal(c->status, SEQUENCE_WAITING);
    scheduler_remove(&f.scheduler, a);
    const struct step_plan *plan = step(&f);
    assert_int_equal(planned(plan, c), 3);
    assert_int_equal(planned(plan, b), 1);
    stop(&f);
}

/* Four blocks; two sequences of one block each that grow until none is left. */
static void test_the_newest_is_preempted(void **state) {
    struct fixture f;
    start(&f, 4, 20, 4);
    struct sequence *a = add(&f, 0, 3), *b = add(&f, 0, 3);
    int32_t lost = 0, b_tokens = 0;
    while (lost == 0) {
        b_tokens = b->num_tokens;
        lost = num_preempted(step(&f));
        assert_in_range(a->num_tokens, 1, 10);
    }
    assert_int_equal(b->status, SEQUENCE_WAITING);
    assert_int_equal(b->num_computed, 0);
    assert_int_equal(b->num_tokens, b_tokens);
    assert_int_equal(b->table.num_blocks, 0);
    assert_int_equal(a->num_computed, 9);
    scheduler_remove(&f.scheduler, a);
    assert_int_equal(planned(step(&f), b), b_tokens); /* all of it again */
    stop(&f);
}

static void test_priority_decides_who_is_preempted(void **state) {
    struct fixture f;
    start(&f, 4, 20, 4);
    struct sequence *old = add(&f, 1, 3), *urgent = add(&f, 0, 3);
    while (num_preempted(step(&f)) == 0)
        assert_in_range(urgent->num_tokens, 1, 10);
    assert_int_equal(old->status, SEQUENCE_WAITING);
    assert_int_equal(urgent->status, SEQUENCE_RUNNING);
    stop(&f);
}

static void test_nobody_overtakes_for_blocks(void **state) {
    struct fixture f;
    start(&f, 4, 100, 6);
    struct sequence *a = add(&f, 0, 9), *big = add(&f, 0, 16), *small = add(&f, 0, 2);
    step(&f);
    assert_int_equal(a->status, SEQUENCE_RUNNING);
    assert_int_equal(big->status, SEQUENCE_WAITING);
    assert_int_equal(small->status, SEQUENCE_WAITING);
    scheduler_remove(&f.scheduler, a);
    step(&f);
    assert_int_equal(big->status, SEQUENCE_RUNNING);
    stop(&f);
}

static void test_stalled_sequences_rest(void **state) {
    struct fixture f;
    start(&f, 1, 20, 100);
    struct sequence *s = add(&f, 0, 6);
    step(&f);
    f.groups[0]->stalled = true;
    assert_int_equal(step(&f)->num_entries, 0);
    assert_int_equal(s->table.num_blocks, 2); /* keeps what it has while nobody wants it */
    struct sequence *other = add(&f, 0, 3);
    assert_int_equal(planned(step(&f), other), 3);
    assert_int_equal(s->status, SEQUENCE_WAITING);
    f.groups[0]->stalled = false;
    scheduler_remove(&f.scheduler, other);
    assert_int_equal(planned(step(&f), s), 7);
    stop(&f);
}

static void test_light_load_stays_in_few_blocks(void **state) {
    struct fixture f;
    start(&f, 4, 20, 1000);
    for (int round = 0; round < MAX_GROUPS; round++) {
        struct sequence *s = add(&f, 0, 10);
        step(&f);
        for (int32_t i = 0; i < s->table.num_blocks; i++)
            assert_in_range(s->table.blocks[i], 0, 2);
        scheduler_remove(&f.scheduler, s);
    }
    stop(&f);
}

/* Plans and submits; the steps stay in flight. */
static const struct step_plan *plan_ahead(struct fixture *f) {
    f->plan.entries = f->entries;
    scheduler_plan(&f->scheduler, &f->plan);
    for (int32_t i = 0; i < f->plan.num_entries; i++)
        f->plan.entries[i].sequence->group->num_in_flight++;
    scheduler_submit(&f->scheduler, &f->plan);
    return &f->plan;
}

static void collect_all(struct fixture *f) {
    while (f->scheduler.blocks.num_collected < f->scheduler.blocks.num_submitted)
        scheduler_collect(&f->scheduler);
}

/* What a step in flight computes and samples counts as done. */
static void test_the_next_step_is_planned_ahead(void **state) {
    struct fixture f;
    start(&f, 4, 10, 100);
    struct sequence *s = add(&f, 0, 25), *decodes = add(&f, 0, 1);
    assert_int_equal(planned(plan_ahead(&f), s), 9);
    assert_int_equal(planned(&f.plan, decodes), 1);
    assert_int_equal(planned(plan_ahead(&f), s), 9);
    assert_int_equal(f.plan.entries[0].begin, 9);
    assert_int_equal(planned(&f.plan, decodes), 1);
    assert_int_equal(f.plan.entries[1].begin, 1);
    assert_int_equal(s->num_computed, 0);
    assert_int_equal(s->table.num_blocks, blocks_for_tokens(18, 4));
    assert_true(f.plan.entries[1].samples && !f.plan.entries[0].samples);
    collect_all(&f);
    stop(&f);
    collect_all(&f);
}

/* Who decodes is dealt out to two steps, in neither of which anyone is that the other samples for;
 * a prompt goes on in both. */
static void test_steps_of_a_pipeline_are_disjoint(void **state) {
    struct fixture f;
    struct scheduler_config config = config_of(4, 10, 100);
    config.num_steps_abreast = 2;
    start_with(&f, &config);
    struct sequence *a = add(&f, 0, 1), *b = add(&f, 0, 1), *c = add(&f, 0, 1);
    assert_int_equal(step(&f)->num_entries, 3);
    struct sequence *prompt = add(&f, 0, 25);
    plan_ahead(&f);
    assert_int_equal(f.plan.num_entries, 3);
    assert_int_equal(planned(&f.plan, a), 1);
    assert_int_equal(planned(&f.plan, b), 1);
    assert_int_equal(planned(&f.plan, c), 0);
    assert_int_equal(planned(&f.plan, prompt), 8);
    plan_ahead(&f);
    assert_int_equal(f.plan.num_entries, 2);
    assert_int_equal(planned(&f.plan, c), 1);
    assert_int_equal(planned(&f.plan, prompt), 9);
    collect_all(&f);
    stop(&f);
    collect_all(&f);
}

/* Who is in flight keeps its blocks: the plan does without, and asks to be made again after that
 * step. */
static void test_nothing_in_flight_is_preempted(void **state) {
    struct fixture f;
    start(&f, 4, 40, 5);
    struct sequence *first = add(&f, 0, 7), *last = add(&f, 0, 8);
    assert_int_equal(step(&f)->num_entries, 2);
    plan_ahead(&f); /* the last takes the last block */
    struct planned_sequence before[2];
    memcpy(before, f.entries, sizeof(before));
    assert_int_equal(last->table.num_blocks, 3);
    plan_ahead(&f); /* the first needs a third block, which there is not */
    assert_true(f.scheduler.must_collect);
    assert_int_equal(planned(&f.plan, first), 0);
    assert_int_equal(planned(&f.plan, last), 1);
    assert_int_equal(last->table.num_blocks, 3);

    collect_all(&f);
    before[0].sequence->group->num_in_flight = before[1].sequence->group->num_in_flight = 0;
    const struct planned_sequence entries[] = {before[0], before[1], f.entries[0]};
    for (int i = 0; i < 3; i++) {
        scheduler_commit(&f.scheduler, &entries[i], 0);
        assert_int_equal(sequence_append(entries[i].sequence, 3), 0);
    }
    assert_int_equal(planned(plan_and_run(&f), first), 1);
    assert_false(f.scheduler.must_collect);
    assert_int_equal(last->status, SEQUENCE_WAITING);
    scheduler_commit(&f.scheduler, &f.plan.entries[0], 0);
    stop(&f);
}

static void want_drafts(struct sequence *sequence, int32_t count) {
    sequence->drafts = calloc((size_t)count, sizeof(*sequence->drafts));
    sequence->num_drafts = sequence->num_wanted_drafts = count;
}

/* Drafts are scheduled behind the pending token, and what they took is given back with those that
 * are not accepted. */
static void test_drafts_are_given_up(void **state) {
    struct fixture f;
    start(&f, 4, 10, 100);
    struct sequence *s = add(&f, 0, 7);
    step(&f);
    want_drafts(s, 6);
    plan_and_run(&f);
    assert_int_equal(f.entries[0].num_drafts, 6);
    assert_int_equal(f.entries[0].num_tokens, 7);
    assert_int_equal(f.plan.num_tokens, 7);
    assert_int_equal(s->table.num_blocks, 4); /* of 14 tokens */
    scheduler_commit(&f.scheduler, &f.entries[0], 2);
    assert_int_equal(s->num_computed, 10);
    assert_int_equal(s->table.num_blocks, 3);
    stop(&f);
}

/* How many tokens come of them is not known before the step was committed. */
static void test_nothing_is_planned_behind_drafts(void **state) {
    struct fixture f;
    start(&f, 4, 10, 100);
    struct sequence *s = add(&f, 0, 3);
    step(&f);
    want_drafts(s, 2);
    assert_int_equal(planned(plan_ahead(&f), s), 3);
    const struct planned_sequence entry = f.plan.entries[0];
    assert_int_equal(planned(plan_ahead(&f), s), 0);
    collect_all(&f);
    s->group->num_in_flight = 0;
    scheduler_commit(&f.scheduler, &entry, 0);
    assert_int_equal(sequence_append(s, 3), 0);
    assert_int_equal(planned(plan_and_run(&f), s), 3);
    scheduler_commit(&f.scheduler, &f.entries[0], 0);
    stop(&f);
}

/* They come after a token that is known: behind one in flight nothing is drafted. */
static void test_no_drafts_behind_a_token_in_flight(void **state) {
    struct fixture f;
    start(&f, 4, 10, 100);
    struct sequence *s = add(&f, 0, 7);
    step(&f);
    plan_ahead(&f);
    want_drafts(s, 6);
    assert_int_equal(planned(plan_ahead(&f), s), 1);
    assert_int_equal(f.entries[0].num_drafts, 0);
    collect_all(&f);
    stop(&f);
}

/* They take no more than is left of the budget, and of the tokens that may come. */
static void test_drafts_take_what_is_left(void **state) {
    struct fixture f;
    start(&f, 4, 6, 100);
    struct sequence *s = add(&f, 0, 3), *t = add(&f, 0, 3);
    step(&f);
    want_drafts(s, 6);
    plan_and_run(&f);
    assert_int_equal(planned(&f.plan, s), 5);
    assert_int_equal(planned(&f.plan, t), 1);
    for (int i = 0; i < 2; i++)
        scheduler_commit(&f.scheduler, &f.entries[i], 0);
    assert_int_equal(sequence_append(s, 3), 0);
    assert_int_equal(sequence_append(t, 3), 0);
    s->max_tokens = 8; /* 5 now: two drafts, and the token after them */
    plan_and_run(&f);
    assert_int_equal(planned(&f.plan, s), 3);
    for (int i = 0; i < 2; i++)
        scheduler_commit(&f.scheduler, &f.entries[i], 0);
    stop(&f);
}

/* A draft model computes what it missed of a sequence before it proposes anything: all of it at
 * once if there is room, and never more than is worth it. */
static void test_a_draft_model_catches_up(void **state) {
    struct fixture f;
    start(&f, 4, 20, 100);
    struct sequence *s = add(&f, 0, 25);
    step(&f);
    step(&f); /* the prompt, and a first token */
    s->wants_model_drafts = true;
    s->num_wanted_drafts = 2;
    s->most_missed = 25;
    assert_int_equal(step(&f)->num_draft_inputs, 0); /* 26 */
    assert_int_equal(s->num_missed, 26);
    s->most_missed = 100;
    const struct step_plan *plan = step(&f);
    assert_int_equal(planned(plan, s), 1);
    assert_int_equal(plan->entries[0].num_draft_inputs, 19); /* with one token of the model */
    assert_int_equal(plan->entries[0].draft_begin, 0);
    assert_int_equal(plan->entries[0].num_drafts, 0);
    plan = step(&f);
    assert_int_equal(plan->entries[0].draft_begin, 19);
    assert_int_equal(plan->entries[0].num_draft_inputs, 9);
    assert_int_equal(plan->entries[0].num_drafts, 2);
    plan = step(&f); /* neither draft was accepted */
    assert_int_equal(plan->entries[0].num_draft_inputs, 1);
    assert_int_equal(plan->entries[0].draft_begin, 28);
    stop(&f);
}

/* An MTP layer computes all tokens but the first, each in the place of the one before it, and what
 * it has drafted once more. */
static void test_an_mtp_layer_computes_drafts_again(void **state) {
    struct fixture f;
    start(&f, 4, 40, 100);
    f.scheduler.config.has_mtp = true;
    struct sequence *s = add(&f, 0, 25);
    step(&f); /* the prompt, and a first token */
    s->wants_model_drafts = true;
    s->num_wanted_drafts = 2;
    s->most_missed = 100;
    const struct step_plan *plan = step(&f); /* of 26 tokens */
    assert_int_equal(plan->entries[0].draft_begin, 1);
    assert_int_equal(plan->entries[0].num_draft_inputs, 25);
    assert_int_equal(plan->entries[0].num_drafts, 2);
    assert_int_equal(block_manager_num_drafted(&f.scheduler.blocks, &s->table, 100), 25);
    plan = step(&f); /* neither draft was accepted */
    assert_int_equal(plan->entries[0].draft_begin, 26);
    assert_int_equal(plan->entries[0].num_draft_inputs, 1);
    assert_int_equal(plan->entries[0].num_drafts, 2);
    s->num_wanted_drafts = 0;
    assert_int_equal(step(&f)->num_draft_inputs, 0);
    s->num_wanted_drafts = 2;
    plan = step(&f); /* one without drafts was in between */
    assert_int_equal(plan->entries[0].draft_begin, 27);
    assert_int_equal(plan->entries[0].num_draft_inputs, 2);
    stop(&f);
}

static void test_a_draft_model_waits_for_prompts_and_steps(void **state) {
    struct fixture f;
    start(&f, 4, 20, 100);
    struct sequence *s = add(&f, 0, 4);
    step(&f);
    s->wants_model_drafts = true;
    s->num_wanted_drafts = 2;
    s->most_missed = 100;
    struct sequence *prompt = add(&f, 0, 6);
    const struct step_plan *plan = step(&f);
    assert_int_equal(planned(plan, prompt), 6);
    assert_int_equal(plan->num_draft_inputs, 0);
    assert_int_equal(step(&f)->num_draft_inputs, 6);
    scheduler_plan(&f.scheduler, &f.plan);
    assert_true(f.plan.num_draft_inputs > 0);
    f.scheduler.blocks.num_submitted++; /* another one is in flight */
    scheduler_submit(&f.scheduler, &f.plan);
    scheduler_collect(&f.scheduler);
    commit(&f, &f.plan);
    scheduler_plan(&f.scheduler, &f.plan);
    assert_int_equal(f.plan.num_draft_inputs, 0);
    scheduler_submit(&f.scheduler, &f.plan);
    scheduler_collect(&f.scheduler);
    commit(&f, &f.plan);
    scheduler_collect(&f.scheduler);
    stop(&f);
}

/* A machine on which a step takes fixed_ns, a token 1 ms, and what a token of a chunk sees 10 us.
 */
static void learn_costs(struct fixture *f, double fixed_ns) {
    for (int32_t i = 0; i < 200; i++) {
        struct step_work work = {0};
        const struct step_chunk chunk = {.begin = 10 * (i % 7), .num_tokens = 1 + i % 40};
        step_work_add(&work, &chunk);
        double ns = 1e6 * work.amounts[STEP_WORK_TOKENS] + 1e4 * work.amounts[STEP_WORK_CHUNKED];
        step_cost_add(&f->scheduler.step_cost, &work, (int64_t)(fixed_ns + ns));
    }
}

static void start_timed(struct fixture *f, int64_t max_step_ns, double fixed_ns) {
    struct scheduler_config config = config_of(8, 64, 1000);
    config.max_step_ns = max_step_ns;
    start_with(f, &config);
    learn_costs(f, fixed_ns);
}

/* Steps until the sequence decodes. Returns the most tokens of it in a step. */
static int32_t compute(struct fixture *f, struct sequence *sequence, double max_ns) {
    int32_t most = 0;
    while (sequence_num_pending(sequence) > 1) {
        int32_t count = planned(step(f), sequence);
        assert_true(count > 0);
        assert_true(max_ns == 0 ||
                    step_cost_careful_ns(&f->scheduler.step_cost, &f->plan.work) <= max_ns);
        most = count > most ? count : most;
    }
    return most;
}

/* The farther a prompt, the smaller its chunks: a step beside others' decoding takes 30 ms at most,
 * and one of a prompt alone 200. */
static void test_a_step_beside_decoding_keeps_its_time(void **state) {
    struct fixture f;
    start_timed(&f, 30000000, 0);
    struct sequence *alone = add(&f, 0, 400);
    assert_int_equal(compute(&f, alone, SCHEDULER_LEAST_PROMPT_STEP_NS), 64);
    struct sequence *beside = add(&f, 0, 450);
    int32_t first = planned(step(&f), beside);
    assert_in_range(first, 12, 30);
    assert_in_range(compute(&f, beside, 30e6), 5, first);
    assert_true(beside->num_tokens > 450 && alone->num_tokens > 420);
    scheduler_remove(&f.scheduler, alone);
    scheduler_remove(&f.scheduler, beside);
    assert_int_equal(compute(&f, add(&f, 0, 400), SCHEDULER_LEAST_PROMPT_STEP_NS), 64);
    stop(&f);
}

static void test_decoding_that_waits_for_a_step_counts(void **state) {
    struct fixture f;
    start_timed(&f, 30000000, 0);
    struct sequence *s = add(&f, 0, 3);
    step(&f);
    want_drafts(s, 2);
    assert_int_equal(planned(plan_ahead(&f), s), 3);
    const struct planned_sequence entry = f.plan.entries[0];
    struct sequence *prompt = add(&f, 0, 400);
    assert_int_equal(planned(plan_ahead(&f), s), 0);
    assert_in_range(planned(&f.plan, prompt), 12, 30);
    const struct planned_sequence chunk = f.plan.entries[0];
    collect_all(&f);
    scheduler_discard(&f.scheduler, &entry);
    scheduler_commit(&f.scheduler, &chunk, 0);
    stop(&f);
}

static void test_a_prompt_advances_without_time(void **state) {
    struct fixture f;
    start_timed(&f, 1, 0);
    add(&f, 0, 3);
    step(&f);
    struct sequence *first = add(&f, 0, 60), *second = add(&f, 0, 20);
    assert_int_equal(planned(step(&f), first), 4);
    assert_int_equal(planned(&f.plan, second), 0);
    assert_int_equal(compute(&f, first, 0), 4);
    assert_int_equal(compute(&f, second, 0), 4);
    stop(&f);
}

/* Three times a step of 1 ms is less than the least, and of one of 100 ms more. */
static void test_the_time_follows_what_decodes(void **state) {
    struct fixture f;
    start_timed(&f, -1, 0);
    add(&f, 0, 3);
    step(&f);
    struct sequence *prompt = add(&f, 0, 450);
    assert_in_range(planned(step(&f), prompt), 50, 63);
    compute(&f, prompt, 100e6);
    stop(&f);
    start_timed(&f, -1, 100e6);
    add(&f, 0, 3);
    step(&f);
    assert_int_equal(planned(step(&f), add(&f, 0, 450)), 63);
    stop(&f);
}

/* Half of the time is the first one's; a short prompt still passes. */
static void test_a_short_prompt_passes_in_time(void **state) {
    struct fixture f;
    start_timed(&f, 30000000, 0);
    add(&f, 0, 3);
    step(&f);
    struct sequence *first = add(&f, 0, 400);
    add(&f, 0, 400);
    step(&f);
    struct sequence *late = add(&f, 0, 4);
    const struct step_plan *plan = step(&f);
    assert_int_equal(planned(plan, late), 4);
    assert_in_range(planned(plan, first), 6, 15);
    stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_long_prompt_comes_in_chunks),
        cmocka_unit_test(test_decoding_is_not_held_up),
        cmocka_unit_test(test_a_short_prompt_passes_long_ones),
        cmocka_unit_test(test_urgent_prompts_first),
        cmocka_unit_test(test_running_slots),
        cmocka_unit_test(test_the_newest_is_preempted),
        cmocka_unit_test(test_priority_decides_who_is_preempted),
        cmocka_unit_test(test_nobody_overtakes_for_blocks),
        cmocka_unit_test(test_stalled_sequences_rest),
        cmocka_unit_test(test_light_load_stays_in_few_blocks),
        cmocka_unit_test(test_the_next_step_is_planned_ahead),
        cmocka_unit_test(test_steps_of_a_pipeline_are_disjoint),
        cmocka_unit_test(test_nothing_in_flight_is_preempted),
        cmocka_unit_test(test_drafts_are_given_up),
        cmocka_unit_test(test_nothing_is_planned_behind_drafts),
        cmocka_unit_test(test_no_drafts_behind_a_token_in_flight),
        cmocka_unit_test(test_drafts_take_what_is_left),
        cmocka_unit_test(test_a_draft_model_catches_up),
        cmocka_unit_test(test_an_mtp_layer_computes_drafts_again),
        cmocka_unit_test(test_a_draft_model_waits_for_prompts_and_steps),
        cmocka_unit_test(test_a_step_beside_decoding_keeps_its_time),
        cmocka_unit_test(test_decoding_that_waits_for_a_step_counts),
        cmocka_unit_test(test_a_prompt_advances_without_time),
        cmocka_unit_test(test_the_time_follows_what_decodes),
        cmocka_unit_test(test_a_short_prompt_passes_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
