/* Sampling on a device against the oracle: tokens, log probabilities, ranks and lists, for every
 * combination of parameters; long lists of edits; the distribution of the draws. */
#include "tests/kernels/device_fixture.h"
#include "tests/kernels/sample_fixture.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ROWS = 64, MAX_VOCAB = 40009 };

static void *allocate(size_t n, size_t bytes) {
    void *memory = calloc(n, bytes);
    assert_non_null(memory);
    return memory;
}

static size_t num_logits(const struct sample_call *call) {
    return (size_t)call->num_rows * (size_t)call->vocab_size;
}

static void run_oracle(struct device_fixture *f, const struct sample_call *call,
                       struct sample_output *out) {
    float *logits = kernel_fixture_guarded(num_logits(call));
    memcpy(logits, call->logits, num_logits(call) * sizeof(float));
    sample_fixture_run(f->oracle, call, logits, out);
    kernel_fixture_guarded_free(logits);
}

static void run_device(struct device_fixture *f, const struct sample_call *call,
                       struct sample_output *out) {
    void *logits = device_fixture_put(f, DTYPE_F32, call->logits, num_logits(call));
    sample_fixture_run(f->device, call, logits, out);
    device_fixture_free(f, logits);
}

/* What is not asked for is left out, so that outputs can be compared as bytes. */
static void keep_meaningful(const struct sample_call *call, struct sample_output *outputs) {
    for (int32_t r = 0; r < call->num_rows; r++) {
        const struct sample_output full = outputs[r];
        memset(&outputs[r], 0, sizeof(full));
        outputs[r].token = full.token;
        if (call->rows[r].num_logprobs < 0)
            continue;
        outputs[r].logprob = full.logprob;
        outputs[r].rank = full.rank;
        outputs[r].num_top = full.num_top;
        for (int i = 0; i < full.num_top; i++) {
            outputs[r].top_tokens[i] = full.top_tokens[i];
            outputs[r].top_logprobs[i] = full.top_logprobs[i];
        }
    }
}

/* For device_fixture_run, which compares arrays of the device. */
struct compared {
    const struct sample_call *call;
    struct sample_output *out;
    void *device_out; /* struct sample_output [num_rows] */
};

static void run_compared(struct device_fixture *f, const void *args) {
    const struct compared *c = args;
    run_device(f, c->call, c->out);
    keep_meaningful(c->call, c->out);
    f->device->ops->upload(f->device, c->device_out, c->out,
                           (size_t)c->call->num_rows * sizeof(c->out[0]));
}

/* The same bits in every order of threads. */
static void run_in_all_orders(struct device_fixture *f, const struct sample_call *call,
                              struct sample_output *out) {
    size_t bytes = (size_t)call->num_rows * sizeof(*out);
    void *device_out = device_fixture_put(f, DTYPE_F32, NULL, bytes / sizeof(float));
    struct compared c = {call, out, device_out};
    device_fixture_run(f, run_compared, &c, device_out, bytes);
    device_fixture_free(f, device_out);
}

static struct sample_call one_row(const struct sample_call *call, int32_t r,
                                  struct sample_row *row) {
    struct sample_call one = *call;
    *row = call->rows[r];
    one.num_rows = 1;
    one.logits = call->logits + (size_t)r * (size_t)call->vocab_size;
    one.rows = row;
    return one;
}

/* Whether a small change of a parameter makes the oracle choose `token`: the device rounds its
 * weights otherwise, so a draw or a cut may fall on the other side of a limit it nearly hits. */
static bool is_nearly_chosen(struct device_fixture *f, const struct sample_call *call, int32_t r,
                             int32_t token) {
    for (int change = -3; change <= 3; change++) {
        struct sample_row row;
        struct sample_output out;
        struct sample_call one = one_row(call, r, &row);
        float factor = change < 0 ? 1 - 4e-6f : 1 + 4e-6f;
        row.num_logprobs = -1;
        row.settings.temperature *= abs(change) == 1 ? factor : 1;
        row.settings.top_p = fminf(row.settings.top_p * (abs(change) == 2 ? factor : 1), 1);
        row.settings.min_p = fminf(row.settings.min_p * (abs(change) == 3 ? factor : 1), 1);
        run_oracle(f, &one, &out);
        if (out.token == token)
            return true;
    }
    return false;
}

static void assert_same_report(const struct sample_row *row, const struct sample_output *actual,
                               const struct sample_output *expected) {
    if (actual->token == expected->token) {
        sample_fixture_assert_logprob(actual->logprob, expected->logprob);
        assert_int_equal(actual->rank, expected->rank);
    }
    sample_fixture_assert_top(actual, expected);
}

