#include "tests/kernels/sample_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define TEMPERATURE 0.8

const struct sample_row sample_fixture_plain = {.target = SAMPLE_NO_TARGET,
                                                .num_logprobs = -1,
                                                .seed = 42,
                                                .temperature = 1,
                                                .top_p = 1,
                                                .repetition_penalty = 1};

void sample_fixture_run(struct backend *b, const struct sample_call *call, float *logits,
                        struct sample_output *out) {
    b->ops->sample(b, &(struct sample_args){.logits = logits,
                                            .num_rows = call->num_rows,
                                            .vocab_size = call->vocab_size,
                                            .rows = call->rows,
                                            .counts = call->counts,
                                            .biases = call->biases,
                                            .out = out});
    assert_int_equal(b->ops->synchronize(b, NULL), 0);
}

void sample_fixture_assert_logprob(float actual, float expected) {
    if (expected == -INFINITY)
        assert_true(actual == -INFINITY);
    else
        assert_float_equal(actual, expected, 2e-5 * (1 + fabsf(expected)));
}

void sample_fixture_assert_top(const struct sample_output *actual,
                               const struct sample_output *expected) {
    assert_int_equal(actual->num_top, expected->num_top);
    for (int i = 0; i < expected->num_top; i++) {
        assert_int_equal(actual->top_tokens[i], expected->top_tokens[i]);
        sample_fixture_assert_logprob(actual->top_logprobs[i], expected->top_logprobs[i]);
    }
}

/* All different. */
static int level_of(int token) {
    return token * 5 % SAMPLE_FIXTURE_VOCAB;
}

void sample_fixture_distribution_logits(float logits[SAMPLE_FIXTURE_VOCAB]) {
    for (int i = 0; i < SAMPLE_FIXTURE_VOCAB; i++)
        logits[i] = (float)level_of(i) * 0.2f;
}

struct sample_row sample_fixture_distribution_row(uint64_t position) {
    struct sample_row row = sample_fixture_plain;
    row.position = position;
    row.temperature = (float)TEMPERATURE;
    row.top_k = SAMPLE_FIXTURE_KEPT;
    return row;
}

/* 34.53 is the 99.9 % point for 13 degrees of freedom. */
void sample_fixture_assert_distribution(const int seen[SAMPLE_FIXTURE_VOCAB], int num_draws) {
    float logits[SAMPLE_FIXTURE_VOCAB];
    double weight[SAMPLE_FIXTURE_VOCAB], total = 0, chi_square = 0;
    sample_fixture_distribution_logits(logits);
    for (int i = 0; i < SAMPLE_FIXTURE_VOCAB; i++) {
        bool kept = level_of(i) >= SAMPLE_FIXTURE_VOCAB - SAMPLE_FIXTURE_KEPT;
        weight[i] = kept ? exp(logits[i] / TEMPERATURE) : 0;
        total += weight[i];
    }
    for (int i = 0; i < SAMPLE_FIXTURE_VOCAB; i++) {
        double expected = num_draws * weight[i] / total;
        if (weight[i] > 0)
            chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
        else
            assert_int_equal(seen[i], 0);
    }
    assert_true(chi_square < 34.53);
    assert_true(chi_square > 1); /* nor too good to be random */
}
