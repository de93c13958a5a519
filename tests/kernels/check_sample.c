/* Sampling of the CPU backend: the oracle's tokens on every level and thread count, the
 * distribution of the draws, each filter and edit, and the report of log probabilities. */
#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/sample_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void run(struct backend *b, const struct sample_call *call, struct sample_output *out) {
    size_t n = (size_t)call->num_rows * (size_t)call->vocab_size;
    float *logits = kernel_fixture_guarded(n);
    memcpy(logits, call->logits, n * sizeof(float));
    sample_fixture_run(b, call, logits, out);
    kernel_fixture_guarded_free(logits);
}

static void assert_same_output(const struct sample_row *row, const struct sample_output *actual,
                               const struct sample_output *expected) {
    assert_int_equal(actual->token, expected->token);
    if (row->num_logprobs < 0)
        return;
    sample_fixture_assert_logprob(actual->logprob, expected->logprob);
    assert_int_equal(actual->rank, expected->rank);
    sample_fixture_assert_top(actual, expected);
}

/* Every backend gives what the oracle gives, and all of them the same bytes. */
static void check_call(const struct kernel_fixture *f, const struct sample_call *call) {
    size_t bytes = (size_t)call->num_rows * sizeof(struct sample_output);
    struct sample_output *expected = malloc(bytes), *first = malloc(bytes), *out = malloc(bytes);
    assert_true(expected && first && out);
    run(f->oracle, call, expected);
    for (int i = 0; i < f->num_backends; i++) {
        run(f->backends[i], call, i ? out : first);
        for (int32_t r = 0; r < call->num_rows; r++)
            assert_same_output(&call->rows[r], i ? &out[r] : &first[r], &expected[r]);
        if (i)
            assert_memory_equal(out, first, bytes);
    }
    free(out);
    free(first);
    free(expected);
}

/* A row of random parameters; its edits are a slice of the call's arrays. */
static struct sample_row random_row(uint64_t *seed, int32_t num_edits) {
    static const float temperatures[] = {0, 0.01f, 0.3f, 0.7f, 1, 1.5f, 3, 100};
    static const float top_ps[] = {1, 1, 1, 0.99f, 0.95f, 0.5f, 0.1f, 1e-6f};
    static const float min_ps[] = {0, 0, 0, 0, 1, 0.1f, 0.02f, 1e-5f};
    static const int32_t top_ks[] = {0, -1, 0, 1, 2, 40, 1000, 1 << 30};
    struct sample_row row = sample_fixture_plain;
    row.seed = kernel_fixture_random(seed);
    row.position = kernel_fixture_random(seed);
    row.settings.temperature = temperatures[kernel_fixture_random_in(seed, 0, 7)];
    row.settings.top_p = top_ps[kernel_fixture_random_in(seed, 0, 7)];
    row.settings.min_p = min_ps[kernel_fixture_random_in(seed, 0, 7)];
    row.settings.top_k = top_ks[kernel_fixture_random_in(seed, 0, 7)];
    row.num_logprobs = kernel_fixture_random_in(seed, -5, SAMPLE_MAX_LOGPROBS);
    if (row.num_logprobs < 0)
        row.num_logprobs = -1;
    if (kernel_fixture_random_in(seed, 0, 1)) {
        row.settings.repetition_penalty = kernel_fixture_random_in(seed, 0, 1) ? 1.3f : 1;
        row.settings.frequency_penalty = kernel_fixture_random_in(seed, 0, 1) ? 0.4f : 0;
        row.settings.presence_penalty = kernel_fixture_random_in(seed, 0, 1) ? -0.7f : 0;
        row.num_counts = kernel_fixture_random_in(seed, 0, num_edits);
        row.num_biases = kernel_fixture_random_in(seed, 0, num_edits);
        row.first_bias = num_edits - row.num_biases;
    }
    if (kernel_fixture_random_in(seed, 0, 2) == 0)
        row.mask = kernel_fixture_random_in(seed, 0, SAMPLE_FIXTURE_NUM_MASKS - 1);
    return row;
}