/* The device gives what the oracle gives; returns how many tokens are only nearly the oracle's. */
static int check_call(struct device_fixture *f, const struct sample_call *call,
                      struct sample_output *out) {
    struct sample_output *expected = allocate((size_t)call->num_rows, sizeof(*expected));
    int num_near = 0;
    run_oracle(f, call, expected);
    run_in_all_orders(f, call, out);
    for (int32_t r = 0; r < call->num_rows; r++) {
        if (out[r].token != expected[r].token) {
            if (!is_nearly_chosen(f, call, r, out[r].token))
                fail_msg("row %d: token %d, expected %d", r, out[r].token, expected[r].token);
            num_near++;
        }
        if (call->rows[r].num_logprobs >= 0)
            assert_same_report(&call->rows[r], &out[r], &expected[r]);
    }
    free(expected);
    return num_near;
}

/* Each row by itself gives the bits it gives in company. */
static void check_rows_alone(struct device_fixture *f, const struct sample_call *call,
                             struct sample_output *together) {
    for (int32_t r = 0; r < call->num_rows; r++) {
        struct sample_row row;
        struct sample_output alone;
        struct sample_call one = one_row(call, r, &row);
        run_device(f, &one, &alone);
        keep_meaningful(&one, &alone);
        assert_memory_equal(&alone, &together[r], sizeof(alone));
    }
}

#define PICK(seed, values)                                                                         \
    (values)[kernel_fixture_random_in(seed, 0, (int)(sizeof(values) / sizeof((values)[0])) - 1)]

/* A row of random parameters, bounds among them; its edits are a slice of the call's arrays. */
static struct sample_row random_row(uint64_t *seed, int32_t vocab_size, int32_t num_edits) {
    static const float temperatures[] = {0, 1e-40f, 0.01f, 0.3f, 0.7f, 1, 1, 1.5f, 3, 100, 1e6f};
    static const float top_ps[] = {1, 1, 1, 0.99f, 0.95f, 0.5f, 0.1f, 1e-6f, 1e-30f};
    static const float min_ps[] = {0, 0, 0, 0, 1, 0.1f, 0.02f, 1e-5f, 1e-30f};
    const int32_t top_ks[] = {0, -1, 0, 1, 2, 40, 1000, vocab_size - 1, vocab_size, 1 << 30};
    struct sample_row row = sample_fixture_plain;
    row.seed = kernel_fixture_random(seed);
    row.position = kernel_fixture_random(seed);
    row.settings.temperature = PICK(seed, temperatures);
    row.settings.top_p = PICK(seed, top_ps);
    row.settings.min_p = PICK(seed, min_ps);
    row.settings.top_k = PICK(seed, top_ks);
    row.num_logprobs = kernel_fixture_random_in(seed, -10, SAMPLE_MAX_LOGPROBS);
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
    if (kernel_fixture_random_in(seed, 0, 9) == 0)
        row.target = kernel_fixture_random_in(seed, 0, vocab_size - 1);
    if (kernel_fixture_random_in(seed, 0, 2) == 0)
        row.mask = kernel_fixture_random_in(seed, 0, SAMPLE_FIXTURE_NUM_MASKS - 1);
    return row;
}

/* Returns the number of near tokens. */
static int check_random_rows(struct device_fixture *f, int32_t vocab_size, float spread,
                             int32_t num_rows, uint64_t seed) {
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
        rows[r] = random_row(&seed, vocab_size, num_edits);
    uint32_t *masks = sample_fixture_masks(&seed, vocab_size);
    call.masks = masks;
    int num_near = check_call(f, &call, out);
    if (vocab_size <= 1000)
        check_rows_alone(f, &call, out);
    free(masks);
    free(call.logits);
    return num_near;
}

static void test_random_rows_equal_oracle(void **state) {
    static const int32_t vocab_sizes[] = {1, 2, 31, 257, 1000, 4099};
    int num_rows = 0, num_near = 0;
    for (uint64_t i = 0; i < sizeof(vocab_sizes) / sizeof(vocab_sizes[0]); i++, num_rows += 64) {
        num_near += check_random_rows(*state, vocab_sizes[i], 1, 32, i);
        num_near += check_random_rows(*state, vocab_sizes[i], 4, 32, i + 100);
    }
    num_near += check_random_rows(*state, MAX_VOCAB, 3, 16, 7);
    assert_true(num_near <= num_rows / 100);
}

/* Many equal logits: the cut between equals goes by token id. */
static void test_ties(void **state) {
    enum { VOCAB = 507, ROWS = 48 };
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
    assert_int_equal(check_call(*state, &call, out), 0);
    free(logits);
}

/* Lists that are longer than one piece of the upload, on rows with and without logprobs. */
static void test_long_edit_lists(void **state) {
    enum { VOCAB = 4099, ROWS = 5 };
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
    assert_int_equal(check_call(*state, &call, out), 0);
    free(call.logits);
}

