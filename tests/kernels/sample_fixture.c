#include "tests/kernels/sample_fixture.h"

#include "tests/kernels/kernel_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define TEMPERATURE 0.8

const struct sample_row sample_fixture_plain = {.target = SAMPLE_NO_TARGET,
                                                .num_logprobs = -1,
                                                .seed = 42,
                                                .settings.temperature = 1,
                                                .settings.top_p = 1,
                                                .settings.repetition_penalty = 1,
                                                .mask = SAMPLE_NO_MASK};

void sample_fixture_run(struct backend *b, const struct sample_call *call, float *logits,
                        struct sample_output *out, float *listed_logprobs) {
    b->ops->sample(b, &(struct sample_args){.logits = logits,
                                            .num_sample_rows = call->num_rows,
                                            .vocab_size = call->vocab_size,
                                            .padding = call->padding,
                                            .rows = call->rows,
                                            .counts = call->counts,
                                            .biases = call->biases,
                                            .masks = call->masks,
                                            .listed = call->listed,
                                            .out = out,
                                            .listed_logprobs = listed_logprobs});
    kernel_fixture_synchronize(b);
}

static uint32_t mask_word(uint64_t *seed, int kind, int32_t index) {
    uint32_t half = kernel_fixture_random(seed), other = kernel_fixture_random(seed),
             third = kernel_fixture_random(seed);
    switch (kind) {
    case SAMPLE_FIXTURE_FEW:
        return half & other & third & kernel_fixture_random(seed);
    case SAMPLE_FIXTURE_HALF:
        return half;
    case SAMPLE_FIXTURE_MOST:
        return half | other | third;
    case SAMPLE_FIXTURE_WORDS:
        return index % 2 ? 0 : UINT32_MAX;
    default:
        return kind == SAMPLE_FIXTURE_ALL ? UINT32_MAX : 0;
    }
}

uint32_t *sample_fixture_masks(uint64_t *seed, int32_t vocab_size) {
    int32_t num_words = SAMPLE_MASK_WORDS(vocab_size);
    uint32_t *masks =
        malloc((size_t)SAMPLE_FIXTURE_NUM_MASKS * (size_t)num_words * sizeof(uint32_t));
    assert_non_null(masks);
    for (int kind = 0; kind < SAMPLE_FIXTURE_NUM_MASKS; kind++) {
        uint32_t *mask = masks + (int64_t)kind * num_words;
        for (int32_t w = 0; w < num_words; w++)
            mask[w] = mask_word(seed, kind, w);
        if (kind == SAMPLE_FIXTURE_ONE)
            mask[vocab_size / 2 / 32] = UINT32_C(1) << vocab_size / 2 % 32;
        if (vocab_size % 32 > 0)
            mask[num_words - 1] ^= kernel_fixture_random(seed) << vocab_size % 32;
    }
    return masks;
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
    row.settings.temperature = (float)TEMPERATURE;
    row.settings.top_k = SAMPLE_FIXTURE_KEPT;
    return row;
}

/* 34.53 is the 99.9 % point for 13 degrees of freedom. */
void sample_fixture_assert_distribution(const int seen[SAMPLE_FIXTURE_VOCAB], int num_sampled) {
    float logits[SAMPLE_FIXTURE_VOCAB];
    double weight[SAMPLE_FIXTURE_VOCAB], total = 0, chi_square = 0;
    sample_fixture_distribution_logits(logits);
    for (int i = 0; i < SAMPLE_FIXTURE_VOCAB; i++) {
        bool kept = level_of(i) >= SAMPLE_FIXTURE_VOCAB - SAMPLE_FIXTURE_KEPT;
        weight[i] = kept ? exp(logits[i] / TEMPERATURE) : 0;
        total += weight[i];
    }
    for (int i = 0; i < SAMPLE_FIXTURE_VOCAB; i++) {
        double expected = num_sampled * weight[i] / total;
        if (weight[i] > 0)
            chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
        else
            assert_int_equal(seen[i], 0);
    }
    assert_true(chi_square < 34.53);
    assert_true(chi_square > 1); /* nor too good to be random */
}
