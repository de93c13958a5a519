/* Sampling against the oracle: tokens, log probabilities, ranks and lists, for every combination of
 * parameters; each filter, edit and mask; the distribution of the sampled tokens. The CPU gives the
 * oracle's tokens, and the same bytes on every level and thread count. */
#include "tests/kernels/sample_compare.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ROWS = 64, MAX_VOCAB = 49152 };

static struct kernel_fixture fixture;
static const struct sample_compare compare = {&fixture, MAX_VOCAB};

static void *allocate(size_t n, size_t bytes) {
    void *memory = calloc(n, bytes);
    assert_non_null(memory);
    return memory;
}

static size_t num_logits(const struct sample_call *call) {
    return (size_t)call->num_rows * (size_t)call->vocab_size;
}

/* Returns the number of near tokens. */
static int check_random_rows(int32_t vocab_size, float spread, int32_t num_rows, uint64_t seed) {
    enum { EDITS = 20 };
    int32_t num_edits = vocab_size < EDITS ? vocab_size : EDITS;
    struct token_count counts[EDITS];
    struct token_bias biases[EDITS];
    struct sample_row rows[MAX_ROWS];
    struct sample_output out[MAX_ROWS];
    struct sample_call call = {.num_rows = num_rows,
                               .vocab_size = vocab_size,
                               .rows = rows,
                               .counts = counts,
                               .biases = biases};
    call.logits = kernel_fixture_random_floats(&seed, num_logits(&call));
    for (size_t i = 0; i < num_logits(&call); i++)
        call.logits[i] *= spread;
    for (int32_t i = 0; i < num_edits; i++) {
        int32_t token = (int32_t)((int64_t)i * vocab_size / num_edits);
        counts[i] = (struct token_count){token, kernel_fixture_random_in(&seed, 0, 3)};
        biases[i] = (struct token_bias){token, i % 3 ? -INFINITY : 5 * spread};
    }
    for (int32_t r = 0; r < num_rows; r++)
        rows[r] = sample_compare_random_row(&seed, vocab_size, num_edits);
    uint32_t *masks = sample_fixture_masks(&seed, vocab_size);
    call.masks = masks;
    int num_near = sample_compare_check(&compare, &call, out);
    if (vocab_size <= 1000)
        sample_compare_check_batches(&compare, &call, 1, out);
    free(masks);
    free(call.logits);
    return num_near;
}

static void test_random_rows_equal_oracle(void **state) {
    static const int32_t vocab_sizes[] = {1,  2,  31, 257, 1000, 4099, /* not simulated: */
                                          15, 16, 17, 100, 4096, 4097, 10007};
    uint64_t num_sizes = fixture.is_simulated ? 6 : 13;
    int32_t rows = fixture.is_simulated ? 32 : 60;
    int num_rows = 0, num_near = 0;
    for (uint64_t i = 0; i < num_sizes; i++) {
        num_near += check_random_rows(vocab_sizes[i], 1, rows, i);
        num_near += check_random_rows(vocab_sizes[i], 4, rows, i + 100);
        num_rows += 2 * rows;
    }
    num_near += check_random_rows(40009, 3, 16, 7);
    if (!fixture.is_simulated)
        num_near += check_random_rows(MAX_VOCAB, 3, 8, 7);
    assert_true(num_near <= num_rows / 100);
}

/* Many equal logits: the cut between equals goes by token id. */
static void test_ties(void **state) {
    enum { VOCAB = 507, ROWS = MAX_ROWS };
    uint64_t seed = 3;
    struct sample_row rows[ROWS];
    struct sample_output out[ROWS];
    float *logits = allocate(VOCAB * ROWS, sizeof(float));
    for (int i = 0; i < VOCAB * ROWS; i++) {
        logits[i] = (float)kernel_fixture_random_in(&seed, 0, i / VOCAB % 3) - 1;
        if (logits[i] == 0 && i % 2)
            logits[i] = -0.0f;
    }
    for (int r = 0; r < ROWS; r++) {
        rows[r] = sample_fixture_plain;
        rows[r].position = (uint64_t)r;
        rows[r].settings.top_k = r % 2 ? 7 + r : 0;
        rows[r].settings.top_p = r % 4 < 2 ? 0.3f : 1;
        rows[r].settings.temperature = r % 8 ? 1 : 0;
        rows[r].num_logprobs = r % 21;
    }
    struct sample_call call = {
        .num_rows = ROWS, .vocab_size = VOCAB, .logits = logits, .rows = rows};
    assert_int_equal(sample_compare_check(&compare, &call, out), 0);
    free(logits);
}

