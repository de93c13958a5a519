/* An executor without a model. It keeps a shadow of the KV cache, one (token, position) per slot,
 * writes the batch's tokens where slot_mapping says, and reads each sequence's history back through
 * its block table, as attention would. The next token is a hash of that history, the seed, the
 * position, the penalties' counts, the biases and the mask, a hidden state one of the history: a
 * wrong slot, a stale or shared block, or any input lost on the way shows either as a violation
 * here or as a wrong token. */
#ifndef QUIRE_TESTS_SIM_FAKE_EXECUTOR_H
#define QUIRE_TESTS_SIM_FAKE_EXECUTOR_H

#include "engine/executor.h"

#include <stdbool.h>
#include <stdint.h>

#define FAKE_HIDDEN_SIZE 3

struct shadow_slot {
    int32_t token;
    int32_t position; /* -1: never written */
    uint64_t step;    /* of the last write */
};

struct fake_executor {
    struct executor base;
    int32_t block_size;
    int32_t num_blocks;
    int32_t max_num_batched_tokens;
    struct shadow_slot *slots; /* [num_blocks * block_size] */
    uint64_t num_calls;
    int32_t next_mask;     /* of the running call */
    uint64_t fail_at_call; /* this call and all after it fail; 0: never */
    int32_t delay_us;      /* of each call, so that threads meet */
    char violation[256];   /* the first thing wrong with a batch; empty: none */
};

void fake_executor_init(struct fake_executor *fake, int32_t num_blocks, int32_t block_size,
                        int32_t max_num_batched_tokens);
void fake_executor_finish(struct fake_executor *fake);

/* The model, for oracles. The hash of a history is fake_model_hash over its tokens from 0. */
uint64_t fake_model_hash(uint64_t hash, int32_t token);
/* The inputs of a draw but the history; counts and biases in any order. */
struct fake_draw {
    uint64_t seed;
    uint64_t position;
    const struct token_count *counts;
    int32_t num_counts;
    const struct token_bias *biases;
    int32_t num_biases;
    const uint32_t *mask; /* NULL: none */
};
int32_t fake_model_draw(uint64_t history, const struct fake_draw *draw);
float fake_model_logprob(uint64_t history, int32_t token);
int32_t fake_model_top_token(uint64_t history, int index);
/* A small whole number: sums of them are exact in any order. */
float fake_model_state(uint64_t history, int dimension);

#endif
