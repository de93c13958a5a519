#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/batch/batch_builder.h"
#include "engine/schedule/scheduler.h"
#include "tests/unit/engine/sequence_fixture.h"

#include <stdlib.h>
#include <string.h>

struct fixture {
    struct serving_limits limits;
    struct scheduler scheduler;
    struct batch_builder builder;
    struct step step;
    struct sequence_group *groups[4];
    int num_groups;
};

static void start(struct fixture *f, int32_t budget) {
    memset(f, 0, sizeof(*f));
    f->limits = (struct serving_limits){.max_num_seqs = 4,
                                        .max_num_batched_tokens = budget,
                                        .num_speculative_tokens = 4,
                                        .max_model_len = 32,
                                        .block_size = 4,
                                        .num_blocks = 32,
                                        .vocab_size = FAKE_VOCAB_SIZE,
                                        .hidden_size = 2};
    const struct scheduler_config config = {.kv.limits = &f->limits, .kv.num_tenants = 1};
    assert_int_equal(scheduler_init(&f->scheduler, &config), 0);
    assert_int_equal(batch_builder_init(&f->builder, &f->limits, fake_tokenizer(), NULL), 0);
    const struct batch_capacity capacity = step_batch_capacity(&f->limits, fake_tokenizer());
    assert_int_equal(step_init(&f->step, &f->limits, &capacity, NULL), 0);
}

static struct sequence *add(struct fixture *f, int32_t num_prompt_tokens,
                            const struct sampling_params *params) {
    struct sequence_group *group =
        fixture_group((uint64_t)f->num_groups + 1, 0, num_prompt_tokens, params, 32, 4);
    f->groups[f->num_groups++] = group;
    scheduler_add(&f->scheduler, group);
    return &group->sequences[0];
}

static const struct batch *build(struct fixture *f) {
    scheduler_plan(&f->scheduler, &f->step.plan);
    batch_builder_build(&f->builder, &f->step, &f->scheduler.blocks);
    return &f->step.batch;
}

static void commit(struct fixture *f) {
    const struct step_plan *plan = &f->step.plan;
    scheduler_submit(&f->scheduler, plan);
    scheduler_collect(&f->scheduler);
    for (int32_t i = 0; i < plan->num_entries; i++)
        scheduler_commit(&f->scheduler, &plan->entries[i], 0);
}

static void stop(struct fixture *f) {
    for (int i = 0; i < f->num_groups; i++) {
        scheduler_remove(&f->scheduler, &f->groups[i]->sequences[0]);
        sequence_group_destroy(f->groups[i]);
    }
    while (f->scheduler.blocks.num_collected < f->scheduler.blocks.num_submitted)
        scheduler_collect(&f->scheduler);
    batch_builder_finish(&f->builder);
    step_finish(&f->step);
    scheduler_finish(&f->scheduler);
}

static void test_prompt_and_decode_in_one_batch(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(10);
    start(&f, 16);
    struct sequence *a = add(&f, 5, &params);
    build(&f);
    commit(&f);
    assert_int_equal(sequence_append(a, 9), 0);
    add(&f, 3, &params);

    const struct batch *batch = build(&f);
    const struct step_inputs *in = &batch->inputs;
    assert_int_equal(in->num_seqs, 2);
    assert_int_equal(in->num_tokens, 4);
    assert_int_equal(in->max_blocks_per_seq, 2);
    static const int32_t token_ids[] = {9, 3, 4, 5}, positions[] = {5, 0, 1, 2};
    static const int32_t slots[] = {5, 8, 9, 10}, query_start[] = {0, 1, 4};
    static const int32_t context_lens[] = {6, 3}, logit_rows[] = {0, 3};
    assert_memory_equal(in->token_ids, token_ids, sizeof(token_ids));
    assert_memory_equal(in->positions, positions, sizeof(positions));
    assert_memory_equal(in->slot_mapping, slots, sizeof(slots));
    assert_memory_equal(in->query_start, query_start, sizeof(query_start));
    assert_memory_equal(in->context_lens, context_lens, sizeof(context_lens));
    assert_int_equal(in->block_tables[0], 0);
    assert_int_equal(in->block_tables[1], 1);
    assert_int_equal(in->block_tables[2], 2);
    assert_int_equal(batch->num_sample_rows, 2);
    assert_memory_equal(batch->logit_rows, logit_rows, sizeof(logit_rows));
    assert_true(batch->sample_rows[0].position == 6 && batch->sample_rows[1].position == 3);
    stop(&f);
}

