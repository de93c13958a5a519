/* A draft model beside a small real one: what it proposes, keeps and is moved with, and that a step
 * that verifies its drafts computes what it would without it. The program starts itself as a rank
 * process. test_executor_draft [DEVICE TYPE]: the CPU by default. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/rank_process.h"
#include "tests/unit/engine/executor/draft_fixture.h"

#include <signal.h>
#include <string.h>

#define LLAMA GOLDEN_DIR "/families/llama.gguf"
#define QWEN2 GOLDEN_DIR "/families/qwen2.gguf"
#define LATENT GOLDEN_DIR "/families/deepseek-v2-lite.gguf"
#define LARGER_VOCABULARY GOLDEN_DIR "/tiny-f32.gguf"

/* --- Tests --- */

/* The model itself proposes what it then samples: greedily or not, with biases, any number of
 * tokens, in a batch with sequences that have no draft or are not even computed. */
static void assert_all_accepted(struct fixture *f) {
    static const int32_t num_drafts[] = {4, 0, 1, 7};
    const struct sequence sequences[] = {
        draft_fixture_sequence(0, 21, 0), draft_fixture_sequence(1, 9, 0.9F),
        draft_fixture_sequence(2, 16, 0.9F), draft_fixture_sequence(3, 5, 1.2F)};
    draft_fixture_begin(f);
    f->arena.token_biases[0] = (struct token_bias){.token = 7, .bias = 1000};
    f->arena.counts->num_biases = 1;
    for (int i = 0; i < 4; i++)
        draft_fixture_add_drafted(f, &sequences[i], num_drafts[i]);
    f->arena.sample_rows[1].num_biases = 1;
    draft_fixture_run(f);
    const struct sample_output *rows = f->result.rows;
    const int32_t *drafts = f->result.drafts;
    for (int i = 0; i < 4; i++) {
        for (int32_t d = 0; d < num_drafts[i]; d++)
            assert_int_equal(drafts[d], rows[d].token);
        rows += num_drafts[i] + 1;
        drafts += num_drafts[i];
    }
    assert_int_equal(f->result.num_sample_rows, 16);
    assert_int_equal(f->result.drafts[1], 7);
    assert_true(f->result.drafts[0] != 7 && f->result.drafts[2] != 7);
    assert_int_equal(*drafts, -1); /* no more were written */
}

static void test_a_model_accepts_its_own_drafts(void **state) {
    struct fixture f;
    draft_fixture_start(&f, LLAMA, LLAMA, false);
    for (int round = 0; round < 2; round++)
        assert_all_accepted(&f);
    draft_fixture_stop(&f);
}

/* Accepts `count` drafts and the token after them. */
static void accept(struct fixture *f, struct sequence *s, int32_t count) {
    s->num_computed = s->length + count;
    s->num_drafted = s->length + count;
    for (int32_t i = 0; i <= count; i++)
        s->tokens[s->length++] = f->result.rows[i].token;
}

static struct sequence afresh(const struct sequence *s, int32_t place) {
    struct sequence fresh = *s;
    fresh.place = place;
    fresh.num_computed = fresh.num_drafted = 0;
    return fresh;
}

/* Without drafts a GPU replays the model's step, after passes of the other model. */
static void assert_drafts_are_those_of_a_fresh_start(struct fixture *f, const struct sequence *s) {
    static const int32_t numbers[] = {5, 1, 0};
    for (int i = 0; i < 3; i++) {
        int32_t drafts[5], count = numbers[i];
        struct sample_output rows[6];
        const struct sequence fresh = afresh(s, 5);
        memcpy(drafts, draft_fixture_draft(f, s, count), sizeof(drafts));
        memcpy(rows, f->result.rows, sizeof(rows));
        assert_memory_equal(draft_fixture_draft(f, &fresh, count), drafts, sizeof(drafts));
        draft_fixture_assert_rows(f->result.rows, rows, count + 1);
    }
}