static void check_random_calls(const struct kernel_fixture *f, int32_t vocab_size, float spread,
                               int32_t num_rows, uint64_t seed) {
    enum { EDITS = 20 };
    int32_t num_edits = vocab_size < EDITS ? vocab_size : EDITS;
    struct token_count counts[EDITS];
    struct token_bias biases[EDITS];
    struct sample_row *rows = malloc((size_t)num_rows * sizeof(*rows));
    assert_non_null(rows);
    float *logits = kernel_fixture_random_floats(&seed, (size_t)num_rows * (size_t)vocab_size);
    for (int64_t i = 0; i < (int64_t)num_rows * vocab_size; i++)
        logits[i] *= spread;
    for (int32_t i = 0; i < num_edits; i++) {
        int32_t token = (int32_t)((int64_t)i * vocab_size / num_edits);
        counts[i] = (struct token_count){token, kernel_fixture_random_in(&seed, 0, 3)};
        biases[i] = (struct token_bias){token, i % 3 ? -INFINITY : 5 * spread};
    }
    for (int32_t r = 0; r < num_rows; r++) {
        rows[r] = random_row(&seed, num_edits);
        if (kernel_fixture_random_in(&seed, 0, 9) == 0)
            rows[r].target = kernel_fixture_random_in(&seed, 0, vocab_size - 1);
    }
    uint32_t *masks = sample_fixture_masks(&seed, vocab_size);
    check_call(f, &(struct sample_call){.num_rows = num_rows,
                                        .vocab_size = vocab_size,
                                        .logits = logits,
                                        .rows = rows,
                                        .counts = counts,
                                        .biases = biases,
                                        .masks = masks});
    free(masks);
    free(logits);
    free(rows);
}

static void test_random_rows_equal_oracle(void **state) {
    static const int32_t vocab_sizes[] = {1, 2, 15, 16, 17, 100, 1000, 4096, 4097, 10007};
    for (uint64_t i = 0; i < sizeof(vocab_sizes) / sizeof(vocab_sizes[0]); i++) {
        check_random_calls(*state, vocab_sizes[i], 1, 60, i);
        check_random_calls(*state, vocab_sizes[i], 4, 60, i + 100);
    }
    check_random_calls(*state, 49152, 3, 8, 7);
}

/* Many equal logits: the cut between equals goes by token id. */
static void test_ties(void **state) {
    enum { VOCAB = 500, ROWS = 64 };
    uint64_t seed = 3;
    float *logits = malloc(sizeof(float) * VOCAB * ROWS);
    assert_non_null(logits);
    for (int i = 0; i < VOCAB * ROWS; i++)
        logits[i] = (float)kernel_fixture_random_in(&seed, 0, i / VOCAB % 3);
    struct sample_row rows[ROWS];
    for (int r = 0; r < ROWS; r++) {
        rows[r] = sample_fixture_plain;
        rows[r].position = (uint64_t)r;
        rows[r].settings.top_k = r % 2 ? 7 : 0;
        rows[r].settings.top_p = r % 4 < 2 ? 0.3f : 1;
        rows[r].settings.temperature = r % 8 ? 1 : 0;
        rows[r].num_logprobs = r % 21;
    }
    check_call(*state, &(struct sample_call){
                           .num_rows = ROWS, .vocab_size = VOCAB, .logits = logits, .rows = rows});
    free(logits);
}

static void test_distribution(void **state) {
    enum { DRAWS = 20000 };
    const struct kernel_fixture *f = *state;
    struct backend *b = f->backends[f->num_backends - 1];
    float logits[SAMPLE_FIXTURE_VOCAB];
    int seen[SAMPLE_FIXTURE_VOCAB] = {0};
    sample_fixture_distribution_logits(logits);
    for (int draw = 0; draw < DRAWS; draw++) {
        struct sample_row row = sample_fixture_distribution_row((uint64_t)draw);
        struct sample_output out;
        run(b,
            &(struct sample_call){
                .num_rows = 1, .vocab_size = SAMPLE_FIXTURE_VOCAB, .logits = logits, .rows = &row},
            &out);
        seen[out.token]++;
    }
    sample_fixture_assert_distribution(seen, DRAWS);
}

