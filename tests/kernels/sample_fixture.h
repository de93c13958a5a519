/* What the check of sampling compares: calls of the op, masks, and a known distribution. */
#ifndef QUIRE_TESTS_KERNELS_SAMPLE_FIXTURE_H
#define QUIRE_TESTS_KERNELS_SAMPLE_FIXTURE_H

#include "kernels/backend.h"

/* Samples from all tokens at temperature 1, reports nothing. */
extern const struct sample_row sample_fixture_plain;

/* Rows of one op. */
struct sample_call {
    int32_t num_rows, vocab_size;
    int32_t padding; /* of the run's copy */
    float *logits;   /* [num_rows, vocab_size]; read only, each run has its own copy */
    struct sample_row *rows;
    const struct token_count *counts;
    const struct token_bias *biases;
    const uint32_t *masks;
    const int32_t *listed;
};

/* `logits` is the backend's copy of the call's, which the op may overwrite. listed_logprobs: NULL
 * where no row lists tokens. */
void sample_fixture_run(struct backend *b, const struct sample_call *call, float *logits,
                        struct sample_output *out, float *listed_logprobs);

/* Masks of every density; bits beyond the vocabulary are set at random. */
enum {
    SAMPLE_FIXTURE_ALL,
    SAMPLE_FIXTURE_NONE,
    SAMPLE_FIXTURE_ONE, /* the middle token */
    SAMPLE_FIXTURE_FEW,
    SAMPLE_FIXTURE_HALF,
    SAMPLE_FIXTURE_MOST,
    SAMPLE_FIXTURE_WORDS, /* every other word */
    SAMPLE_FIXTURE_NUM_MASKS,
};
/* [SAMPLE_FIXTURE_NUM_MASKS][SAMPLE_MASK_WORDS(vocab_size)], to be freed. */
uint32_t *sample_fixture_masks(uint64_t *seed, int32_t vocab_size);

void sample_fixture_assert_logprob(float actual, float expected);
/* The lists of most probable tokens. */
void sample_fixture_assert_top(const struct sample_output *actual,
                               const struct sample_output *expected);

/* A test of the sampled tokens' distribution: rows of these logits, at positions 0, 1, ..., count
 * their tokens in `seen`. */
enum { SAMPLE_FIXTURE_VOCAB = 16, SAMPLE_FIXTURE_KEPT = 14 };

void sample_fixture_distribution_logits(float logits[SAMPLE_FIXTURE_VOCAB]);
struct sample_row sample_fixture_distribution_row(uint64_t position);
/* Chi-square against the known probabilities; with fixed seeds it cannot flicker. */
void sample_fixture_assert_distribution(const int seen[SAMPLE_FIXTURE_VOCAB], int num_sampled);

#endif
