/* What one step computes: flat arrays, read only, no pointer into the engine, so that a batch could
 * be broadcast to other processes as it is. Built by the engine's batch builder, consumed by
 * llama_forward; the memory belongs to the builder and stays valid until the step's result is
 * complete. */
#ifndef QUIRE_MODELS_BATCH_H
#define QUIRE_MODELS_BATCH_H

#include "kernels/backend.h"

#include <stdint.h>

struct batch {
    struct step_inputs inputs;
    /* Rows of the head: row r takes the hidden state of token logit_rows[r] and does what
     * sample_rows[r] says (draw the next token, or score a given one). */
    int32_t num_rows;
    const int32_t *logit_rows;            /* [num_rows], each < inputs.num_tokens, rising */
    const struct sample_row *sample_rows; /* [num_rows] */
    int32_t num_counts;
    const struct token_count *token_counts; /* [num_counts], see sample_row.first_count */
    int32_t num_biases;
    const struct token_bias *token_biases; /* [num_biases], see sample_row.first_bias */
};

/* The only thing that comes back up. `rows` is the caller's, with room for batch->num_rows. */
struct step_result {
    int32_t num_rows;
    struct sample_output *rows;
};

#endif