/* Lists that a device is given in several chunks, on rows with and without logprobs. */
static void test_long_edit_lists(void **state) {
    enum { VOCAB = 4099, ROWS = 9 };
    uint64_t seed = 11;
    struct token_count counts[VOCAB];
    struct token_bias biases[VOCAB];
    struct sample_row rows[ROWS];
    struct sample_output out[ROWS];
    struct sample_call call = {.num_rows = ROWS,
                               .vocab_size = VOCAB,
                               .logits = kernel_fixture_random_floats(&seed, VOCAB * ROWS),
                               .rows = rows,
                               .counts = counts,
                               .biases = biases};
    for (int i = 0; i < VOCAB; i++) {
        counts[i] = (struct token_count){i, kernel_fixture_random_in(&seed, 0, 5)};
        biases[i] = (struct token_bias){i, (float)kernel_fixture_random_in(&seed, -100, 100)};
    }
    for (int r = 0; r < ROWS; r++) {
        rows[r] = sample_fixture_plain;
        rows[r].position = (uint64_t)r;
        rows[r].settings.temperature = r == 4 ? 0 : 2;
        rows[r].num_logprobs = r % 2 ? 20 : -1;
        rows[r].num_counts = rows[r].num_biases = VOCAB;
        rows[r].settings.repetition_penalty = 1.1f;
        rows[r].settings.frequency_penalty = r == 2 ? 1e38f : 0.3f;
        rows[r].settings.presence_penalty = r == 3 ? -2 : 0.2f;
    }
    assert_int_equal(sample_compare_check(&compare, &call, out), 0);
    free(call.logits);
}

static void test_distribution(void **state) {
    int num_calls = fixture.is_simulated ? 32 : 20000 / MAX_ROWS;
    float logits[MAX_ROWS][SAMPLE_FIXTURE_VOCAB];
    int seen[SAMPLE_FIXTURE_VOCAB] = {0};
    for (int r = 0; r < MAX_ROWS; r++)
        sample_fixture_distribution_logits(logits[r]);
    for (int c = 0; c < num_calls; c++) {
        struct sample_row rows[MAX_ROWS];
        struct sample_output out[MAX_ROWS];
        for (int r = 0; r < MAX_ROWS; r++)
            rows[r] = sample_fixture_distribution_row((uint64_t)(c * MAX_ROWS + r));
        sample_compare_run(&compare, fixture.backends[fixture.num_backends - 1],
                           &(struct sample_call){.num_rows = MAX_ROWS,
                                                 .vocab_size = SAMPLE_FIXTURE_VOCAB,
                                                 .logits = logits[0],
                                                 .rows = rows},
                           out);
        for (int r = 0; r < MAX_ROWS; r++)
            seen[out[r].token]++;
    }
    sample_fixture_assert_distribution(seen, num_calls * MAX_ROWS);
}