static void test_distribution(void **state) {
    enum { CALLS = 32 };
    float logits[MAX_ROWS][SAMPLE_FIXTURE_VOCAB];
    int seen[SAMPLE_FIXTURE_VOCAB] = {0};
    for (int r = 0; r < MAX_ROWS; r++)
        sample_fixture_distribution_logits(logits[r]);
    for (int c = 0; c < CALLS; c++) {
        struct sample_row rows[MAX_ROWS];
        struct sample_output out[MAX_ROWS];
        for (int r = 0; r < MAX_ROWS; r++)
            rows[r] = sample_fixture_distribution_row((uint64_t)(c * MAX_ROWS + r));
        run_device(*state,
                   &(struct sample_call){.num_rows = MAX_ROWS,
                                         .vocab_size = SAMPLE_FIXTURE_VOCAB,
                                         .logits = logits[0],
                                         .rows = rows},
                   out);
        for (int r = 0; r < MAX_ROWS; r++)
            seen[out[r].token]++;
    }
    sample_fixture_assert_distribution(seen, CALLS * MAX_ROWS);
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
        assert_int_equal(check_call(*state, &call, out), 0);
        assert_int_equal(out[0].token, VOCAB - 1);
        assert_int_equal(out[1].token, 0);
        assert_int_equal(out[2].token, 0);
        assert_int_equal(out[3].token % 2, 0);
        assert_int_equal(out[4].token, 11);
        assert_int_equal(out[5].token, 0);
    }
}

/* Greedy and drawn, with a report and without, under each mask in turn; the numbers of the masks
 * begin beyond what the device has room for. */
static void test_masks(void **state) {
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
    assert_int_equal(check_call(*state, &call, out), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(out[4 * SAMPLE_FIXTURE_NONE + i].token, 0);
        assert_int_equal(out[4 * SAMPLE_FIXTURE_ONE + i].token, VOCAB / 2);
    }
    free(shifted);
    free(masks);
    free(logits);
}

/* Longer than one piece, of rows in any order, with a row between that lists none. */
static void test_listed_tokens(void **state) {
    enum { VOCAB = 4099, ROWS = 5 };
    struct device_fixture *f = *state;
    uint64_t seed = 31;
    struct token_bias bias = {3, 50};
    struct sample_row rows[ROWS];
    struct sample_output out[ROWS], plain[ROWS];
    int32_t listed[VOCAB];
    struct sample_call call = {.num_rows = ROWS,
                               .vocab_size = VOCAB,
                               .logits = kernel_fixture_random_floats(&seed, VOCAB * ROWS),
                               .rows = rows,
                               .biases = &bias,
                               .listed = listed};
    float *expected = allocate((size_t)ROWS * VOCAB, sizeof(float));
    float *told = allocate((size_t)ROWS * VOCAB, sizeof(float));
    for (int i = 0; i < VOCAB; i++)
        listed[i] = (int32_t)((int64_t)i * 7 % VOCAB);
    call.logits[5] = -INFINITY;
    for (int r = 0; r < ROWS; r++) {
        rows[r] = sample_fixture_plain;
        rows[r].num_logprobs = r == 3 ? -1 : r;
        rows[r].num_biases = r % 2;
        rows[r].first_listed = r == 2 ? 100 : 0;
        rows[r].num_listed = r == 2 ? 30 : VOCAB;
        rows[r].first_listed_logprob = (int64_t)(r < 2 ? r : ROWS + 1 - r) * VOCAB;
    }
    for (int i = 0; i < 2; i++) {
        float *copy = kernel_fixture_guarded(num_logits(&call));
        memcpy(copy, call.logits, num_logits(&call) * sizeof(float));
        void *logits = device_fixture_put(f, DTYPE_F32, call.logits, num_logits(&call));
        if (i == 0)
            sample_fixture_run_listed(f->oracle, &call, copy, plain, expected);
        else
            sample_fixture_run_listed(f->device, &call, logits, out, told);
        device_fixture_free(f, logits);
        kernel_fixture_guarded_free(copy);
    }
    for (int i = 0; i < ROWS * VOCAB; i++)
        sample_fixture_assert_logprob(told[i], expected[i]);
    const float *first = told + rows[4].first_listed_logprob;
    for (int i = 0; i < VOCAB; i++)
        if (listed[i] == out[4].token)
            assert_memory_equal(&first[i], &out[4].logprob, sizeof(float));
    free(told);
    free(expected);
    free(call.logits);
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.max_step_tokens = 16,
                                                 .max_step_seqs = 4,
                                                 .max_blocks_per_seq = 4,
                                                 .max_logit_rows = MAX_ROWS,
                                                 .vocab_size = MAX_VOCAB,
                                                 .head_dim = 64,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    struct device_fixture f;
    device_fixture_open(&f, argc, argv, &config);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_random_rows_equal_oracle, &f),
        cmocka_unit_test_prestate(test_ties, &f),
        cmocka_unit_test_prestate(test_long_edit_lists, &f),
        cmocka_unit_test_prestate(test_distribution, &f),
        cmocka_unit_test_prestate(test_bans_and_odd_logits, &f),
        cmocka_unit_test_prestate(test_masks, &f),
        cmocka_unit_test_prestate(test_listed_tokens, &f),
    };
    int num_failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_fixture_close(&f);
    return num_failed;
}
