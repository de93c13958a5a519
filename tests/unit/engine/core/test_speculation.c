/* What the core asks of a drafter and of the policy: what is proposed, how much of it is to be
 * verified, and when the next step waits for that. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/core/speculation.h"
#include "tests/unit/engine/sequence_fixture.h"

#include <string.h>

enum { MAX_DRAFTS = 4, PROMPT_TOKENS = 6 };

static const struct serving_limits limits = {.max_num_seqs = 4,
                                             .max_num_batched_tokens = 4,
                                             .max_model_len = 100,
                                             .num_speculative_tokens = MAX_DRAFTS,
                                             .block_size = 4,
                                             .num_blocks = 100};

/* Proposes the same tokens each time. */
struct scripted_drafter {
    struct drafter base;
    int32_t tokens[MAX_DRAFTS];
    int num_calls;
};

static int32_t propose(struct drafter *base, const struct token_view *history, int32_t max_tokens,
                       int32_t *out_tokens) {
    struct scripted_drafter *drafter = (struct scripted_drafter *)base;
    assert_int_equal(max_tokens, MAX_DRAFTS);
    assert_true(history->num_prompt + history->num_output > 0);
    memcpy(out_tokens, drafter->tokens, sizeof(drafter->tokens));
    drafter->num_calls++;
    return MAX_DRAFTS;
}

static const struct drafter_ops ops = {.propose = propose};

struct fixture {
    struct scripted_drafter drafter;
    struct speculation speculation;
    struct scheduler scheduler;
    struct planned_sequence entries[4];
    struct step_plan plan;
    struct sequence_group *group;
    struct sequence *sequence;
};

static void start(struct fixture *f, const struct sampling_params *params) {
    const struct scheduler_config config = {.kv.limits = &limits, .kv.num_tenants = 1};
    *f = (struct fixture){.drafter = {.base = {.ops = &ops}, .tokens = {10, 11, 12, 13}}};
    f->speculation = (struct speculation){
        .drafter = &f->drafter.base, .limits = &limits, .tokenizer = fake_tokenizer()};
    f->plan.entries = f->entries;
    assert_int_equal(scheduler_init(&f->scheduler, &config), 0);
    f->group = fixture_group(1, 0, PROMPT_TOKENS, params, limits.max_model_len, limits.block_size);
    f->sequence = &f->group->sequences[0];
    scheduler_add(&f->scheduler, f->group);
}

static void stop(struct fixture *f) {
    while (f->scheduler.blocks.num_collected < f->scheduler.blocks.num_submitted)
        scheduler_collect(&f->scheduler);
    scheduler_remove(&f->scheduler, f->sequence);
    sequence_group_destroy(f->group);
    scheduler_finish(&f->scheduler);
}

static void submit(struct fixture *f) {
    scheduler_plan(&f->scheduler, &f->plan);
    assert_int_equal(f->plan.num_entries, 1);
    scheduler_submit(&f->scheduler, &f->plan);
    f->group->num_in_flight++;
}

static void commit(struct fixture *f) {
    scheduler_collect(&f->scheduler);
    scheduler_commit(&f->scheduler, &f->entries[0], 0);
    f->group->num_in_flight--;
}

/* As the core does with a sampled token. */
static void append(struct fixture *f, int32_t token) {
    assert_int_equal(sequence_append(f->sequence, token), 0);
    speculation_append(&f->speculation, f->sequence, token);
    speculation_propose(&f->speculation, f->sequence);
}

/* Computes the prompt, in two steps, and takes a first token. */
static void begin(struct fixture *f) {
    for (int i = 0; i < 2; i++) {
        submit(f);
        commit(f);
    }
    append(f, 9);
}

static void test_right_drafts_raise_what_is_verified(void **state) {
    struct sampling_params params = fixture_params(50);
    struct fixture f;
    start(&f, &params);
    speculation_propose(&f.speculation, f.sequence); /* there is no token yet, nor a block */
    assert_int_equal(f.drafter.num_calls, 0);
    begin(&f);
    assert_int_equal(f.sequence->num_drafts, MAX_DRAFTS);
    for (int i = 0; i < 20; i++)
        append(&f, 20); /* never what was drafted */
    assert_int_equal(f.sequence->num_wanted_drafts, 0);
    assert_int_equal(f.sequence->num_drafts, MAX_DRAFTS);
    for (int i = 0; i < 20; i++)
        append(&f, 10);
    assert_int_equal(f.sequence->num_wanted_drafts, MAX_DRAFTS);
    stop(&f);
}

/* Of several tokens of one step each is compared with the draft for its place. */
static void test_drafts_are_compared_up_to_a_wrong_one(void **state) {
    struct sampling_params params = fixture_params(50);
    struct fixture f;
    start(&f, &params);
    begin(&f);
    f.sequence->acceptance.rate = 0.5f;
    speculation_append(&f.speculation, f.sequence, 10);
    float after_one = f.sequence->acceptance.rate;
    assert_true(after_one > 0.5f);
    assert_int_equal(f.sequence->num_drafts, MAX_DRAFTS - 1);
    speculation_append(&f.speculation, f.sequence, 12); /* 11 was drafted */
    float after_two = f.sequence->acceptance.rate;
    assert_true(after_two < after_one);
    assert_int_equal(f.sequence->num_drafts, 0);
    speculation_append(&f.speculation, f.sequence, 12); /* which was drafted for another text */
    assert_true(f.sequence->acceptance.rate == after_two);
    stop(&f);
}

