/* The inputs of the sample op at a position of a sequence: its sample row, the counts and biases
 * that edit its logits, and the mask of the tokens that may be sampled there. Masks are those of
 * kernels/sampling.h.
 *
 * The position is that of the sequence's next token, or follows tokens that the sequence does not
 * have yet. Those are drafts, whose inputs are computed as if they had been appended, or a token
 * that a device is still sampling, on which nothing may depend (sampling_inputs_need_tokens). The
 * sequence is not changed, except that the prompt's counts and the grammar's first state are
 * created when first needed. Engine thread only. */
#ifndef QUIRE_ENGINE_BATCH_SAMPLING_INPUTS_H
#define QUIRE_ENGINE_BATCH_SAMPLING_INPUTS_H

#include "config/serving_limits.h"
#include "kernels/sampling.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct dry_scratch;
struct grammar_vocabulary;
struct sequence;

struct sampling_position {
    struct sequence *sequence;
    int32_t position; /* number of tokens before it: at least the sequence's num_tokens, at most its
                         max_tokens */
    const int32_t *drafts; /* [position - num_tokens] tokens of the vocabulary that come after the
                              sequence's; NULL: not known, and at most one */
};

/* Returns whether the inputs at num_tokens + 1 depend on the token before it: there is a penalty,
 * DRY, Mirostat or a grammar, or that token could begin or continue a bad run, or use up a thinking
 * budget. The result may be false at one position and true at a later one. */
bool sampling_inputs_need_tokens(const struct sequence *sequence);

/* Returns whether the inputs after a draft depend on which token it is, so that it must be known
 * before the step: like sampling_inputs_need_tokens, for any of the tokens that follow. */
bool sampling_inputs_need_drafts(const struct sequence *sequence);

/* Returns a row that samples the token at the position. The ranges of counts and biases are left
 * empty. */
struct sample_row sampling_inputs_sample_row(const struct sampling_position *at);
/* Returns a row that scores a prompt token. */
struct sample_row sampling_inputs_score_row(const struct sequence *sequence, int32_t target);

/* Writes the counts of the tokens before the position, at most serving_limits_max_distinct, and
 * returns their number. It is 0 without a penalty, or when memory is short for the prompt's counts;
 * sequence_append then refuses the token. */
int32_t sampling_inputs_fill_counts(const struct sampling_position *at, struct token_count *out);

/* Returns how many entries sampling_inputs_fill_biases writes at most. */
int32_t sampling_inputs_max_biases(const struct tokenizer *tokenizer);
/* Writes logit_bias and the bans: of every end token while fewer than min_tokens were generated,
 * and of the last token of a bad run whose other tokens were generated last. Subtracts DRY's
 * penalties from them. Returns the number of entries, all of distinct tokens. `scratch` may be NULL
 * where no request has DRY. */
int32_t sampling_inputs_fill_biases(const struct sampling_position *at,
                                    const struct tokenizer *tokenizer, struct dry_scratch *scratch,
                                    struct token_bias *out);

enum sampling_mask {
    SAMPLING_MASK_NONE,
    SAMPLING_MASK_FILLED,
    SAMPLING_MASK_UNFINISHED, /* the grammar's mask takes longer: what is sampled is meaningless */
};

/* Writes the mask, [SAMPLE_MASK_WORDS(vocab_size)] words: of a grammar that the output must match,
 * and of the request's allowed tokens, or of the one token that ends its reasoning
 * (thinking_budget.h). `scratch` has the same length. Allowed tokens are ignored if the grammar
 * accepts none of them. The grammar's mask costs no more than *budget, from which the cost is
 * subtracted (grammar_state_try_mask). If it would cost more, a job finds it (grammar_job.h),
 * provided that no drafts come before. No mask is written when none is needed, or when memory is
 * short for the grammar: sequence_append then refuses a token that does not match. A grammar that
 * does not accept the drafts is ignored: the rows before cannot sample them. Without a vocabulary
 * no request has a grammar. */
enum sampling_mask sampling_inputs_fill_mask(const struct sampling_position *at,
                                             const struct tokenizer *tokenizer,
                                             const struct grammar_vocabulary *vocabulary,
                                             int64_t *budget, uint32_t *scratch, uint32_t *mask);

/* Drops the bans of tokens that the mask allows when they would leave nothing to sample: an end
 * that the grammar requires takes precedence over min_tokens. Biases are of distinct tokens.
 * Returns how many are left. */
int32_t sampling_inputs_drop_bans(const uint32_t *mask, int32_t vocab_size,
                                  struct token_bias *biases, int32_t num_biases);

/* Returns how many drafts per sequence the counts of a step have room for: unlimited without a
 * penalty or without speculation, otherwise at least one. */
int32_t sampling_inputs_max_drafts(const struct sequence *sequence,
                                   const struct serving_limits *limits);

/* Returns how many of the drafts after the sequence's tokens are worth computing: the grammar
 * accepts each after those before it, it is among the allowed tokens (or is the one that ends the
 * reasoning), and no earlier one ends the sequence. Returns 0 when memory is short. */
int32_t sampling_inputs_cut_drafts(struct sequence *sequence, const struct tokenizer *tokenizer,
                                   const struct grammar_vocabulary *vocabulary,
                                   const int32_t *drafts, int32_t num_drafts);

#endif
