#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/core/step_output.h"
#include "engine/batch/sampling_inputs.h"
#include "tests/unit/engine/sequence_fixture.h"

#include <math.h>
#include <string.h>

/* Pieces of the fake tokenizer. */
enum { EOS = 0, TOOL = 2, A = 3, B = 4, EURO_1 = 13, EURO_2 = 16 };

struct fixture {
    struct step_output output;
    struct sequence_group *group;
    struct token_buffer buffer;
};

/* Room for the vocabulary once in an event. */
static const struct serving_limits limits = {.max_num_seqs = 1,
                                             .max_num_batched_tokens = 2,
                                             .max_logprobs = FAKE_VOCAB_SIZE,
                                             .vocab_size = FAKE_VOCAB_SIZE};
static const struct sample_row no_list[2];

static void start(struct fixture *f, const struct sampling_params *params, int32_t max_model_len) {
    memset(f, 0, sizeof(*f));
    assert_int_equal(step_output_init(&f->output, fake_tokenizer(), &limits), 0);
    f->group = fixture_group(1, 0, 4, params, max_model_len, 4);
}

static void stop(struct fixture *f) {
    token_buffer_finish(&f->buffer);
    sequence_group_destroy(f->group);
    step_output_finish(&f->output);
}

static struct token_event next(struct fixture *f) {
    struct token_event event, more;
    token_stream_take(&f->group->request->stream, &f->buffer);
    assert_true(token_buffer_next(&f->buffer, &event));
    assert_false(token_buffer_next(&f->buffer, &more));
    return event;
}

static struct token_event sample_token(struct fixture *f, int32_t token) {
    struct sample_output row = {
        .token = token, .logprob = -1, .rank = 5, .num_top = 1, .top_tokens = {7}};
    struct sequence *sequence = &f->group->sequences[0];
    const struct step_rows rows = {.requested = no_list, .outputs = &row, .count = 1};
    assert_int_equal(step_output_token(&f->output, sequence, &rows, 0), 0);
    struct token_event event = next(f);
    assert_int_equal(event.kind, TOKEN_EVENT_TEXT);
    assert_int_equal(event.num_tokens, 1);
    assert_int_equal(event.tokens[0].token, token);
    assert_int_equal(event.finish, sequence->finish);
    return event;
}

static void expect(const struct token_event *event, const char *text, enum finish_reason finish) {
    assert_int_equal(event->text_bytes, strlen(text));
    assert_memory_equal(event->text, text, event->text_bytes);
    assert_int_equal(event->finish, finish);
}

static void test_text_until_length(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(3);
    start(&f, &params, 100);
    struct token_event event = sample_token(&f, A);
    expect(&event, "a", FINISH_NONE);
    assert_true(isnan(event.tokens[0].logprob)); /* not requested */
    assert_int_equal(event.tokens[0].rank, 0);
    assert_int_equal(event.num_top, 0);
    event = sample_token(&f, TOOL);
    expect(&event, "", FINISH_NONE); /* special */
    event = sample_token(&f, EURO_1);
    expect(&event, "\xef\xbf\xbd", FINISH_LENGTH); /* an unfinished character */
    assert_int_equal(event.num_generated, 3);
    stop(&f);
}

static void test_context_end(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(50);
    start(&f, &params, 6);
    sample_token(&f, A);
    struct token_event event = sample_token(&f, A);
    expect(&event, "a", FINISH_LENGTH);
    stop(&f);
}

static void test_end_token(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(50);
    params.skip_special_tokens = false;
    params.num_logprobs = 1;
    start(&f, &params, 100);
    sample_token(&f, EURO_1);
    struct token_event event = sample_token(&f, EURO_2);
    expect(&event, "€", FINISH_NONE);
    event = sample_token(&f, TOOL);
    expect(&event, "<tool>", FINISH_NONE);
    event = sample_token(&f, EOS);
    expect(&event, "", FINISH_STOP);
    assert_int_equal(event.stop_token, -1);
    assert_int_equal(event.stop_string, -1);
    assert_int_equal(event.num_generated, 4);
    assert_true(event.tokens[0].logprob == -1);
    assert_int_equal(event.tokens[0].rank, 5);
    assert_int_equal(event.tokens[0].num_top, 1);
    assert_int_equal(event.top[0].token, 7);
    stop(&f);
}