/* The draw depends on (seed, position) only, and on both. */
static void test_draw_is_a_function_of_seed_and_position(void **state) {
    enum { VOCAB = 3000, ROWS = 50 };
    const struct kernel_fixture *f = *state;
    struct backend *b = f->backends[f->num_backends - 1];
    uint64_t seed = 9;
    float *one = kernel_fixture_random_floats(&seed, VOCAB);
    float *logits = malloc(sizeof(float) * VOCAB * ROWS);
    assert_non_null(logits);
    struct sample_row rows[ROWS];
    struct sample_output out[ROWS], single;
    for (int r = 0; r < ROWS; r++) {
        memcpy(logits + r * VOCAB, one, VOCAB * sizeof(float));
        rows[r] = sample_fixture_plain;
        rows[r].seed = r < 25 ? 5 : (uint64_t)r << 32;
        rows[r].position = r < 25 ? (uint64_t)r << 33 : 5;
    }
    run(b,
        &(struct sample_call){
            .num_rows = ROWS, .vocab_size = VOCAB, .logits = logits, .rows = rows},
        out);
    int num_repeats = 0;
    for (int r = 0; r < ROWS; r++) {
        run(b,
            &(struct sample_call){
                .num_rows = 1, .vocab_size = VOCAB, .logits = one, .rows = &rows[r]},
            &single);
        assert_int_equal(single.token, out[r].token);
        num_repeats += r > 0 && out[r].token == out[r - 1].token;
    }
    assert_true(num_repeats < 5);
    free(logits);
    free(one);
}

static void test_bans_and_odd_logits(void **state) {
    enum { VOCAB = 40, ROWS = 6 };
    float logits[ROWS][VOCAB];
    struct token_bias bans[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        bans[i] = (struct token_bias){i, -INFINITY};
        logits[0][i] = logits[1][i] = (float)(i % 7);
        logits[2][i] = NAN;
        logits[3][i] = i % 2 ? NAN : (float)i;
        logits[4][i] = i == 11 ? INFINITY : 1;
        logits[5][i] = i == 0 ? -1e30f : -INFINITY;
    }
    for (int variant = 0; variant < 4; variant++) {
        struct sample_row rows[ROWS];
        for (int r = 0; r < ROWS; r++) {
            rows[r] = sample_fixture_plain;
            rows[r].position = (uint64_t)(r + variant);
            rows[r].settings.temperature = variant ? 1 : 0;
            rows[r].settings.top_p = variant == 2 ? 0.9f : 1;
            rows[r].settings.min_p = variant == 3 ? 0.5f : 0;
            rows[r].num_logprobs = 5;
        }
        rows[0].num_biases = VOCAB - 1; /* all but the last */
        rows[1].num_biases = VOCAB;     /* all */
        struct sample_call call = {.num_rows = ROWS,
                                   .vocab_size = VOCAB,
                                   .logits = logits[0],
                                   .rows = rows,
                                   .biases = bans};
        check_call(*state, &call);
        struct sample_output out[ROWS];
        run(((struct kernel_fixture *)*state)->backends[0], &call, out);
        assert_int_equal(out[0].token, VOCAB - 1);
        assert_int_equal(out[1].token, 0);
        assert_int_equal(out[2].token, 0);
        assert_int_equal(out[3].token % 2, 0);
        assert_int_equal(out[4].token, 11);
        assert_int_equal(out[5].token, 0);
    }
}

/* Rows of one kind under each mask in turn. */
static void check_masked(const struct kernel_fixture *f, const struct sample_row *kind,
                         const struct token_count *counts) {
    enum { VOCAB = 1003, ROWS = SAMPLE_FIXTURE_NUM_MASKS };
    uint64_t seed = 17;
    float *one = kernel_fixture_random_floats(&seed, VOCAB);
    float logits[ROWS * VOCAB];
    struct sample_row rows[ROWS], plain = *kind;
    struct sample_output out[ROWS], unmasked;
    uint32_t *masks = sample_fixture_masks(&seed, VOCAB);
    for (int r = 0; r < ROWS; r++) {
        memcpy(logits + (ptrdiff_t)r * VOCAB, one, VOCAB * sizeof(float));
        rows[r] = *kind;
        rows[r].mask = r;
    }
    struct sample_call call = {.num_rows = ROWS,
                               .vocab_size = VOCAB,
                               .logits = logits,
                               .rows = rows,
                               .counts = counts,
                               .masks = masks};
    check_call(f, &call);
    run(f->backends[0], &call, out);
    call.num_rows = 1;
    call.rows = &plain;
    run(f->backends[0], &call, &unmasked);
    assert_memory_equal(&out[SAMPLE_FIXTURE_ALL], &unmasked, sizeof(unmasked));
    assert_int_equal(out[SAMPLE_FIXTURE_NONE].token, 0);
    assert_int_equal(out[SAMPLE_FIXTURE_ONE].token, VOCAB / 2);
    for (int r = SAMPLE_FIXTURE_FEW; r < ROWS; r++)
        assert_true(masks[r * SAMPLE_MASK_WORDS(VOCAB) + out[r].token / 32] >> out[r].token % 32 &
                    1);
    /* What is reported is about the raw logits. */
    for (int r = 0; r < ROWS && kind->num_logprobs > 0; r++)
        assert_memory_equal(out[r].top_logprobs, unmasked.top_logprobs,
                            sizeof(unmasked.top_logprobs));
    free(masks);
    free(one);
}