static void test_unfinished_prompt_has_no_row(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(10);
    start(&f, 8);
    add(&f, 10, &params);
    assert_int_equal(build(&f)->num_sample_rows, 0);
    commit(&f);
    const struct batch *batch = build(&f);
    assert_int_equal(batch->num_sample_rows, 1);
    assert_int_equal(batch->logit_rows[0], 1);
    assert_int_equal(f.step.plan.entries[0].first_row, 0);
    assert_int_equal(f.step.plan.entries[0].num_samples, 1);
    stop(&f);
}

static void test_scoring_rows(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(10);
    params.num_prompt_logprobs = 2;
    start(&f, 4);
    struct sequence *s = add(&f, 6, &params);
    const struct batch *batch = build(&f);
    assert_int_equal(batch->num_sample_rows, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(batch->logit_rows[i], i);
        assert_int_equal(batch->sample_rows[i].target, FAKE_FIRST_PLAIN + i + 1);
    }
    commit(&f);
    s->group->num_scored = 5;
    batch = build(&f);
    assert_int_equal(batch->num_sample_rows, 2);
    assert_int_equal(batch->sample_rows[0].target, FAKE_FIRST_PLAIN + 5);
    assert_int_equal(batch->sample_rows[1].target, SAMPLE_NO_TARGET);
    stop(&f);
}

static void test_scores_only_samples_nothing(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(0);
    params.num_prompt_logprobs = 0;
    start(&f, 8);
    add(&f, 3, &params);
    const struct batch *batch = build(&f);
    assert_int_equal(batch->num_sample_rows, 2);
    assert_int_equal(batch->sample_rows[1].target, FAKE_FIRST_PLAIN + 2);
    stop(&f);
}

static void test_counts_and_biases_by_row(void **state) {
    struct fixture f;
    struct token_bias biases[] = {{7, 1.5f}};
    struct sampling_params plain = fixture_params(10), rich = fixture_params(10);
    rich.settings.repetition_penalty = 1.5f;
    rich.num_biases = 1;
    rich.biases = biases;
    start(&f, 16);
    const struct sequence *first = add(&f, 2, &rich);
    add(&f, 2, &plain);
    add(&f, 3, &rich);
    assert_int_equal(first->counts.num_items, 0); /* before it samples */
    const struct batch *batch = build(&f);
    assert_int_equal(batch->num_sample_rows, 3);
    assert_int_equal(batch->num_counts, 5);
    assert_int_equal(batch->num_biases, 2);
    assert_int_equal(batch->sample_rows[0].num_counts, 2);
    assert_int_equal(batch->sample_rows[1].num_counts, 0);
    assert_int_equal(batch->sample_rows[1].num_biases, 0);
    assert_int_equal(batch->sample_rows[2].first_count, 2);
    assert_int_equal(batch->sample_rows[2].num_counts, 3);
    assert_int_equal(batch->sample_rows[2].first_bias, 1);
    assert_int_equal(batch->token_biases[1].token, 7);
    stop(&f);
}

static void expect_hidden_sum(const struct batch *batch, int index, struct row_span span,
                              float first, float second) {
    assert_true(index < batch->num_hidden_sums);
    assert_int_equal(batch->hidden_spans[index].first_row, span.first_row);
    assert_int_equal(batch->hidden_spans[index].num_rows, span.num_rows);
    assert_true(batch->hidden_sums[2 * index] == first &&
                batch->hidden_sums[2 * index + 1] == second);
}

/* A mean over three steps, beside a last token's state and a sequence that samples. */
static void test_hidden_sums(void **state) {
    struct fixture f;
    struct sampling_params mean = fixture_params(0), last = mean, plain = fixture_params(10);
    mean.pooling = POOLING_MEAN;
    last.pooling = POOLING_LAST;
    start(&f, 6);
    struct sequence *a = add(&f, 3, &plain);
    build(&f);
    commit(&f);
    assert_int_equal(sequence_append(a, 9), 0);
    struct sequence *m = add(&f, 9, &mean);
    struct sequence *l = add(&f, 4, &last);

    const struct batch *batch = build(&f); /* a: 1, m: 3, l: 2 */
    assert_int_equal(batch->inputs.query_start[2], 4);
    assert_int_equal(batch->num_sample_rows, 1);
    assert_int_equal(batch->num_hidden_sums, 1);
    expect_hidden_sum(batch, 0, (struct row_span){1, 3}, 0, 0);
    static const int32_t hidden_sums[] = {-1, 0, -1};
    for (int i = 0; i < 3; i++)
        assert_int_equal(f.step.plan.entries[i].hidden_sum, hidden_sums[i]);
    commit(&f);
    assert_int_equal(sequence_append(a, 9), 0);
    assert_int_equal(sequence_keep_hidden_sum(m, (const float[]){1.5f, -2}, 2), 0);

    batch = build(&f); /* a: 1, m: 3, l: 2 */
    assert_int_equal(l->num_computed + l->num_scheduled_tokens, 4);
    assert_int_equal(batch->num_hidden_sums, 2);
    expect_hidden_sum(batch, 0, (struct row_span){1, 3}, 1.5f, -2);
    expect_hidden_sum(batch, 1, (struct row_span){5, 1}, 0, 0);
    assert_int_equal(f.step.plan.entries[2].hidden_sum, 1);
    stop(&f);
}