static void test_ignore_eos(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(50);
    params.ignore_eos = true;
    start(&f, &params, 100);
    struct token_event event = sample_token(&f, EOS);
    expect(&event, "", FINISH_NONE);
    stop(&f);
}

static void test_stop_token(void **state) {
    static const int32_t stop_tokens[] = {9, B};
    for (int include = 0; include < 2; include++) {
        struct fixture f;
        struct sampling_params params = fixture_params(50);
        params.num_stop_tokens = 2;
        params.stop_tokens = stop_tokens;
        params.include_stop_string = include;
        start(&f, &params, 100);
        sample_token(&f, A);
        struct token_event event = sample_token(&f, B);
        expect(&event, include ? "b" : "", FINISH_STOP);
        assert_int_equal(event.stop_token, B);
        stop(&f);
    }
}

static void test_min_tokens_holds_back_ends(void **state) {
    static const struct stop_string stops[] = {{"ab", 2}};
    struct fixture f;
    struct sampling_params params = fixture_params(50);
    params.min_tokens = 2;
    params.num_stop_strings = 1;
    params.stop_strings = stops;
    start(&f, &params, 100);
    struct token_event event = sample_token(&f, A);
    expect(&event, "", FINISH_NONE); /* may begin a stop string */
    event = sample_token(&f, B);
    expect(&event, "ab", FINISH_NONE); /* was one, but too early */
    sample_token(&f, A);
    event = sample_token(&f, B);
    expect(&event, "", FINISH_STOP);
    assert_int_equal(event.stop_string, 0);
    stop(&f);
}

static void test_a_stop_string_beats_the_length(void **state) {
    static const struct stop_string stops[] = {{"b", 1}};
    struct fixture f;
    struct sampling_params params = fixture_params(1);
    params.num_stop_strings = 1;
    params.stop_strings = stops;
    start(&f, &params, 100);
    struct token_event event = sample_token(&f, B);
    expect(&event, "", FINISH_STOP);
    stop(&f);
}

static void test_scores(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(5);
    params.num_prompt_logprobs = 1;
    start(&f, &params, 100);
    struct sequence *sequence = &f.group->sequences[0];
    struct sample_output outputs[2] = {
        {.token = 4, .logprob = -2, .num_top = 1, .top_tokens = {8}},
        {.token = 5, .logprob = -3, .rank = 17, .num_top = 1, .top_tokens = {9}}};
    struct step_rows rows = {.requested = no_list, .outputs = outputs, .count = 2};
    assert_int_equal(step_output_scores(&f.output, sequence, &rows), 0);
    struct token_event event = next(&f);
    assert_int_equal(event.kind, TOKEN_EVENT_PROMPT);
    assert_int_equal(event.num_tokens, 3); /* the first one has no score */
    assert_int_equal(event.tokens[0].token, 3);
    assert_true(isnan(event.tokens[0].logprob));
    assert_true(event.tokens[2].logprob == -3);
    assert_int_equal(event.tokens[0].rank, 0);
    assert_int_equal(event.tokens[2].rank, 17);
    assert_int_equal(event.top[event.tokens[2].first_top].token, 9);
    assert_int_equal(f.group->num_scored, 3);
    assert_true(sequence_group_is_scoring(f.group));
    outputs[0].token = 6;
    rows.count = 1;
    assert_int_equal(step_output_scores(&f.output, sequence, &rows), 0);
    assert_int_equal(next(&f).num_tokens, 1);
    assert_false(sequence_group_is_scoring(f.group));
    stop(&f);
}

