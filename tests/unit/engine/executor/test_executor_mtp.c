/* A model's own layer that drafts: it is right where it has learnt to be, from hidden states that
 * are kept and moved with the blocks of the KV cache. The program starts itself as a rank process.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/rank_process.h"
#include "models/config/mtp.h"
#include "tests/unit/engine/executor/draft_fixture.h"

#include <signal.h>
#include <string.h>

/* Both model and layer have learnt a language, in which a text's first token decides what follows
 * each of 48 words (make_mtp.py). The weights of the others are random. */
#define TRAINED GOLDEN_DIR "/mtp/trained"
#define DEEPSEEK GOLDEN_DIR "/mtp/deepseek-v3"
#define GLM GOLDEN_DIR "/mtp/glm4.5-air-shared.gguf"
#define NO_SUCH_LAYER GOLDEN_DIR "/families/llama.gguf"

enum { FIRST_MODE = 3, NUM_MODES = 4, FIRST_WORD = 10, NUM_WORDS = 48 };

/* Computes what comes before the last token, which is sampled. */
static void prepare(struct fixture *f, struct sequence *s) {
    draft_fixture_begin(f);
    draft_fixture_add(f, s, NULL, 0);
    draft_fixture_run(f);
    s->num_computed = s->length;
    s->tokens[s->length++] = f->result.rows[0].token;
}

/* A text begins with a mode and a word. */
static struct sequence text_of(struct fixture *f, int32_t mode, int32_t word, int32_t place) {
    struct sequence s = {.length = 2, .place = place};
    s.tokens[0] = FIRST_MODE + mode;
    s.tokens[1] = FIRST_WORD + word;
    prepare(f, &s);
    return s;
}

/* Takes the drafts that are equal to what was sampled in their place, and the token after them.
 * What the layer computed of drafts, it computes again. */
static int32_t take(struct fixture *f, struct sequence *s, const int32_t *drafts,
                    const struct sample_output *rows, int32_t num_drafts) {
    int32_t count = 0;
    while (count < num_drafts && drafts[count] == rows[count].token)
        count++;
    s->num_drafted = s->length - 1;
    s->num_computed = s->length + count;
    for (int32_t i = 0; i <= count; i++)
        s->tokens[s->length++] = rows[i].token;
    return count;
}

/* Computed from the beginning in another place. */
static struct sequence afresh(struct fixture *f, const struct sequence *s, int32_t place) {
    struct sequence fresh = *s;
    fresh.place = place;
    fresh.num_computed = fresh.num_drafted = 0;
    fresh.length--;
    prepare(f, &fresh);
    fresh.tokens[fresh.length - 1] = s->tokens[s->length - 1];
    return fresh;
}

/* --- Tests --- */

/* Of each draft that a random one of the words would be right in 1 of 48, of those by a layer that
 * sees only words 1 of 4. */
static int32_t count_accepted(struct fixture *f, int32_t num_drafts, int32_t *out_made) {
    int32_t accepted = 0;
    *out_made = 0;
    for (int32_t mode = 0; mode < NUM_MODES; mode++) {
        struct sequence s = text_of(f, mode, 7 * mode + 5, mode);
        while (s.length < 40) {
            const int32_t *drafts = draft_fixture_draft(f, &s, num_drafts);
            int32_t now = take(f, &s, drafts, f->result.rows, num_drafts);
            accepted += now;
            *out_made +=
                now < num_drafts ? now + 1 : now; /* those after a wrong one are not told */
        }
    }
    return accepted;
}

static void test_it_is_right_where_it_has_learnt(void **state) {
    struct fixture f;
    int32_t made;
    draft_fixture_start(&f, TRAINED, ITS_MTP_LAYER, false);
    int32_t accepted = count_accepted(&f, 1, &made);
    print_message("# one at a time: %d of %d accepted\n", accepted, made);
    assert_true(accepted > made * 9 / 10);
    accepted = count_accepted(&f, 4, &made); /* it has not learnt to continue from its own states */
    print_message("# four at a time: %d of %d accepted\n", accepted, made);
    assert_true(accepted > made / 2);
    draft_fixture_stop(&f);
}

/* In a batch with others, some with many drafts and some with none. */
static void assert_batch_is_right(struct fixture *f) {
    static const int32_t num_drafts[] = {3, 0, 1, 4};
    struct sequence s[4];
    for (int32_t i = 0; i < 4; i++)
        s[i] = text_of(f, i, 11 * i + 2, i);
    draft_fixture_begin(f);
    for (int32_t i = 0; i < 4; i++)
        draft_fixture_add_drafted(f, &s[i], num_drafts[i]);
    draft_fixture_run(f);
    const struct sample_output *rows = f->result.rows;
    const int32_t *drafts = f->result.drafts;
    for (int32_t i = 0; i < 4; i++) {
        assert_true(num_drafts[i] == 0 || take(f, &s[i], drafts, rows, num_drafts[i]) > 0);
        rows += num_drafts[i] + 1;
        drafts += num_drafts[i];
    }
}

