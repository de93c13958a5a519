/* Sampling from large vocabularies, which a GPU cuts into ranges the more of them the fewer rows
 * there are: for every setting the same bits in batches of any size, from a row alone to more rows
 * than multiprocessors, and the oracle's tokens. */
#include "config/base/numbers.h"
#include "kernels/recording.h"
#include "tests/kernels/sample_compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KINDS = 16, MAX_ROWS = 192, MAX_VOCAB = 131072 + 5, MAX_RANGES = 32 };

static struct kernel_fixture fixture;
static int32_t num_rows; /* more than multiprocessors: all together, each row has one range */
static const struct sample_compare compare = {&fixture, MAX_VOCAB};

/* Entry r % KINDS is what row r is sampled by, besides edits, target and reports. */
static const struct sampling_settings settings_of_kinds[KINDS] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = 1, .top_p = 1},
    {.temperature = 1, .top_p = 1, .top_k = 1},
    {.temperature = 0.7F, .top_p = 1, .top_k = 50},
    {.temperature = 1, .top_p = 1, .top_k = 5000},
    {.temperature = 1, .top_p = 0.9F},
    {.temperature = 1.5F, .top_p = 0.9999F},
    {.temperature = 1, .top_p = 0.95F, .top_k = 40},
    {.temperature = 3, .top_p = 0.5F, .top_k = 5000},
    {.temperature = 1, .top_p = 1, .min_p = 0.1F},
    {.temperature = 1, .top_p = 0.9F, .top_k = 100, .min_p = 0.01F},
    {.temperature = 1, .top_p = 0.8F, .top_k = 9},
    {.temperature = 1e6F, .top_p = 0.3F},
    {.temperature = 0, .top_p = 1},
    {.temperature = 1, .top_p = 1},
    {.temperature = 1, .top_p = 0.5F},
};

/* Of 3 counts and 3 biases. */
static struct sample_row row_of(int32_t r) {
    const int32_t kind = r % KINDS;
    struct sample_row row = sample_fixture_plain;
    row.position = (uint64_t)r;
    row.settings = settings_of_kinds[kind];
    row.settings.repetition_penalty = 1;
    if (kind == 10 || kind == 13) {
        row.num_counts = 3;
        row.settings.repetition_penalty = 1.3F;
        row.settings.frequency_penalty = 0.4F;
        row.settings.presence_penalty = 0.2F;
    }
    if (kind == 11 || kind == 13) {
        row.num_biases = 3;
        row.mask = SAMPLE_FIXTURE_HALF;
    }
    if (kind == 15)
        row.mask = r % (2 * KINDS) == kind ? SAMPLE_FIXTURE_NONE : SAMPLE_FIXTURE_WORDS;
    if (kind == 11 || kind >= 13)
        row.num_logprobs = r % (SAMPLE_MAX_LOGPROBS + 1);
    if (kind == 14)
        row.target = 17;
    return row;
}

/* In every other KINDS rows logits with many equals, so that the boundary bins hold more tokens
 * than are listed, or some of one logit. */
static void shape_logits(float *logits, int32_t vocab_size, int32_t r) {
    static const float steps[] = {1, 0.125F, 0.01F, 1.0F / 256};
    float step = steps[r % 4];
    for (int32_t i = 0; i < vocab_size; i++)
        logits[i] = r / KINDS % 2 ? roundf(logits[i] / step) * step : 3 * logits[i];
}

/* Tokens at which the first range ends, or a later one, are the most probable twice. */
static void plant_equal_best(float *logits, int32_t vocab_size, int32_t r) {
    if (r % 3 == 0)
        logits[vocab_size / 2] = logits[vocab_size - 1] = 40;
    if (r % 5 == 0)
        logits[vocab_size / 2 - 1] = logits[vocab_size - 2] = r % 2 ? INFINITY : NAN;
}

