/* Describes what one step computes, as flat read-only arrays. The engine's batch builder builds it,
 * a rank runs it. Most arrays belong to the builder and are overwritten by the next step; the pairs
 * of blocks to move point into the block manager's lists, which it empties at the end of the step.
 * So a batch is valid until its step's result is complete, and no step is built before that. */
#ifndef QUIRE_MODELS_BATCH_H
#define QUIRE_MODELS_BATCH_H

#include "kernels/backend.h"

#include <stdint.h>

/* Pairs of KV block ids, from[i] -> to[i]. Within a list no block is both a source and a
 * destination, and none is a destination twice. */
struct block_pairs {
    int32_t count;
    const int32_t *from; /* [count] */
    const int32_t *to;   /* [count] */
};

struct batch {
    struct step_inputs inputs; /* no token at all: only the blocks are moved */
    /* Blocks to move before anything is computed, in this order. */
    struct block_pairs swap_out; /* KV block pool -> host block pool */
    struct block_pairs swap_in;  /* host block pool -> KV block pool */
    struct block_pairs copies;   /* within the KV block pool: copy on write */
    /* Rows of the head: row r takes the hidden state of token logit_rows[r] and does what
     * sample_rows[r] says (sample the next token, or score a given one). */
    int32_t num_sample_rows;
    const int32_t *logit_rows; /* [num_sample_rows], each < inputs.num_tokens, not falling: a
                                             token may have several rows */
    const struct sample_row *sample_rows; /* [num_sample_rows] */
    int32_t num_counts;
    const struct token_count *token_counts; /* [num_counts], see sample_row.first_count */
    int32_t num_biases;
    const struct token_bias *token_biases; /* [num_biases], see sample_row.first_bias */
    /* Sums of hidden states after the output norm, for embeddings. Sum p starts from row p of
     * hidden_sums, which is what an earlier step left or zeros, and adds the tokens of its span in
     * their order: how a prompt is cut into steps changes no bit. */
    int32_t num_hidden_sums;
    const struct row_span *hidden_spans; /* [num_hidden_sums], within inputs.num_tokens, rising */
    const float *hidden_sums;            /* [num_hidden_sums, hidden_size] */
    int32_t num_listed;
    const int32_t *listed_tokens; /* [num_listed], see sample_row.num_listed; rows may share them */
    int32_t num_masks;
    const uint32_t *token_masks; /* [num_masks][SAMPLE_MASK_WORDS(vocab_size)], see sample_row.mask;
                                    rows name them in order, none left out */
};

/* Holds what a step returns. The arrays are the caller's, with room for batch->num_sample_rows
 * rows and batch->num_hidden_sums sums. */
struct step_result {
    int32_t num_sample_rows;
    struct sample_output *rows;
    float *listed_logprobs; /* see sample_row.first_listed_logprob; NULL while no row lists any */
    float *hidden_sums;     /* [num_hidden_sums, hidden_size]; NULL while no batch has any */
};

#endif
