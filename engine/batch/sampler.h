/* What one row of logits is to become: from a sequence's parameters and state to the inputs of the
 * sample op. Engine thread only. */
#ifndef QUIRE_ENGINE_BATCH_SAMPLER_H
#define QUIRE_ENGINE_BATCH_SAMPLER_H

#include "kernels/sampling.h"
#include "models/tokenizer/tokenizer.h"

#include <stdint.h>

struct sequence;

/* The seed of one choice. Choice 0 has the request's own, so that n = 1 draws what the first of
 * several choices draws. */
uint64_t sampler_choice_seed(uint64_t seed, int32_t choice);

/* A row that draws the sequence's next token. The ranges of counts and biases are left empty. */
struct sample_row sampler_draw_row(const struct sequence *sequence);
/* A row that scores a prompt token. */
struct sample_row sampler_score_row(const struct sequence *sequence, int32_t target);

/* Most entries sampler_fill_biases writes. */
int32_t sampler_max_biases(const struct tokenizer *tokenizer);
/* logit_bias, and bans: of every end token while fewer than min_tokens were generated, and of the
 * last token of a bad run whose others are what was generated last. Returns the number of entries,
 * all of distinct tokens. */
int32_t sampler_fill_biases(const struct sequence *sequence, const struct tokenizer *tokenizer,
                            struct token_bias *out);

#endif