/* All tokens with rising logprobs, but for one pair that is equal. */
static void list_all(int32_t listed[FAKE_VOCAB_SIZE], float logprobs[2 * FAKE_VOCAB_SIZE]) {
    for (int32_t i = 0; i < 2 * FAKE_VOCAB_SIZE; i++)
        logprobs[i] = (float)(i % FAKE_VOCAB_SIZE - FAKE_VOCAB_SIZE);
    for (int32_t i = 0; i < FAKE_VOCAB_SIZE; i++)
        listed[i] = i;
    logprobs[30] = logprobs[31];
}

/* The likeliest of a listed vocabulary; or the tokens that were named, as they were. */
static void test_listed_tokens(void **state) {
    const int32_t named[2] = {9, 4};
    int32_t listed[FAKE_VOCAB_SIZE];
    float logprobs[2 * FAKE_VOCAB_SIZE];
    list_all(listed, logprobs);
    const struct sample_output outputs = {.token = A, .logprob = -3, .rank = 8};
    const struct sample_row all = {.num_listed = FAKE_VOCAB_SIZE};
    struct step_rows rows = {.requested = &all,
                             .outputs = &outputs,
                             .count = 1,
                             .listed = listed,
                             .listed_logprobs = logprobs};
    struct fixture f;
    struct sampling_params params = fixture_params(5);
    params.num_logprobs = 25;
    start(&f, &params, 100);
    assert_int_equal(step_output_token(&f.output, &f.group->sequences[0], &rows, 0), 0);
    struct token_event event = next(&f);
    assert_int_equal(event.tokens[0].num_top, 25);
    assert_int_equal(event.tokens[0].rank, 8);
    for (int32_t i = 0; i < 25; i++)
        assert_int_equal(event.top[i].token, i < 2 ? 30 + i : 31 - i);
    stop(&f);
    const struct sample_row some = {.num_listed = 2, .first_listed_logprob = FAKE_VOCAB_SIZE};
    rows.requested = &some;
    rows.listed = named;
    params.num_logprob_tokens = 2;
    params.logprob_tokens = named;
    start(&f, &params, 100);
    assert_int_equal(step_output_token(&f.output, &f.group->sequences[0], &rows, 0), 0);
    event = next(&f);
    assert_int_equal(event.tokens[0].num_top, 2);
    assert_int_equal(event.top[0].token, 9);
    assert_true(event.top[0].logprob == logprobs[FAKE_VOCAB_SIZE]);
    assert_int_equal(event.top[1].token, 4);
    stop(&f);
}

/* Scores that list more than an event has room for are pushed in several. */
static void test_scores_of_the_vocabulary(void **state) {
    int32_t listed[FAKE_VOCAB_SIZE];
    float logprobs[2 * FAKE_VOCAB_SIZE];
    list_all(listed, logprobs);
    const struct sample_output outputs[2] = {{.token = 4}, {.token = 5}};
    const struct sample_row all[2] = {
        {.num_listed = FAKE_VOCAB_SIZE},
        {.num_listed = FAKE_VOCAB_SIZE, .first_listed_logprob = FAKE_VOCAB_SIZE}};
    struct fixture f;
    struct sampling_params params = fixture_params(5);
    params.num_prompt_logprobs = FAKE_VOCAB_SIZE;
    start(&f, &params, 100);
    f.output.max_top = FAKE_VOCAB_SIZE + 1;
    const struct step_rows rows = {.requested = all,
                                   .outputs = outputs,
                                   .count = 2,
                                   .listed = listed,
                                   .listed_logprobs = logprobs};
    assert_int_equal(step_output_scores(&f.output, &f.group->sequences[0], &rows), 0);
    struct token_event event;
    int32_t num_tokens[2];
    token_stream_take(&f.group->request->stream, &f.buffer);
    for (int i = 0; i < 2; i++) {
        assert_true(token_buffer_next(&f.buffer, &event));
        num_tokens[i] = event.num_tokens;
        assert_int_equal(event.num_top, FAKE_VOCAB_SIZE);
    }
    assert_int_equal(num_tokens[0], 2); /* the first one has no score */
    assert_int_equal(num_tokens[1], 1);
    assert_int_equal(event.top[0].token, 31);
    assert_int_equal(f.group->num_scored, 3);
    stop(&f);
}