/* A draft model that proposes something else than the model samples: after rejected drafts, and
 * after a step that only computed what it lacked. */
static void test_what_it_has_computed_is_kept(void **state) {
    struct fixture f;
    struct sequence s = draft_fixture_sequence(0, 13, 0);
    draft_fixture_start(&f, LLAMA, QWEN2, false);
    for (int step = 0; step < 4; step++) {
        draft_fixture_draft(&f, &s, 5);
        int32_t last = f.result.rows[0].token;
        accept(&f, &s, 0);
        assert_int_equal(s.tokens[s.length - 1], last);
        assert_drafts_are_those_of_a_fresh_start(&f, &s);
    }
    draft_fixture_draft(&f, &s, 0);
    accept(&f, &s, 0);
    assert_drafts_are_those_of_a_fresh_start(&f, &s);
    draft_fixture_stop(&f);
}

/* The draft computed last is not in the cache yet: it comes with the next inputs. */
static void test_accepted_drafts_are_kept(void **state) {
    struct fixture f;
    struct sequence s = draft_fixture_sequence(0, 13, 0.8F);
    draft_fixture_start(&f, LLAMA, LLAMA, false);
    for (int step = 0; step < 3; step++) {
        const int32_t *drafts = draft_fixture_draft(&f, &s, 5);
        for (int32_t i = 0; i < 5; i++)
            assert_int_equal(drafts[i], f.result.rows[i].token);
        accept(&f, &s, 5);
        s.num_drafted--;
        assert_drafts_are_those_of_a_fresh_start(&f, &s);
    }
    draft_fixture_stop(&f);
}

/* Swapped out of place 0, which another sequence gets, in at place 2, and copied to place 3. */
static void test_its_blocks_are_moved_too(void **state) {
    struct fixture f;
    struct sequence s = draft_fixture_sequence(0, 37, 0);
    int32_t expected[6];
    draft_fixture_start(&f, LLAMA, QWEN2, false);
    draft_fixture_draft(&f, &s, 6);
    accept(&f, &s, 0);
    const struct sequence fresh = afresh(&s, 6);
    memcpy(expected, draft_fixture_draft(&f, &fresh, 6), sizeof(expected));

    draft_fixture_swap_out(&f, 0);
    struct sequence other = draft_fixture_sequence(9, 40, 0);
    other.place = 0;
    draft_fixture_draft(&f, &other, 6);

    s.place = 3;
    draft_fixture_begin(&f);
    draft_fixture_swap_in(&f, 2, 3);
    draft_fixture_add_drafted(&f, &s, 6);
    draft_fixture_run(&f);
    assert_memory_equal(f.result.drafts, expected, sizeof(expected));
    draft_fixture_stop(&f);
}

/* Without a draft model, and with one in steps that have no requests. */
static void assert_plain_rows(const char *draft, bool is_process, const int32_t *drafts,
                              const struct sample_output *rows) {
    struct fixture f;
    const struct sequence greedy = draft_fixture_sequence(0, 21, 0),
                          sampled = draft_fixture_sequence(1, 9, 0.9F);
    draft_fixture_start(&f, LLAMA, draft, is_process);
    draft_fixture_begin(&f);
    draft_fixture_add(&f, &greedy, drafts, 4);
    draft_fixture_add(&f, &sampled, drafts + 4, 3);
    draft_fixture_run(&f);
    draft_fixture_assert_rows(f.result.rows, rows, 9);
    draft_fixture_stop(&f);
}

