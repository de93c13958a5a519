/* What a step computed, in a recording: which sequences took part with which tokens, what was
 * sampled, and a hash of the bits of the other results (logprobs, hidden sums). Equal steps have
 * equal bytes.
 */
#ifndef QUIRE_ENGINE_RECORD_RECORD_STEP_H
#define QUIRE_ENGINE_RECORD_RECORD_STEP_H

#include "engine/batch/step.h"
#include "engine/record/record_codec.h"

/* Appends the values of a step that has run or failed; `failure`: how it failed, or ERROR_NONE.
 * `scratch` is any buffer. */
void record_step_write(const struct step *step, enum error_code failure, int32_t hidden_size,
                       struct byte_buffer *scratch, struct byte_buffer *out);

/* Reads how a recorded step failed; ERROR_NONE: it did not. */
enum error_code record_step_failure(struct text recorded);
/* Counts the tokens that a step sampled, and its entries. */
void record_step_count(struct text recorded, uint64_t *num_entries, uint64_t *num_tokens);

/* Writes where two steps with different bytes first differ: request, choice, position, token. */
void record_step_explain(struct text recorded, struct text found, char *out, size_t capacity);

#endif