static void test_nothing_is_drafted_beyond_an_end(void **state) {
    static const int32_t stops[] = {11};
    struct sampling_params params = fixture_params(50);
    struct fixture f;
    params.num_stop_tokens = 1;
    params.stop_tokens = stops;
    start(&f, &params);
    begin(&f);
    assert_int_equal(f.sequence->num_drafts, 2);
    stop(&f);
}

/* The next step is planned ahead but for a sequence that may have drafts in it. */
static void test_the_next_step_waits_for_drafts(void **state) {
    struct sampling_params params = fixture_params(50);
    struct fixture f;
    start(&f, &params);
    begin(&f);
    f.sequence->num_wanted_drafts = 0;
    assert_false(speculation_waits(&f.speculation, &f.scheduler));
    f.sequence->num_wanted_drafts = 2;
    assert_true(speculation_waits(&f.speculation, &f.scheduler));
    f.group->stalled = true;
    assert_false(speculation_waits(&f.speculation, &f.scheduler));
    f.group->stalled = false;
    submit(&f);
    assert_int_equal(f.entries[0].num_drafts, 2);
    assert_true(speculation_waits(&f.speculation, &f.scheduler));
    commit(&f);
    append(&f, 9);
    f.speculation.drafter = NULL;
    assert_false(speculation_waits(&f.speculation, &f.scheduler));
    stop(&f);
}

/* After preemption several steps compute the history again, none of them with a draft. */
static void test_recomputation_does_not_wait(void **state) {
    struct sampling_params params = fixture_params(50);
    struct fixture f;
    start(&f, &params);
    begin(&f);
    f.sequence->num_wanted_drafts = 2;
    block_manager_release(&f.scheduler.blocks, &f.sequence->table);
    f.sequence->num_computed = 0;
    submit(&f);
    assert_int_equal(f.entries[0].num_tokens, limits.max_num_batched_tokens);
    assert_false(speculation_waits(&f.speculation, &f.scheduler));
    commit(&f);
    submit(&f);
    assert_true(speculation_waits(&f.speculation, &f.scheduler)); /* for the token after it */
    commit(&f);
    append(&f, 9);
    stop(&f);
}

/* Steps with prompts say nothing of what a draft costs. */
static void test_cost_is_learnt_from_decoding(void **state) {
    struct speculation speculation = {.drafter = &(struct drafter){.ops = &ops}, .limits = &limits};
    struct planned_sequence entries[] = {{.num_tokens = 3, .num_drafts = 2}, {.num_tokens = 5}};
    const struct step_plan mixed = {.entries = entries, .num_entries = 2, .num_tokens = 8};
    const struct step_plan decoding = {.entries = entries, .num_entries = 1, .num_tokens = 3};
    speculation_note_step(&speculation, &mixed, 1000);
    assert_int_equal(speculation.cost.num_steps, 0);
    assert_int_equal(speculation.num_decoding, 0);
    speculation_note_step(&speculation, &decoding, 1000);
    assert_int_equal(speculation.cost.num_steps, 1);
    assert_int_equal(speculation.num_decoding, 1);
    assert_true(speculation.cost.mean_tokens == 3);
}

/* --- A draft model --- */

/* Steps of the only sequence of the plan, as long as a server with these costs would take. */
struct costs {
    int64_t plain_ns, draft_ns; /* of a step; of each draft in addition */
    float rate;                 /* how often a draft is right */
};

struct run {
    int64_t ns, num_tokens;         /* of all steps */
    int32_t num_drafted, num_plain; /* steps */
};

/* Decides by a fixed sequence of numbers whether a draft is right. */
static int32_t draw_accepted(uint32_t *random, float rate, int32_t num_drafts) {
    int32_t count = 0;
    for (; count < num_drafts; count++) {
        *random = *random * 1664525u + 1013904223u;
        if ((float)(*random >> 8) / (float)(1u << 24) >= rate)
            break;
    }
    return count;
}

static struct run run_steps(struct fixture *f, const struct costs *costs, int num_steps) {
    struct run run = {0};
    uint32_t random = 1;
    for (int i = 0; i < num_steps; i++) {
        f->speculation.num_decoding = 1;
        speculation_propose(&f->speculation, f->sequence);
        bool by_model = f->sequence->wants_model_drafts;
        int32_t num_drafts = by_model ? f->sequence->num_wanted_drafts : 0;
        f->entries[0] = (struct planned_sequence){.sequence = f->sequence,
                                                  .num_tokens = 1 + num_drafts,
                                                  .num_drafts = num_drafts,
                                                  .num_draft_inputs = by_model};
        f->plan.num_entries = 1;
        f->plan.num_tokens = 1 + num_drafts;
        f->plan.num_draft_inputs = by_model;
        int64_t ns = costs->plain_ns + num_drafts * costs->draft_ns;
        int32_t num_accepted = draw_accepted(&random, costs->rate, num_drafts);
        speculation_note_step(&f->speculation, &f->plan, ns);
        speculation_note_drafts(&f->speculation, &f->entries[0], num_accepted);
        run.ns += ns;
        run.num_tokens += 1 + num_accepted;
        run.num_drafted += num_drafts > 0;
        run.num_plain += num_drafts == 0;
    }
    return run;
}