static void check_vocab(int32_t vocab_size, int32_t largest_batch, uint64_t seed) {
    const struct token_count counts[] = {{1, 2}, {501, 40}, {vocab_size - 1, 0}};
    const struct token_bias biases[] = {{0, -INFINITY}, {vocab_size / 2, -100}, {77, 9}};
    struct sample_row rows[MAX_ROWS];
    struct sample_output out[MAX_ROWS];
    uint32_t *masks = sample_fixture_masks(&seed, vocab_size);
    struct sample_call call = {.num_rows = num_rows,
                               .vocab_size = vocab_size,
                               .rows = rows,
                               .counts = counts,
                               .biases = biases,
                               .masks = masks};
    call.logits = kernel_fixture_random_floats(&seed, (size_t)call.num_rows * (size_t)vocab_size);
    for (int32_t r = 0; r < call.num_rows; r++) {
        float *logits = call.logits + (size_t)r * (size_t)vocab_size;
        rows[r] = row_of(r);
        shape_logits(logits, vocab_size, r);
        if (r % KINDS == 0 || r % KINDS == 13)
            plant_equal_best(logits, vocab_size, r);
    }
    assert_true(sample_compare_check(&compare, &call, out) <= call.num_rows / 16);
    for (int32_t batch = 1; batch <= largest_batch; batch += 1 + batch / 2)
        sample_compare_check_batches(&compare, &call, batch, out);
    free(call.logits);
    free(masks);
}

/* Too few tokens for two ranges, just enough, ranges that end at any place. */
static void test_vocabularies(void **state) {
    check_vocab(8191, 1, 1);
    check_vocab(8192, 2, 2);
    check_vocab(12289, 7, 3);
    check_vocab(36871, 4, 4);
}

/* A row alone is cut into as many ranges as there are multiprocessors, up to the most. */
static void test_largest_vocabulary(void **state) {
    check_vocab(MAX_VOCAB, 1, 5);
    if (fixture.dtype == DTYPE_F32)
        return;
    const char *simulated = getenv("QUIRE_CUDASIM_SMS");
    int32_t most = fixture.is_simulated ? 4 : MAX_RANGES; /* a GPU has more multiprocessors */
    if (fixture.is_simulated && simulated != NULL)
        most = min_int32(atoi(simulated), MAX_RANGES);
    assert_int_equal(fixture.backends[0]->paths.max_sample_ranges, most);
}

/* Every batch samples its rows in other ranges than the one before, which leaves nothing behind. */
static void test_random_rows(void **state) {
    enum { VOCAB = 24593, ROWS = 2 * KINDS, EDITS = 20 };
    uint64_t seed = 6;
    struct token_count counts[EDITS];
    struct token_bias biases[EDITS];
    struct sample_row rows[ROWS];
    struct sample_output out[ROWS];
    uint32_t *masks = sample_fixture_masks(&seed, VOCAB);
    struct sample_call call = {.num_rows = ROWS,
                               .vocab_size = VOCAB,
                               .logits = kernel_fixture_random_floats(&seed, ROWS * VOCAB),
                               .rows = rows,
                               .counts = counts,
                               .biases = biases,
                               .masks = masks};
    for (int32_t i = 0; i < EDITS; i++) {
        counts[i] = (struct token_count){i * 1200, i % 4};
        biases[i] = (struct token_bias){i * 1200, i % 3 ? -INFINITY : 5};
    }
    for (int32_t r = 0; r < ROWS; r++)
        rows[r] = sample_compare_random_row(&seed, VOCAB, EDITS);
    assert_true(sample_compare_check(&compare, &call, out) <= 1);
    for (int32_t batch = 1; batch < ROWS; batch *= 3)
        sample_compare_check_batches(&compare, &call, batch, out);
    free(call.logits);
    free(masks);
}

int main(int argc, char **argv) {
    num_rows = argc > 1 && strcmp(argv[1], "cuda") == 0 ? MAX_ROWS : 2 * KINDS;
    const struct backend_config config = {.limits.max_num_batched_tokens = 256,
                                          .limits.max_num_seqs = 192,
                                          .limits.max_model_len = 4,
                                          .limits.block_size = 1,
                                          .limits.max_logit_rows = num_rows,
                                          .limits.vocab_size = MAX_VOCAB,
                                          .head_dim = 64,
                                          .num_q_heads = 1,
                                          .num_kv_heads = 1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabularies),
        cmocka_unit_test(test_largest_vocabulary),
        cmocka_unit_test(test_random_rows),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
