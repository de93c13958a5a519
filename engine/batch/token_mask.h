/* The tokens that a sequence may draw next, where that is not all of them: a grammar that its
 * output must match, and a request's allowed tokens, or the one that ends what it thinks
 * (thinking_budget.h). Masks are those of kernels/sampling.h. Engine
 * thread only. */
#ifndef QUIRE_ENGINE_BATCH_TOKEN_MASK_H
#define QUIRE_ENGINE_BATCH_TOKEN_MASK_H

#include "kernels/sampling.h"

#include <stdbool.h>
#include <stdint.h>

struct grammar_vocabulary;
struct sequence;

/* Writes the mask, [SAMPLE_MASK_WORDS(vocab_size)] words; `scratch` is as long. False when the
 * sequence needs none, or memory is too short for its grammar: sequence_append then refuses a token
 * that does not match. Allowed tokens of which the grammar takes none are not looked at. */
bool token_mask_fill(struct sequence *sequence, const struct grammar_vocabulary *vocabulary,
                     int32_t vocab_size, uint32_t *scratch, uint32_t *mask);

/* Leaves out the bans of tokens that the mask allows when they would leave nothing to draw: an end
 * that the grammar asks for comes before min_tokens. Biases are of distinct tokens; returns how
 * many are left. */
int32_t token_mask_drop_bans(const uint32_t *mask, int32_t vocab_size, struct token_bias *biases,
                             int32_t num_biases);

#endif