static void assert_verified_as_any_token(bool is_process, const char *draft) {
    struct fixture f;
    int32_t drafts[7];
    struct sample_output rows[9];
    const struct sequence greedy = draft_fixture_sequence(0, 21, 0),
                          sampled = draft_fixture_sequence(1, 9, 0.9F);
    draft_fixture_start(&f, LLAMA, draft, is_process);
    draft_fixture_begin(&f);
    draft_fixture_add_drafted(&f, &greedy, 4);
    draft_fixture_add_drafted(&f, &sampled, 3);
    draft_fixture_run(&f);
    memcpy(drafts, f.result.drafts, sizeof(drafts));
    memcpy(rows, f.result.rows, sizeof(rows));
    draft_fixture_stop(&f);
    assert_plain_rows(NULL, false, drafts, rows);
    assert_plain_rows(draft, is_process, drafts, rows);
}

static void test_drafts_are_verified_as_any_token(void **state) {
    assert_verified_as_any_token(false, QWEN2);
}

static void test_in_a_rank_process(void **state) {
    struct fixture f;
    struct error err = {0};
    assert_verified_as_any_token(true, QWEN2);
    draft_fixture_start(&f, LLAMA, LLAMA, true);
    assert_all_accepted(&f);
    kill(process_executor_pid(f.executor), SIGKILL);
    f.executor->ops->submit(f.executor, &f.batch, &f.result);
    assert_int_equal(f.executor->ops->wait(f.executor, &err), -1);
    if (f.executor->ops->restart(f.executor, &err) != 0)
        fail_msg("%s", err.message);
    assert_all_accepted(&f);
    draft_fixture_stop(&f);
}

static void test_it_sleeps_with_the_ranks(void **state) {
    struct fixture f;
    struct error err = {0};
    draft_fixture_start(&f, LLAMA, LLAMA, false);
    for (int discards_weights = 0; discards_weights < 2; discards_weights++) {
        f.executor->ops->sleep(f.executor, discards_weights);
        if (f.executor->ops->wake(f.executor, &err) != 0)
            fail_msg("%s", err.message);
        assert_all_accepted(&f);
    }
    draft_fixture_stop(&f);
}

/* The larger one proposes no token that the other lacks; the smaller one computes tokens that it
 * lacks, and is not biased to any. */
static void test_vocabularies_of_other_sizes(void **state) {
    struct fixture f;
    const struct sequence s = draft_fixture_sequence(0, 21, 3);
    int num_zeros = 0;
    draft_fixture_start(&f, LLAMA, LARGER_VOCABULARY, false);
    for (int32_t place = 0; place < NUM_PLACES; place++) {
        const struct sequence other =
            draft_fixture_sequence(place, 5 + 7 * place, 1000); /* any token */
        draft_fixture_draft(&f, &other, 8);
        for (int32_t d = 0; d < 8; d++) {
            assert_in_range(f.result.drafts[d], 0, VOCAB_SIZE - 1);
            num_zeros += f.result.drafts[d] == 0;
        }
    }
    assert_in_range(num_zeros, 2, 32); /* of 64, 8 are expected */
    draft_fixture_stop(&f);
    draft_fixture_start(&f, LARGER_VOCABULARY, LLAMA, false);
    draft_fixture_begin(&f);
    f.arena.token_biases[0] = (struct token_bias){.token = 300, .bias = 1000};
    f.arena.counts->num_biases = 1;
    draft_fixture_add_drafted(&f, &s, 4);
    f.arena.token_ids[3] = f.arena.draft_inputs[3] = 319;
    for (int r = 0; r < 5; r++)
        f.arena.sample_rows[r].num_biases = 1;
    draft_fixture_run(&f);
    for (int r = 0; r < 5; r++)
        assert_int_equal(f.result.rows[r].token, 300);
    for (int d = 0; d < 4; d++)
        assert_in_range(f.result.drafts[d], 0, VOCAB_SIZE - 1);
    draft_fixture_stop(&f);
}