/* The token depends on (seed, position) only, and on both. */
static void test_token_is_a_function_of_seed_and_position(void **state) {
    enum { VOCAB = 3000, ROWS = 50 };
    struct backend *b = fixture.backends[fixture.num_backends - 1];
    uint64_t seed = 9;
    float *one = kernel_fixture_random_floats(&seed, VOCAB);
    float *logits = allocate(VOCAB * ROWS, sizeof(float));
    struct sample_row rows[ROWS];
    struct sample_output out[ROWS], single;
    for (int r = 0; r < ROWS; r++) {
        memcpy(logits + r * VOCAB, one, VOCAB * sizeof(float));
        rows[r] = sample_fixture_plain;
        rows[r].seed = r < 25 ? 5 : (uint64_t)r << 32;
        rows[r].position = r < 25 ? (uint64_t)r << 33 : 5;
    }
    sample_compare_run(&compare, b,
                       &(struct sample_call){
                           .num_rows = ROWS, .vocab_size = VOCAB, .logits = logits, .rows = rows},
                       out);
    int num_repeats = 0;
    for (int r = 0; r < ROWS; r++) {
        sample_compare_run(&compare, b,
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
    enum { VOCAB = 41, ROWS = 9 };
    float logits[ROWS][VOCAB];
    struct token_bias bans[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        bans[i] = (struct token_bias){i, -INFINITY};
        logits[0][i] = logits[1][i] = (float)(i % 7);
        logits[2][i] = NAN;
        logits[3][i] = i % 2 ? NAN : (float)i;
        logits[4][i] = i == 11 ? INFINITY : 1;
        logits[5][i] = i == 0 ? -1e30f : -INFINITY;
        logits[6][i] = i % 3 ? -FLT_MAX : FLT_MAX;
        logits[7][i] = (float)i * 1e-42f;
        logits[8][i] = i == 5 || i == 9 ? INFINITY : -INFINITY;
    }
    for (int variant = 0; variant < 6; variant++) {
        struct sample_row rows[ROWS];
        struct sample_output out[ROWS];
        for (int r = 0; r < ROWS; r++) {
            rows[r] = sample_fixture_plain;
            rows[r].position = (uint64_t)(r + variant);
            rows[r].settings.temperature = variant ? 1 : 0;
            rows[r].settings.top_p = variant == 2 ? 0.9f : 1;
            rows[r].settings.min_p = variant == 3 ? 0.5f : 0;
            rows[r].settings.top_k = variant == 4 ? 3 : 0;
            rows[r].num_logprobs = variant == 5 ? 20 : 5;
        }
        rows[0].num_biases = VOCAB - 1; /* all but the last */
        rows[1].num_biases = VOCAB;     /* all */
        struct sample_call call = {.num_rows = ROWS,
                                   .vocab_size = VOCAB,
                                   .logits = logits[0],
                                   .rows = rows,
                                   .biases = bans};
        assert_int_equal(sample_compare_check(&compare, &call, out), 0);
        assert_int_equal(out[0].token, VOCAB - 1);
        assert_int_equal(out[1].token, 0);
        assert_int_equal(out[2].token, 0);
        assert_int_equal(out[3].token % 2, 0);
        assert_int_equal(out[4].token, 11);
        assert_int_equal(out[5].token, 0);
    }
}

/* Rows of one kind under each mask in turn. */
static void check_masked(const struct sample_row *kind, const struct token_count *counts) {
    enum { VOCAB = 1003, ROWS = SAMPLE_FIXTURE_NUM_MASKS };
    uint64_t seed = 17;
    float *one = kernel_fixture_random_floats(&seed, VOCAB);
    float logits[ROWS * VOCAB];
    struct sample_row rows[ROWS], plain = *kind;
    struct sample_output out[ROWS], unmasked = {0};
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
    assert_int_equal(sample_compare_check(&compare, &call, out), 0);
    call.num_rows = 1;
    call.rows = &plain;
    sample_compare_run(&compare, fixture.backends[0], &call, &unmasked);
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
    check_masked(&row, NULL);
    row.num_logprobs = 4;
    check_masked(&row, NULL);
    row.settings.top_k = 9;
    row.settings.top_p = 0.8f;
    row.settings.min_p = 0.01f;
    row.num_counts = 3;
    row.settings.repetition_penalty = 1.5f;
    row.settings.frequency_penalty = 1;
    check_masked(&row, counts);
    row.settings.temperature = 0;
    check_masked(&row, counts);
    row.num_logprobs = -1;
    check_masked(&row, counts);
}

/* Greedy and sampled, with a report and without, under each mask in turn; the numbers of the masks
 * begin beyond what a device has room for. */
static void test_masks_of_large_numbers(void **state) {
    enum { VOCAB = 1003, MASKS = SAMPLE_FIXTURE_NUM_MASKS, ROWS = 4 * MASKS };
    uint64_t seed = 23;
    float *logits = kernel_fixture_random_floats(&seed, VOCAB * ROWS);
    uint32_t *masks = sample_fixture_masks(&seed, VOCAB);
    uint32_t *shifted = allocate((MAX_ROWS + MASKS) * SAMPLE_MASK_WORDS(VOCAB), sizeof(*shifted));
    memcpy(shifted + (ptrdiff_t)MAX_ROWS * SAMPLE_MASK_WORDS(VOCAB), masks,
           sizeof(*masks) * MASKS * SAMPLE_MASK_WORDS(VOCAB));
    struct sample_row rows[ROWS];
    struct sample_output out[ROWS];
    for (int r = 0; r < ROWS; r++) {
        rows[r] = sample_fixture_plain;
        rows[r].position = (uint64_t)r;
        rows[r].settings.temperature = r % 2 ? 0 : 1;
        rows[r].num_logprobs = r % 4 < 2 ? -1 : 3;
        rows[r].mask = MAX_ROWS + r / 4;
    }
    struct sample_call call = {
        .num_rows = ROWS, .vocab_size = VOCAB, .logits = logits, .rows = rows, .masks = shifted};
    assert_int_equal(sample_compare_check(&compare, &call, out), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(out[4 * SAMPLE_FIXTURE_NONE + i].token, 0);
        assert_int_equal(out[4 * SAMPLE_FIXTURE_ONE + i].token, VOCAB / 2);
    }
    free(shifted);
    free(masks);
    free(logits);
}

/* What is reported of a listed token that is also sampled or among the most probable is the same
 * bits. */
static void assert_listed(const struct sample_call *call, const struct sample_output *out,
                          const float *logprobs) {
    for (int32_t r = 0; r < call->num_rows; r++) {
        const struct sample_row *row = &call->rows[r];
        for (int32_t i = 0; i < row->num_listed && row->num_logprobs >= 0; i++) {
            int32_t token = call->listed[row->first_listed + i];
            const float *logprob = &logprobs[row->first_listed_logprob + i];
            if (token == out[r].token)
                assert_memory_equal(logprob, &out[r].logprob, sizeof(float));
            for (int t = 0; t < out[r].num_top; t++)
                if (token == out[r].top_tokens[t])
                    assert_memory_equal(logprob, &out[r].top_logprobs[t], sizeof(float));
        }
    }
}

/* Every row has its range of vocab_size logprobs. Returns the oracle's; free(). */
static float *check_listed(const struct sample_call *call) {
    size_t n = (size_t)call->num_rows * (size_t)call->vocab_size;
    struct sample_output *out = allocate((size_t)call->num_rows, sizeof(*out));
    float *expected = allocate(n, sizeof(float)), *first = allocate(n, sizeof(float));
    float *other = allocate(n, sizeof(float));
    sample_compare_run_listed(&compare, fixture.oracle, call, out, expected);
    assert_listed(call, out, expected);
    for (int i = 0; i < fixture.num_backends; i++) {
        float *actual = i == 0 ? first : other;
        sample_compare_run_listed(&compare, fixture.backends[i], call, out, actual);
        for (size_t k = 0; k < n; k++)
            sample_fixture_assert_logprob(actual[k], expected[k]);
        assert_listed(call, out, actual);
        assert_memory_equal(actual, first, n * sizeof(float));
    }
    free(other);
    free(first);
    free(out);
    return expected;
}

/* Lists of any length, the whole vocabulary among them, of rows whose logits are edited or not. */
static void test_listed_tokens(void **state) {
    enum { VOCAB = 1003, ROWS = 6, LISTED = 40 };
    uint64_t seed = 5;
    float *raw = kernel_fixture_random_floats(&seed, VOCAB * ROWS);
    const struct token_bias bias = {3, 50};
    struct sample_row rows[ROWS];
    int32_t listed[VOCAB + LISTED];
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
    float *expected = check_listed(&(struct sample_call){.num_rows = ROWS,
                                                         .vocab_size = VOCAB,
                                                         .logits = raw,
                                                         .rows = rows,
                                                         .biases = &bias,
                                                         .listed = listed});
    assert_true(expected[rows[0].first_listed_logprob + 7] == -INFINITY);
    assert_true(expected[rows[4].first_listed_logprob] == 0);
    free(expected);
    free(raw);
}

/* Longer than one chunk of a device's, of rows in any order, with rows that report nothing. */
static void test_long_lists(void **state) {
    enum { VOCAB = 4099, ROWS = 5 };
    uint64_t seed = 31;
    struct token_bias bias = {3, 50};
    struct sample_row rows[ROWS];
    int32_t listed[VOCAB];
    float *logits = kernel_fixture_random_floats(&seed, VOCAB * ROWS);
    for (int i = 0; i < VOCAB; i++)
        listed[i] = (int32_t)((int64_t)i * 7 % VOCAB);
    logits[5] = -INFINITY;
    for (int r = 0; r < ROWS; r++) {
        rows[r] = sample_fixture_plain;
        rows[r].num_logprobs = r == 3 ? -1 : r;
        rows[r].num_biases = r % 2;
        rows[r].first_listed = r == 2 ? 100 : 0;
        rows[r].num_listed = r == 2 ? 30 : VOCAB;
        rows[r].first_listed_logprob = (int64_t)(r < 2 ? r : ROWS + 1 - r) * VOCAB;
    }
    free(check_listed(&(struct sample_call){.num_rows = ROWS,
                                            .vocab_size = VOCAB,
                                            .logits = logits,
                                            .rows = rows,
                                            .biases = &bias,
                                            .listed = listed}));
    free(logits);
}

static int by_falling_logprob(const void *left, const void *right) {
    const struct top_logprob *a = left, *b = right;
    if (a->logprob != b->logprob)
        return a->logprob < b->logprob ? 1 : -1;
    return a->token < b->token ? -1 : a->token > b->token;
}

/* What a row's list says when it is sorted whole. */
static void sort_list(const float *logprobs, int32_t n, struct top_logprob *out) {
    for (int32_t i = 0; i < n; i++)
        out[i] = (struct top_logprob){i, logprobs[i]};
    qsort(out, (size_t)n, sizeof(*out), by_falling_logprob);
}

/* Logits of one row that rise, fall, are few, equal, or have none and infinite ones among them. */
static void fill_ranked(uint64_t *seed, int kind, int32_t n, float *logits) {
    for (int32_t i = 0; i < n; i++) {
        float random = (float)kernel_fixture_random_in(seed, -4000, 4000) / 1000;
        float by_kind[] = {random,
                           (float)i / 100,
                           (float)-i / 100,
                           floorf(4 * random),
                           0.5F,
                           i % 3 == 0   ? NAN
                           : i % 3 == 1 ? -INFINITY
                                        : random,
                           i % 200 == 7 ? INFINITY : random};
        logits[i] = by_kind[kind];
    }
}

/* The likeliest tokens are those of a whole sort, bit for bit, or the list is left as it is. */
static void test_ranked_lists(void **state) {
    enum { VOCAB = 1003, KINDS = 7, ROWS = 4 * KINDS };
    static const int32_t counts[] = {1, 25, 200, VOCAB / 2};
    const struct token_bias bias = {3, 50};
    uint64_t seed = 91;
    float *logits = allocate((size_t)VOCAB * ROWS, sizeof(float));
    float *lists = allocate((size_t)VOCAB * ROWS, sizeof(float));
    float *ranked = allocate((size_t)VOCAB * ROWS, sizeof(float));
    struct sample_row rows[ROWS], plain[ROWS];
    struct sample_output out[ROWS];
    struct top_logprob expected[VOCAB];
    int32_t listed[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        listed[i] = i;
    for (int r = 0; r < ROWS; r++) {
        fill_ranked(&seed, r % KINDS, VOCAB, logits + (ptrdiff_t)r * VOCAB);
        plain[r] = sample_fixture_plain;
        plain[r].num_logprobs = 0;
        plain[r].num_biases = r % 2;
        plain[r].num_listed = VOCAB;
        plain[r].first_listed_logprob = (int64_t)r * VOCAB;
        rows[r] = plain[r];
        rows[r].num_ranked = counts[r / KINDS];
    }
    struct sample_call call = {.num_rows = ROWS,
                               .vocab_size = VOCAB,
                               .logits = logits,
                               .rows = plain,
                               .biases = &bias,
                               .listed = listed};
    for (int i = 0; i < fixture.num_backends; i++) {
        call.rows = plain;
        sample_compare_run_listed(&compare, fixture.backends[i], &call, out, lists);
        call.rows = rows;
        sample_compare_run_listed(&compare, fixture.backends[i], &call, out, ranked);
        for (int r = 0; r < ROWS; r++) {
            float *list = lists + (ptrdiff_t)r * VOCAB, *own = ranked + (ptrdiff_t)r * VOCAB;
            int32_t count = rows[r].num_ranked;
            if (out[r].num_top != count) {
                assert_int_equal(out[r].num_top, 0);
                assert_memory_equal(own, list, VOCAB * sizeof(float));
                continue;
            }
            sort_list(list, VOCAB, expected);
            assert_memory_equal(own, expected, (size_t)count * sizeof(expected[0]));
        }
    }
    free(ranked);
    free(lists);
    free(logits);
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = 256,
                                                 .limits.max_num_seqs = 64,
                                                 .limits.max_model_len = 4,
                                                 .limits.block_size = 1,
                                                 .limits.max_logit_rows = MAX_ROWS,
                                                 .limits.vocab_size = MAX_VOCAB,
                                                 .head_dim = 64,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rows_equal_oracle),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_long_edit_lists),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_token_is_a_function_of_seed_and_position),
        cmocka_unit_test(test_bans_and_odd_logits),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_masks_of_large_numbers),
        cmocka_unit_test(test_listed_tokens),
        cmocka_unit_test(test_ranked_lists),
        cmocka_unit_test(test_long_lists),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