/* The sum of what was computed before the blocks were lost is forgotten. */
static void test_hidden_sum_after_preemption(void **state) {
    struct fixture f;
    struct sampling_params mean = fixture_params(0);
    mean.pooling = POOLING_MEAN;
    start(&f, 4);
    struct sequence *m = add(&f, 6, &mean);
    build(&f);
    commit(&f);
    assert_int_equal(sequence_keep_hidden_sum(m, (const float[]){1.5f, -2}, 2), 0);
    block_manager_release(&f.scheduler.blocks, &m->table);
    m->num_computed = 0;
    expect_hidden_sum(build(&f), 0, (struct row_span){0, 4}, 0, 0);
    stop(&f);
}

static void test_masks_by_row(void **state) {
    static const int32_t allowed[] = {7, 30}, end[] = {FAKE_EOS};
    struct fixture f;
    struct sampling_params plain = fixture_params(10), some = fixture_params(10), only = some;
    some.num_allowed_tokens = 2;
    some.allowed_tokens = allowed;
    only.num_allowed_tokens = 1;
    only.allowed_tokens = end;
    only.min_tokens = 3; /* would ban all that is allowed */
    start(&f, 16);
    add(&f, 2, &some);
    add(&f, 2, &plain);
    add(&f, 2, &only);
    const struct batch *batch = build(&f);
    assert_int_equal(batch->num_sample_rows, 3);
    assert_int_equal(batch->num_masks, 2);
    assert_int_equal(batch->sample_rows[0].mask, 0);
    assert_int_equal(batch->sample_rows[1].mask, SAMPLE_NO_MASK);
    assert_int_equal(batch->sample_rows[2].mask, 1);
    assert_int_equal(batch->token_masks[0], 1U << 7 | 1U << 30);
    assert_int_equal(batch->token_masks[1], 1U << FAKE_EOS);
    assert_int_equal(batch->sample_rows[2].num_biases, 1); /* the other end token's ban */
    assert_int_equal(batch->num_biases, 1);
    assert_int_equal(batch->token_biases[0].token, 1);
    stop(&f);
}

/* Submits the step that was built, and leaves it in flight. */
static void submit(struct fixture *f) {
    for (int32_t i = 0; i < f->step.plan.num_entries; i++)
        f->step.plan.entries[i].sequence->group->num_in_flight++;
    scheduler_submit(&f->scheduler, &f->step.plan);
}

/* The step after one in flight names the tokens that are sampled there by their rows. */
static void test_a_token_in_flight(void **state) {
    struct fixture f;
    struct sampling_params plain = fixture_params(10), scored = fixture_params(10);
    scored.num_prompt_logprobs = 0;
    start(&f, 16);
    struct sequence *s = add(&f, 3, &scored), *p = add(&f, 5, &plain);
    assert_null(build(&f)->inputs.token_rows);
    assert_int_equal(f.step.plan.entries[0].num_scores, 2);
    submit(&f);
    const struct batch *batch = build(&f);
    assert_int_equal(batch->inputs.num_tokens, 2);
    assert_int_equal(batch->inputs.token_rows[0], 2); /* behind the rows of its two scores */
    assert_int_equal(batch->inputs.token_rows[1], 3);
    assert_int_equal(batch->inputs.positions[0], 3);
    assert_int_equal(batch->inputs.positions[1], 5);
    assert_true(batch->sample_rows[0].position == 4 && batch->sample_rows[1].position == 6);
    assert_false(batch->has_late_inputs);
    assert_int_equal(f.step.rows[1].position, 6);
    assert_ptr_equal(f.step.rows[1].sequence, p);
    assert_int_equal(s->in_flight.num_samples, 1);
    stop(&f);
}

/* A last token is not fed back, in flight or not. */
static void test_nothing_follows_the_last_token(void **state) {
    struct fixture f;
    struct sampling_params one = fixture_params(1), plain = fixture_params(10);
    start(&f, 16);
    add(&f, 3, &one);
    add(&f, 5, &plain);
    build(&f);
    submit(&f);
    assert_int_equal(build(&f)->inputs.num_tokens, 1);
    assert_int_equal(f.step.batch.inputs.positions[0], 5);
    stop(&f);
}