static void test_what_is_refused(void **state) {
    struct fixture f;
    draft_fixture_open(&f, LLAMA, QWEN2);
    struct executor_config config = draft_fixture_config(&f);
    config.device = "cpu";
    config.num_ranks = 2;
    draft_fixture_assert_refused(&f, &config, "speculative-config: model is for one rank, not 2; ");
    config.num_ranks = 1;
    config.num_stages = 3;
    draft_fixture_assert_refused(&f, &config, "speculative-config: model is for one rank, not 3; ");
    config.num_stages = 1;
    config.limits.window = 32;
    draft_fixture_assert_refused(&f, &config,
                                 "speculative-config: model needs more than the last 32 tokens; ");
    draft_fixture_close(&f);
}

/* A GPU prepares one kind of attention; a CPU computes any. */
static void test_latent_attention(void **state) {
    struct fixture f;
    draft_fixture_open(&f, LLAMA, LATENT);
    const struct executor_config config = draft_fixture_config(&f);
    if (f.gpu == NULL)
        assert_verified_as_any_token(false, LATENT);
    else
        draft_fixture_assert_refused(&f, &config,
                                     "speculative-config: model has latent attention and ");
    draft_fixture_close(&f);
}

static void test_memory_is_planned(void **state) {
    static const uint8_t none[CONTENT_HASH_BYTES];
    struct executor_info planned, plain, of_draft;
    struct fixture f;
    draft_fixture_start(&f, LLAMA, QWEN2, false);
    struct executor_config config = draft_fixture_config(&f);
    assert_int_equal(executor_plan(f.model, &config, &planned, NULL), 0);
    config.draft_model = NULL;
    assert_int_equal(executor_plan(f.model, &config, &plain, NULL), 0);
    config.limits.vocab_size = f.draft->config.vocab_size;
    config.limits.hidden_size = f.draft->config.hidden_size;
    assert_int_equal(executor_plan(f.draft, &config, &of_draft, NULL), 0);
    assert_int_equal(plain.memory.draft_bytes, 0);
    if (f.gpu == NULL) {
        assert_int_equal(planned.memory.draft_bytes, f.info.memory.draft_bytes);
        assert_int_equal(planned.memory.draft_bytes,
                         of_draft.memory.weight_bytes + of_draft.memory.workspace_bytes);
    }
    assert_int_equal(planned.memory.weight_bytes, plain.memory.weight_bytes);
    assert_int_equal(planned.limits.num_blocks, f.info.limits.num_blocks);
    assert_int_equal(draft_fixture_block_bytes(&f.info),
                     draft_fixture_block_bytes(&plain) + draft_fixture_block_bytes(&of_draft));
    assert_int_equal(f.info.memory.swap_bytes,
                     (size_t)f.info.limits.num_host_blocks * draft_fixture_block_bytes(&f.info));
    assert_true(f.info.swap_block_ns > 0);
    assert_memory_not_equal(f.info.draft_digest, none, sizeof(none));
    assert_memory_not_equal(f.info.draft_digest, f.info.model_digest, sizeof(none));
    struct executor_info now = f.info;
    struct error err = {0};
    assert_int_equal(executor_info_compare(&f.info, &now, &err), 0);
    now.draft_digest[0] ^= 1;
    assert_int_equal(executor_info_compare(&f.info, &now, &err), -1);
    assert_string_equal(err.message, "the draft model's files have changed since the start");
    draft_fixture_stop(&f);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_accepts_its_own_drafts),
        cmocka_unit_test(test_what_it_has_computed_is_kept),
        cmocka_unit_test(test_accepted_drafts_are_kept),
        cmocka_unit_test(test_its_blocks_are_moved_too),
        cmocka_unit_test(test_drafts_are_verified_as_any_token),
        cmocka_unit_test(test_vocabularies_of_other_sizes),
        cmocka_unit_test(test_it_sleeps_with_the_ranks),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_latent_attention),
        cmocka_unit_test(test_memory_is_planned),
        cmocka_unit_test(test_in_a_rank_process),
    };
    if (argc > 1 && strcmp(argv[1], "rank-process") == 0)
        return rank_process_is_expected() ? rank_process_run() : 1;
    draft_fixture_set_device(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