static void start_with_model(struct fixture *f, const struct sampling_params *params) {
    start(f, params);
    f->speculation.drafter = NULL;
    f->speculation.has_model = true;
    speculation_init(&f->speculation);
    begin(f);
}

/* The time of a token, in those of a plain step. */
static double time_of_token(const struct run *run, const struct costs *costs) {
    return (double)run->ns / (double)run->num_tokens / (double)costs->plain_ns;
}

static void test_a_model_that_is_right_drafts(void **state) {
    struct sampling_params params = fixture_params(50);
    const struct costs costs = {.plain_ns = 1000000, .draft_ns = 200000, .rate = 0.95f};
    struct fixture f;
    start_with_model(&f, &params);
    struct run run = run_steps(&f, &costs, 1000);
    assert_true(run.num_plain > 1000 / 40); /* by which costs are known */
    assert_true(run.num_plain < 1000 / 20);
    assert_true(time_of_token(&run, &costs) < 0.5);
    stop(&f);
}

/* Neither one that is never right nor one that takes too long slows anything down. */
static void test_a_model_that_does_not_pay_is_only_tried(void **state) {
    static const struct costs all[] = {
        {.plain_ns = 1000000, .draft_ns = 200000, .rate = 0},
        {.plain_ns = 1000000, .draft_ns = 900000, .rate = 0.7f},
        {.plain_ns = 1000000, .draft_ns = 20000000, .rate = 0.99f},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct sampling_params params = fixture_params(50);
        struct fixture f;
        start_with_model(&f, &params);
        run_steps(&f, &all[i], 200);
        struct run run = run_steps(&f, &all[i], 4000);
        assert_true(time_of_token(&run, &all[i]) < 1.01);
        assert_in_range(run.num_drafted, i == 2 ? 0 : 10, 200);
        stop(&f);
    }
}

/* Text of another kind comes, or a step was slow for another reason. */
static void test_a_model_that_pays_again_is_found_out(void **state) {
    struct sampling_params params = fixture_params(50);
    struct costs costs = {.plain_ns = 1000000, .draft_ns = 200000, .rate = 0};
    struct fixture f;
    start_with_model(&f, &params);
    run_steps(&f, &costs, 400);
    costs.rate = 0.95f;
    run_steps(&f, &costs, 2000);
    struct run run = run_steps(&f, &costs, 400);
    assert_true(time_of_token(&run, &costs) < 0.6);
    stop(&f);
}

/* What comes next depends on which tokens are drafted. */
static void test_a_model_drafts_only_what_it_may_not_know(void **state) {
    struct sampling_params params = fixture_params(50);
    const struct costs costs = {.plain_ns = 1000000, .draft_ns = 100000, .rate = 0.95f};
    struct fixture f;
    params.settings.frequency_penalty = 0.5f;
    start_with_model(&f, &params);
    struct run run = run_steps(&f, &costs, 100);
    assert_int_equal(run.num_drafted, 0);
    stop(&f);
}

/* The n-gram drafter is right as well, and costs nothing. */
static void test_what_is_looked_up_is_preferred(void **state) {
    struct sampling_params params = fixture_params(50);
    const struct costs costs = {.plain_ns = 1000000, .draft_ns = 300000, .rate = 0.7f};
    struct fixture f;
    start_with_model(&f, &params);
    struct run run = run_steps(&f, &costs, 100);
    assert_true(run.num_drafted > 50);
    f.speculation.drafter = &f.drafter.base;
    for (int i = 0; i < 20; i++)
        append(&f, 10);
    assert_false(f.sequence->wants_model_drafts);
    assert_int_equal(f.sequence->num_wanted_drafts, MAX_DRAFTS);
    stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_drafts_raise_what_is_verified),
        cmocka_unit_test(test_drafts_are_compared_up_to_a_wrong_one),
        cmocka_unit_test(test_nothing_is_drafted_beyond_an_end),
        cmocka_unit_test(test_the_next_step_waits_for_drafts),
        cmocka_unit_test(test_recomputation_does_not_wait),
        cmocka_unit_test(test_cost_is_learnt_from_decoding),
        cmocka_unit_test(test_a_model_that_is_right_drafts),
        cmocka_unit_test(test_a_model_that_does_not_pay_is_only_tried),
        cmocka_unit_test(test_a_model_that_pays_again_is_found_out),
        cmocka_unit_test(test_a_model_drafts_only_what_it_may_not_know),
        cmocka_unit_test(test_what_is_looked_up_is_preferred),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