/* Counts need the token in flight: they are filled in, for the whole step, once it is there. */
static void test_late_inputs(void **state) {
    struct fixture f;
    struct sampling_params plain = fixture_params(10), rich = fixture_params(10);
    rich.settings.repetition_penalty = 1.5f;
    start(&f, 16);
    struct sequence *r = add(&f, 2, &rich), *p = add(&f, 4, &plain);
    build(&f);
    struct planned_sequence first[2];
    memcpy(first, f.step.plan.entries, sizeof(first));
    submit(&f);
    assert_true(build(&f)->has_late_inputs);
    assert_true(f.step.awaits_supply);
    assert_int_equal(f.step.batch.num_counts, 0);
    scheduler_collect(&f.scheduler);
    for (int i = 0; i < 2; i++)
        scheduler_commit(&f.scheduler, &first[i], 0);
    assert_int_equal(sequence_append(r, 9), 0);
    scheduler_remove(&f.scheduler, p); /* ended meanwhile: its row means nothing */
    batch_builder_supply(&f.builder, &f.step);
    assert_false(f.step.awaits_supply);
    assert_int_equal(f.step.batch.num_counts, 3);
    assert_int_equal(f.step.batch.sample_rows[0].num_counts, 3);
    assert_true(f.step.batch.sample_rows[0].position == 3);
    assert_int_equal(f.step.batch.sample_rows[1].num_counts, 0);
    sequence_group_destroy(p->group);
    f.groups[1] = f.groups[--f.num_groups];
    stop(&f);
}

/* Each draft is computed, and a token sampled after each, with inputs that count those before. */
static void test_rows_of_drafts(void **state) {
    struct fixture f;
    struct sampling_params rich = fixture_params(10);
    rich.settings.presence_penalty = 0.5f;
    start(&f, 16);
    struct sequence *s = add(&f, 3, &rich);
    build(&f);
    commit(&f);
    assert_int_equal(sequence_append(s, 9), 0);
    s->drafts = malloc(2 * sizeof(*s->drafts));
    s->drafts[0] = 10;
    s->drafts[1] = 9;
    s->num_drafts = s->num_wanted_drafts = 2;
    const struct batch *batch = build(&f);
    static const int32_t token_ids[] = {9, 10, 9}, positions[] = {3, 4, 5};
    assert_int_equal(batch->inputs.num_tokens, 3);
    assert_memory_equal(batch->inputs.token_ids, token_ids, sizeof(token_ids));
    assert_memory_equal(batch->inputs.positions, positions, sizeof(positions));
    static const enum step_row_kind kinds[] = {STEP_ROW_SAMPLE, STEP_ROW_VERIFY, STEP_ROW_VERIFY};
    static const int32_t num_counts[] = {1, 2, 2}, nines[] = {1, 1, 2};
    for (int i = 0; i < 3; i++) {
        const struct sample_row *row = &batch->sample_rows[i];
        assert_int_equal(f.step.rows[i].kind, kinds[i]);
        assert_int_equal(f.step.rows[i].position, 4 + i);
        assert_true(row->position == (uint64_t)(4 + i));
        assert_int_equal(row->num_counts, num_counts[i]);
        assert_int_equal(batch->token_counts[row->first_count].token, 9);
        assert_int_equal(batch->token_counts[row->first_count].output_count, nines[i]);
    }
    static const int32_t sampled[][3] = {{10, 9, 8}, {10, 8, 9}, {8, 9, 9}, {8, 10, 9}};
    static const int32_t num_accepted[] = {2, 1, 0, 0};
    for (int i = 0; i < 4; i++) {
        for (int row = 0; row < 3; row++)
            f.step.result.rows[row].token = sampled[i][row];
        assert_int_equal(step_num_accepted(&f.step, &f.step.plan.entries[0]), num_accepted[i]);
    }
    stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_and_decode_in_one_batch),
        cmocka_unit_test(test_unfinished_prompt_has_no_row),
        cmocka_unit_test(test_a_token_in_flight),
        cmocka_unit_test(test_nothing_follows_the_last_token),
        cmocka_unit_test(test_late_inputs),
        cmocka_unit_test(test_rows_of_drafts),
        cmocka_unit_test(test_scoring_rows),
        cmocka_unit_test(test_scores_only_samples_nothing),
        cmocka_unit_test(test_counts_and_biases_by_row),
        cmocka_unit_test(test_masks_by_row),
        cmocka_unit_test(test_hidden_sums),
        cmocka_unit_test(test_hidden_sum_after_preemption),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
