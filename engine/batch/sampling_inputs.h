/* The inputs of the sample op, from a sequence's parameters and state: its sample row, the biases
 * that edit its logits, and the mask of the tokens that it may sample next. Masks are those of
 * kernels/sampling.h. Engine thread only. */
#ifndef QUIRE_ENGINE_BATCH_SAMPLING_INPUTS_H
#define QUIRE_ENGINE_BATCH_SAMPLING_INPUTS_H

#include "kernels/sampling.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct grammar_vocabulary;
struct sequence;

/* Returns the seed of one choice. Choice 0 has the request's own, so that n = 1 samples what the
 * first of several choices samples. */
uint64_t sampling_inputs_choice_seed(uint64_t seed, int32_t choice);

/* Returns a row that samples the sequence's next token. The ranges of counts and biases are left
 * empty. */
struct sample_row sampling_inputs_sample_row(const struct sequence *sequence);
/* Returns a row that scores a prompt token. */
struct sample_row sampling_inputs_score_row(const struct sequence *sequence, int32_t target);

/* Returns how many entries sampling_inputs_fill_biases writes at most. */
int32_t sampling_inputs_max_biases(const struct tokenizer *tokenizer);
/* Writes logit_bias, and bans: of every end token while fewer than min_tokens were generated, and
 * of the last token of a bad run whose others are what was generated last. Returns the number of
 * entries, all of distinct tokens. */
int32_t sampling_inputs_fill_biases(const struct sequence *sequence,
                                    const struct tokenizer *tokenizer, struct token_bias *out);

/* Writes the mask, [SAMPLE_MASK_WORDS(vocab_size)] words, of a grammar that the output must match,
 * and of a request's allowed tokens, or the one that ends its reasoning (thinking_budget.h);
 * `scratch` is as long. Allowed tokens are ignored where the grammar takes none of them. False when
 * the sequence needs no mask, or memory is too short for its grammar: sequence_append then refuses
 * a token that does not match. */
bool sampling_inputs_fill_mask(struct sequence *sequence,
                               const struct grammar_vocabulary *vocabulary, int32_t vocab_size,
                               uint32_t *scratch, uint32_t *mask);

/* Drops the bans of tokens that the mask allows when they would leave nothing to sample: an end
 * that the grammar requires comes before min_tokens. Biases are of distinct tokens; returns how
 * many are left. */
int32_t sampling_inputs_drop_bans(const uint32_t *mask, int32_t vocab_size,
                                  struct token_bias *biases, int32_t num_biases);

#endif