static void test_end_from_outside_releases_held_text(void **state) {
    static const struct stop_string stops[] = {{"ab", 2}};
    struct fixture f;
    struct sampling_params params = fixture_params(5);
    params.num_stop_strings = 1;
    params.stop_strings = stops;
    start(&f, &params, 100);
    sample_token(&f, A);
    f.group->sequences[0].finish = FINISH_ABORT;
    assert_int_equal(step_output_end(&f.output, &f.group->sequences[0]), 0);
    struct token_event event = next(&f);
    expect(&event, "a", FINISH_ABORT);
    assert_int_equal(event.num_tokens, 0);
    assert_int_equal(event.num_generated, 1);
    stop(&f);
}

static void check_embedding(enum pooling pooling, const float expected[3]) {
    struct fixture f;
    struct sampling_params params = fixture_params(0);
    params.pooling = pooling;
    start(&f, &params, 100);
    struct sequence *sequence = &f.group->sequences[0]; /* of 4 tokens */
    float sum[3] = {1, -6, 0.5f};
    assert_int_equal(step_output_embedding(&f.output, sequence, sum, 3), 0);
    assert_int_equal(sequence->finish, FINISH_STOP);
    assert_true(sequence->end_pushed);
    struct token_event event = next(&f);
    assert_int_equal(event.kind, TOKEN_EVENT_EMBEDDING);
    assert_int_equal(event.finish, FINISH_STOP);
    assert_int_equal(event.num_tokens, 0);
    assert_int_equal(event.num_dimensions, 3);
    assert_memory_equal(event.embedding, expected, 3 * sizeof(float));
    stop(&f);
}

static void test_embedding(void **state) {
    check_embedding(POOLING_MEAN, (const float[]){0.25f, -1.5f, 0.125f});
    check_embedding(POOLING_LAST, (const float[]){1, -6, 0.5f});
}

/* The text of the token that completes the grammar's is kept; what does not match is refused. */
static void test_a_complete_grammar_ends(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(2);
    struct grammar_vocabulary *vocabulary = fixture_vocabulary();
    uint32_t mask, scratch;
    params.grammar = fixture_grammar("ab");
    params.min_tokens = 2;
    start(&f, &params, 100);
    grammar_unref(params.grammar);
    struct sequence *sequence = &f.group->sequences[0];
    const struct sampling_position at = {.sequence = sequence, .position = sequence->num_tokens};
    int64_t budget = INT64_MAX;
    assert_int_equal(
        sampling_inputs_fill_mask(&at, fake_tokenizer(), vocabulary, &budget, &scratch, &mask),
        SAMPLING_MASK_FILLED);
    const struct sample_output wrong = {.token = B};
    const struct step_rows rows = {.requested = no_list, .outputs = &wrong, .count = 1};
    assert_int_equal(step_output_token(&f.output, sequence, &rows, 0), -1);
    struct token_event event = sample_token(&f, A);
    expect(&event, "a", FINISH_NONE);
    event = sample_token(&f, B);
    expect(&event, "b", FINISH_STOP); /* and not for its length */
    assert_int_equal(event.stop_token, -1);
    stop(&f);
    grammar_vocabulary_destroy(vocabulary);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_until_length),
        cmocka_unit_test(test_context_end),
        cmocka_unit_test(test_end_token),
        cmocka_unit_test(test_ignore_eos),
        cmocka_unit_test(test_stop_token),
        cmocka_unit_test(test_min_tokens_holds_back_ends),
        cmocka_unit_test(test_a_stop_string_beats_the_length),
        cmocka_unit_test(test_a_complete_grammar_ends),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_listed_tokens),
        cmocka_unit_test(test_scores_of_the_vocabulary),
        cmocka_unit_test(test_end_from_outside_releases_held_text),
        cmocka_unit_test(test_embedding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
