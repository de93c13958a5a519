/* llama.cpp's steps of sampling: on a distribution that is known, what each keeps and how often it
 * draws it; and thousands of rows with all of them mixed, against the oracle. */
#include "tests/kernels/sample_compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 5, MAX_ROWS = 64, MAX_VOCAB = 4099 };

static struct kernel_fixture fixture;
static const struct sample_compare compare = {&fixture, MAX_VOCAB};

/* Entropy 1.3923; distances of -log(p) from it .476, .188, .505, .910, 1.603. */
static const double known[TOKENS] = {0.4, 0.3, 0.15, 0.1, 0.05};

/* Draws `num_rows` times 64 tokens of the settings; counts them. */
static void draw(struct backend *b, const struct sample_row *row, int num_calls, int seen[TOKENS]) {
    float logits[MAX_ROWS][TOKENS];
    struct sample_row rows[MAX_ROWS];
    struct sample_output out[MAX_ROWS];
    memset(seen, 0, TOKENS * sizeof(*seen));
    for (int r = 0; r < MAX_ROWS; r++)
        for (int i = 0; i < TOKENS; i++)
            logits[r][i] = (float)log(known[i]);
    for (int c = 0; c < num_calls; c++) {
        for (int r = 0; r < MAX_ROWS; r++) {
            rows[r] = *row;
            rows[r].position = (uint64_t)(c * MAX_ROWS + r);
        }
        sample_compare_run(
            &compare, b,
            &(struct sample_call){
                .num_rows = MAX_ROWS, .vocab_size = TOKENS, .logits = logits[0], .rows = rows},
            out);
        for (int r = 0; r < MAX_ROWS; r++)
            seen[out[r].token]++;
    }
}