static void test_a_batch(void **state) {
    struct fixture f;
    draft_fixture_start(&f, TRAINED, ITS_MTP_LAYER, false);
    for (int round = 0; round < 2; round++)
        assert_batch_is_right(&f);
    draft_fixture_stop(&f);
}

static void assert_drafts_are_those_of_a_fresh_start(struct fixture *f, const struct sequence *s) {
    int32_t drafts[4];
    memcpy(drafts, draft_fixture_draft(f, s, 4), sizeof(drafts));
    const struct sequence fresh = afresh(f, s, 5);
    assert_memory_equal(draft_fixture_draft(f, &fresh, 4), drafts, sizeof(drafts));
    draft_fixture_draft(f, s, 4); /* after what a later step left there */
    assert_memory_equal(f->result.drafts, drafts, sizeof(drafts));
}

/* After drafts that were accepted, that were not, and after steps without any, of which it computes
 * the tokens later. */
static void assert_states_are_kept(const char *model, float temperature) {
    struct fixture f;
    struct sequence s = draft_fixture_sequence(0, 21, temperature);
    draft_fixture_start(&f, model, ITS_MTP_LAYER, false);
    prepare(&f, &s);
    for (int step = 0; step < 3; step++) {
        assert_drafts_are_those_of_a_fresh_start(&f, &s);
        take(&f, &s, draft_fixture_draft(&f, &s, 3), f.result.rows, 3);
    }
    for (int step = 0; step < 3; step++) {
        draft_fixture_begin(&f);
        draft_fixture_add(&f, &s, NULL, 0);
        draft_fixture_run(&f);
        s.num_computed = s.length;
        s.tokens[s.length++] = f.result.rows[0].token;
    }
    assert_drafts_are_those_of_a_fresh_start(&f, &s);
    draft_fixture_stop(&f);
}

static void test_states_are_kept(void **state) {
    assert_states_are_kept(DEEPSEEK, 0);
    assert_states_are_kept(GLM, 0.8F);
    assert_states_are_kept(TRAINED, 0.8F);
}

/* Swapped out of place 0, which another sequence gets, in at place 2, and copied to place 3. */
static void test_states_are_moved_too(void **state) {
    struct fixture f;
    struct sequence s = draft_fixture_sequence(0, 37, 0);
    int32_t expected[6];
    draft_fixture_start(&f, DEEPSEEK, ITS_MTP_LAYER, false);
    prepare(&f, &s);
    const struct sequence fresh = afresh(&f, &s, 6);
    memcpy(expected, draft_fixture_draft(&f, &fresh, 6), sizeof(expected));
    draft_fixture_swap_out(&f, 0);
    struct sequence other = draft_fixture_sequence(9, 40, 0);
    other.place = 0;
    prepare(&f, &other);
    s.place = 3;
    draft_fixture_begin(&f);
    draft_fixture_swap_in(&f, 2, 3);
    draft_fixture_add_drafted(&f, &s, 6);
    draft_fixture_run(&f);
    assert_memory_equal(f.result.drafts, expected, sizeof(expected));
    draft_fixture_stop(&f);
}

/* Steps with the same drafts, without a layer that made them. */
static void assert_verified_as_any_token(const char *model, bool is_process) {
    struct fixture f;
    int32_t drafts[7];
    struct sample_output rows[9];
    struct sequence s[2] = {draft_fixture_sequence(0, 21, 0), draft_fixture_sequence(1, 9, 0.9F)};
    draft_fixture_start(&f, model, ITS_MTP_LAYER, is_process);
    for (int i = 0; i < 2; i++)
        prepare(&f, &s[i]);
    draft_fixture_begin(&f);
    draft_fixture_add_drafted(&f, &s[0], 4);
    draft_fixture_add_drafted(&f, &s[1], 3);
    draft_fixture_run(&f);
    memcpy(drafts, f.result.drafts, sizeof(drafts));
    memcpy(rows, f.result.rows, sizeof(rows));
    draft_fixture_stop(&f);
    draft_fixture_start(&f, model, NULL, is_process);
    for (int i = 0; i < 2; i++) {
        s[i].num_computed = 0;
        s[i].length--;
        prepare(&f, &s[i]);
    }
    draft_fixture_begin(&f);
    draft_fixture_add(&f, &s[0], drafts, 4);
    draft_fixture_add(&f, &s[1], drafts + 4, 3);
    draft_fixture_run(&f);
    draft_fixture_assert_rows(f.result.rows, rows, 9);
    draft_fixture_stop(&f);
}

