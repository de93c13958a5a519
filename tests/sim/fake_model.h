/* A model without weights: what follows a history is a hash of it. The next token depends on the
 * history, the seed, the position, the penalties' counts, the biases, Mirostat's mu and the mask;
 * log probabilities and hidden states depend on the history alone. So an oracle knows what a
 * request must produce from the request alone. */
#ifndef QUIRE_TESTS_SIM_FAKE_MODEL_H
#define QUIRE_TESTS_SIM_FAKE_MODEL_H

#include "kernels/sampling.h"
#include "tests/sim/fake_tokenizer.h"

#include <stdint.h>

#define FAKE_HIDDEN_SIZE 3

/* Returns the hash of a history and one more token; 0 is the empty history. */
uint64_t fake_model_hash(uint64_t hash, int32_t token);

/* The inputs of a sample but the history; counts and biases in any order. */
struct fake_sample {
    uint64_t seed;
    uint64_t position;
    const struct token_count *counts;
    int32_t num_counts;
    const struct token_bias *biases;
    int32_t num_biases;
    float mirostat_mu;    /* 0: without Mirostat */
    const uint32_t *mask; /* NULL: none */
};
int32_t fake_model_sample(uint64_t history, const struct fake_sample *sample);

/* Returns mu after a token: exact, and another one for another history of tokens. */
float fake_model_next_mu(float mu, int32_t token);

/* In (-8, 0], of 24 bits: sums of a few hundred are exact in a double, and ties are rare. They do
 * not add up to 1: nothing here needs that. */
float fake_model_logprob(uint64_t history, int32_t token);
/* All tokens by falling logprob, ties by rising id. */
struct fake_distribution {
    int32_t tokens[FAKE_VOCAB_SIZE];
    float logprobs[FAKE_VOCAB_SIZE];
};
void fake_model_distribution(uint64_t history, struct fake_distribution *out);
/* Place of the token in it, from 1. */
int32_t fake_model_rank(const struct fake_distribution *distribution, int32_t token);

/* A small whole number: sums of them are exact in any order. */
float fake_model_state(uint64_t history, int dimension);

#endif