/* Chi-square against the expected weights, at the 99.9 % point; a weight of 0 is never drawn. */
static void expect_weights(struct backend *b, const struct sample_row *row,
                           const double weights[TOKENS]) {
    static const double points[TOKENS] = {0, 10.83, 13.82, 16.27, 18.47};
    int num_calls = fixture.is_simulated ? 4 : 40, num_kept = 0, seen[TOKENS];
    double total = 0, chi_square = 0;
    draw(b, row, num_calls, seen);
    for (int i = 0; i < TOKENS; i++) {
        total += weights[i];
        num_kept += weights[i] > 0;
    }
    for (int i = 0; i < TOKENS; i++) {
        double expected = num_calls * MAX_ROWS * weights[i] / total;
        if (weights[i] == 0)
            assert_int_equal(seen[i], 0);
        else
            chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    assert_true(num_kept == 1 || chi_square < points[num_kept - 1]);
}

/* The first tokens whose bit is set, with their own weights. */
static void expect_kept(const struct sample_row *row, unsigned kept) {
    double weights[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        weights[i] = kept >> i & 1 ? known[i] : 0;
    expect_weights(fixture.oracle, row, weights);
    for (int i = 0; i < fixture.num_backends; i++)
        expect_weights(fixture.backends[i], row, weights);
}

static void test_typical(void **state) {
    struct sample_row row = sample_fixture_plain;
    row.settings.typical_p = 0.25f;
    expect_kept(&row, 0x2);
    row.settings.typical_p = 0.5f;
    expect_kept(&row, 0x3);
    row.settings.typical_p = 0.75f;
    expect_kept(&row, 0x7);
    row.settings.typical_p = 1;
    expect_kept(&row, 0x1f);
}

static void test_xtc(void **state) {
    struct sample_row row = sample_fixture_plain;
    row.settings.xtc_probability = 1;
    row.settings.xtc_threshold = 0.12f; /* three have it */
    expect_kept(&row, 0x1c);
    row.settings.xtc_threshold = 0.35f; /* one alone stays */
    expect_kept(&row, 0x1f);
    row.settings.xtc_threshold = 0.51f;
    expect_kept(&row, 0x1f);
    row.settings.xtc_threshold = 0.12f;
    row.settings.xtc_probability = 0.5f;
    double half[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        half[i] = 0.5 * known[i] + (i < 2 ? 0 : 0.5 * known[i] / 0.3);
    for (int i = 0; i < fixture.num_backends; i++)
        expect_weights(fixture.backends[i], &row, half);
}

/* The logits' standard deviation is .7494. */
static void test_top_n_sigma(void **state) {
    struct sample_row row = sample_fixture_plain;
    row.settings.top_n_sigma = 1.5f; /* up to 1.124 below the largest */
    expect_kept(&row, 0x7);
    row.settings.temperature = 0.1f;
    row.settings.top_n_sigma = 0.3f; /* whatever the temperature: the next is .288 below */
    expect_kept(&row, 0x1);
    row.settings.temperature = 1;
    row.settings.top_n_sigma = 1e-6f;
    expect_kept(&row, 0x1);
    row.settings.top_n_sigma = -1;
    expect_kept(&row, 0x1f);
}

/* The entropy is .8651 of the log of 5. */
static void test_dynamic_temperature(void **state) {
    struct sample_row row = sample_fixture_plain;
    row.settings.dynatemp_range = 0.5f;
    for (int power = 0; power < 4; power++) {
        double weights[TOKENS], temperature = 0.5 + pow(0.86509, power);
        row.settings.dynatemp_exponent = (float)power;
        for (int i = 0; i < TOKENS; i++)
            weights[i] = pow(known[i], 1 / temperature);
        for (int i = 0; i < fixture.num_backends; i++)
            expect_weights(fixture.backends[i], &row, weights);
    }
    row.settings.dynatemp_range = 0;
    expect_kept(&row, 0x1f);
}

static void expect_next_mu(const struct sample_row *row, int token, double surprise) {
    float logits[TOKENS];
    double mu = row->mirostat_mu - 0.1 * (surprise - 5);
    for (int i = 0; i < TOKENS; i++)
        logits[i] = (float)log(known[i]);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct sample_row one = *row;
        struct sample_output out;
        const struct sample_call call = {
            .num_rows = 1, .vocab_size = TOKENS, .logits = logits, .rows = &one};
        do {
            one.position++;
            sample_compare_run(&compare, fixture.backends[i], &call, &out);
        } while (out.token != token);
        assert_float_equal(out.mirostat_mu, mu, 1e-5);
    }
}

static void test_mirostat(void **state) {
    struct sample_row row = sample_fixture_plain;
    row.settings.mirostat_tau = 5;
    row.settings.mirostat_eta = 0.1f;
    row.settings.top_k = 1; /* has no say */
    row.settings.mirostat = 2;
    row.mirostat_mu = 2; /* a quarter and more */
    expect_kept(&row, 0x3);
    expect_next_mu(&row, 0, log2(0.7 / 0.4));
    expect_next_mu(&row, 1, log2(0.7 / 0.3));
    row.mirostat_mu = -1; /* the likeliest in any case */
    expect_kept(&row, 0x1);
    expect_next_mu(&row, 0, 0);
    row.mirostat_mu = 10;
    expect_kept(&row, 0x1f);
    /* Zipf's exponent is .9671, so that k is (.605 * 2^mu)^(1 / .9671). */
    row.settings.mirostat = 1;
    row.mirostat_mu = 2; /* 2.49 */
    expect_kept(&row, 0x3);
    expect_next_mu(&row, 0, log2(0.7 / 0.4));
    row.mirostat_mu = 2.6f; /* 3.83 */
    expect_kept(&row, 0x7);
    row.mirostat_mu = 10;
    expect_kept(&row, 0x1f);
    row.mirostat_mu = -10;
    expect_kept(&row, 0x1);
}

/* Temperature 0 is greedy whatever else is given. */
static void test_greedy(void **state) {
    struct sample_row row = sample_fixture_plain;
    row.settings = (struct sampling_settings)SAMPLING_SETTINGS_ALL_STEPS;
    row.settings.temperature = 0;
    expect_kept(&row, 0x1);
}

/* Returns the number of near tokens. */
static int check_mixed_rows(int32_t vocab_size, int num_calls, float spread) {
    uint64_t seed = (uint64_t)vocab_size;
    struct sample_row rows[MAX_ROWS];
    struct sample_output out[MAX_ROWS];
    int num_near = 0;
    for (int c = 0; c < num_calls; c++) {
        size_t n = (size_t)MAX_ROWS * (size_t)vocab_size;
        struct sample_call call = {.num_rows = MAX_ROWS,
                                   .vocab_size = vocab_size,
                                   .logits = kernel_fixture_random_floats(&seed, n),
                                   .rows = rows};
        for (size_t i = 0; i < n; i++)
            call.logits[i] *= spread;
        uint32_t *masks = sample_fixture_masks(&seed, vocab_size);
        call.masks = masks;
        for (int r = 0; r < MAX_ROWS; r++) {
            do
                rows[r] = sample_compare_random_row(&seed, vocab_size, 0);
            while (!sample_compare_has_steps(&rows[r]));
            rows[r].target = SAMPLE_NO_TARGET;
        }
        num_near += sample_compare_check(&compare, &call, out);
        if (c == 0)
            sample_compare_check_batches(&compare, &call, 7, out);
        free(masks);
        free(call.logits);
    }
    return num_near;
}

static void test_mixed_rows_equal_oracle(void **state) {
    int num_calls = fixture.is_simulated ? 2 : 40, num_large = fixture.is_simulated ? 1 : 10;
    int num_rows = MAX_ROWS * (3 * num_calls + num_large), num_near = 0;
    for (int i = 0; i < 3; i++) {
        static const float spreads[] = {1, 4, 12};
        num_near += check_mixed_rows(257 + i, num_calls, spreads[i]);
    }
    num_near += check_mixed_rows(4099, num_large, 3);
    assert_true(num_near <= num_rows / 100);
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
        cmocka_unit_test(test_typical),
        cmocka_unit_test(test_xtc),
        cmocka_unit_test(test_top_n_sigma),
        cmocka_unit_test(test_dynamic_temperature),
        cmocka_unit_test(test_mirostat),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_mixed_rows_equal_oracle),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