static void test_masks(void **state) {
    const struct token_count counts[] = {{1, 2}, {501, 40}, {777, 0}};
    struct sample_row row = sample_fixture_plain;
    check_masked(*state, &row, NULL);
    row.num_logprobs = 4;
    check_masked(*state, &row, NULL);
    row.settings.top_k = 9;
    row.settings.top_p = 0.8f;
    row.settings.min_p = 0.01f;
    row.num_counts = 3;
    row.settings.repetition_penalty = 1.5f;
    row.settings.frequency_penalty = 1;
    check_masked(*state, &row, counts);
    row.settings.temperature = 0;
    check_masked(*state, &row, counts);
    row.num_logprobs = -1;
    check_masked(*state, &row, counts);
}

/* Lists of any length, the whole vocabulary among them, of rows whose logits are edited or not:
 * what is told of a token that is also drawn or listed as probable is the same bits. */
static void test_listed_tokens(void **state) {
    enum { VOCAB = 1003, ROWS = 6, LISTED = 40 };
    const struct kernel_fixture *f = *state;
    uint64_t seed = 5;
    float *raw = kernel_fixture_random_floats(&seed, VOCAB * ROWS);
    const struct token_bias bias = {3, 50};
    struct sample_row rows[ROWS];
    struct sample_output out[ROWS];
    int32_t listed[VOCAB + LISTED];
    float *expected = calloc((size_t)ROWS * VOCAB, sizeof(float));
    float *first = calloc((size_t)ROWS * VOCAB, sizeof(float));
    float *told = calloc((size_t)ROWS * VOCAB, sizeof(float));
    assert_true(expected && first && told);
    for (int i = 0; i < VOCAB + LISTED; i++)
        listed[i] = i < VOCAB ? i : kernel_fixture_random_in(&seed, 0, VOCAB - 1);
    raw[7] = NAN;
    raw[8] = -INFINITY;
    for (int r = 0; r < ROWS; r++) {
        rows[r] = sample_fixture_plain;
        rows[r].position = (uint64_t)r;
        rows[r].num_logprobs = r % 3;
        rows[r].num_biases = r % 2;
        rows[r].target = r == 5 ? 17 : SAMPLE_NO_TARGET;
        rows[r].first_listed = r % 2 ? VOCAB : 0;
        rows[r].num_listed = r % 2 ? LISTED : VOCAB;
        rows[r].first_listed_logprob = (int64_t)(ROWS - 1 - r) * VOCAB;
    }
    rows[4].num_listed = 0;
    const struct sample_call call = {.num_rows = ROWS,
                                     .vocab_size = VOCAB,
                                     .logits = raw,
                                     .rows = rows,
                                     .biases = &bias,
                                     .listed = listed};
    for (int i = -1; i < f->num_backends; i++) {
        float *logits = kernel_fixture_guarded(VOCAB * ROWS);
        memcpy(logits, raw, sizeof(float) * VOCAB * ROWS);
        sample_fixture_run_listed(i < 0 ? f->oracle : f->backends[i], &call, logits, out,
                                  i < 0    ? expected
                                  : i == 0 ? first
                                           : told);
        kernel_fixture_guarded_free(logits);
        for (int n = 0; i == 0 && n < ROWS * VOCAB; n++)
            sample_fixture_assert_logprob(first[n], expected[n]);
        if (i > 0)
            assert_memory_equal(told, first, sizeof(float) * ROWS * VOCAB);
        const float *whole = (i < 0 ? expected : first) + rows[2].first_listed_logprob;
        assert_memory_equal(&whole[out[2].token], &out[2].logprob, sizeof(float));
        assert_memory_equal(&whole[out[2].top_tokens[1]], &out[2].top_logprobs[1], sizeof(float));
    }
    assert_true(expected[rows[0].first_listed_logprob + 7] == -INFINITY);
    assert_true(expected[rows[4].first_listed_logprob] == 0);
    free(raw);
    free(told);
    free(first);
    free(expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rows_equal_oracle),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_draw_is_a_function_of_seed_and_position),
        cmocka_unit_test(test_bans_and_odd_logits),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_listed_tokens),
    };
    return cmocka_run_group_tests(tests, kernel_fixture_setup, kernel_fixture_teardown);
}