static void test_drafts_are_verified_as_any_token(void **state) {
    assert_verified_as_any_token(GLM, false);
    assert_verified_as_any_token(TRAINED, false);
}

static void test_in_a_rank_process(void **state) {
    struct fixture f;
    struct error err = {0};
    assert_verified_as_any_token(DEEPSEEK, true);
    draft_fixture_start(&f, TRAINED, ITS_MTP_LAYER, true);
    assert_batch_is_right(&f);
    kill(process_executor_pid(f.executor), SIGKILL);
    f.executor->ops->submit(f.executor, &f.batch, &f.result);
    assert_int_equal(f.executor->ops->wait(f.executor, &err), -1);
    if (f.executor->ops->restart(f.executor, &err) != 0)
        fail_msg("%s", err.message);
    assert_batch_is_right(&f);
    draft_fixture_stop(&f);
}

static void test_it_sleeps_with_the_ranks(void **state) {
    struct fixture f;
    struct error err = {0};
    draft_fixture_start(&f, TRAINED, ITS_MTP_LAYER, false);
    for (int discards_weights = 0; discards_weights < 2; discards_weights++) {
        f.executor->ops->sleep(f.executor, discards_weights);
        if (f.executor->ops->wake(f.executor, &err) != 0)
            fail_msg("%s", err.message);
        assert_batch_is_right(&f);
    }
    draft_fixture_stop(&f);
}

static void test_what_is_refused(void **state) {
    struct fixture f;
    struct error err = {0};
    draft_fixture_open(&f, DEEPSEEK, ITS_MTP_LAYER);
    struct executor_config config = draft_fixture_config(&f);
    config.device = "cpu";
    config.num_ranks = 2;
    draft_fixture_assert_refused(&f, &config, "speculative-config: mtp is for one rank, not 2; ");
    assert_int_equal(mtp_select(f.draft, &err), -1); /* it has no second one */
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "has no layer that predicts further tokens"));
    draft_fixture_close(&f);
    draft_fixture_open(&f, NO_SUCH_LAYER, NULL);
    assert_int_equal(mtp_select(f.model, &err), -1);
    draft_fixture_close(&f);
}

/* The embedding and the head are the model's, unless the layer has others. */
static void assert_planned(const char *model, bool has_own_ends) {
    struct executor_info planned, plain;
    struct fixture f;
    draft_fixture_start(&f, model, ITS_MTP_LAYER, false);
    const struct model_config *layer = &f.draft->config;
    struct executor_config config = draft_fixture_config(&f);
    assert_int_equal(executor_plan(f.model, &config, &planned, NULL), 0);
    config.draft_model = NULL;
    config.has_mtp = false;
    assert_int_equal(executor_plan(f.model, &config, &plain, NULL), 0);
    size_t value = dtype_block_bytes(f.info.activation_dtype), width = (size_t)layer->hidden_size;
    size_t of_layer = (draft_fixture_block_bytes(&plain) / (size_t)f.model->config.num_layers);
    assert_true(f.info.has_mtp && planned.has_mtp && !plain.has_mtp);
    assert_true(layer->has_own_embedding == has_own_ends && layer->has_own_head == has_own_ends);
    assert_int_equal(draft_fixture_block_bytes(&f.info),
                     draft_fixture_block_bytes(&plain) + of_layer + BLOCK_SIZE * width * value);
    assert_int_equal(planned.memory.weight_bytes, plain.memory.weight_bytes);
    assert_int_equal(planned.limits.num_blocks, f.info.limits.num_blocks);
    assert_int_equal(planned.memory.draft_bytes, f.info.memory.draft_bytes);
    draft_fixture_stop(&f);
}

static void test_memory_is_planned(void **state) {
    assert_planned(DEEPSEEK, false);
    assert_planned(GLM, false); /* has neither */
    assert_planned(GOLDEN_DIR "/mtp/glm4.5-air", true);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_right_where_it_has_learnt),
        cmocka_unit_test(test_a_batch),
        cmocka_unit_test(test_states_are_kept),
        cmocka_unit_test(test_states_are_moved_too),
        cmocka_unit_test(test_drafts_are_verified_as_any_token),
        cmocka_unit_test(test_it_sleeps_with_the_ranks),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_memory_is_planned),
        cmocka_unit_test(test_in_a_rank_process),
    };
    if (argc > 1 && strcmp(argv[1], "rank-process") == 0)
        return rank_process_is_expected() ? rank_process_run() : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
