/* The inputs of the sample op at a position of a sequence: its sample row, the counts and biases
 * that edit its logits, and the mask of the tokens that may be sampled there. Masks are those of
 * kernels/sampling.h.
 *
 * The position is that of the sequence's next token, or lies after tokens that it does not have
 * yet: drafts, whose inputs are those it will have when they were appended, or a token that a
 * device still samples, of which nothing may depend (sampling_inputs_need_tokens). What the
 * sequence has is not changed, but for the prompt's counts and the grammar's first state, which are
 * made when they are needed first. Engine thread only. */
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
    int32_t position;      /* tokens that come before: num_tokens of the sequence or more, and no
                              more than its max_tokens */
    const int32_t *drafts; /* [position - num_tokens] tokens of the vocabulary that come after the
                              sequence's; NULL: not known, and at most one */
};

/* Returns whether the inputs at num_tokens + 1 depend on which token comes before: there is a
 * penalty, DRY, Mirostat or a grammar, or that token could begin or continue a bad run, or use up a
 * thinking budget. It may be false at one position and true at a later one. */
bool sampling_inputs_need_tokens(const struct sequence *sequence);

/* Returns a row that samples the token at the position. The ranges of counts and biases are left
 * empty. */
struct sample_row sampling_inputs_sample_row(const struct sampling_position *at);
/* Returns a row that scores a prompt token. */
struct sample_row sampling_inputs_score_row(const struct sequence *sequence, int32_t target);

/* Writes the counts of the tokens before, at most serving_limits_max_distinct, and returns their
 * number: 0 without a penalty, or with memory too short for the prompt's, when sequence_append will
 * refuse the token. */
int32_t sampling_inputs_fill_counts(const struct sampling_position *at, struct token_count *out);

/* Returns how many entries sampling_inputs_fill_biases writes at most. */
int32_t sampling_inputs_max_biases(const struct tokenizer *tokenizer);
/* Writes logit_bias, and bans: of every end token while fewer than min_tokens were generated, and
 * of the last token of a bad run whose others are what was generated last; and takes DRY's
 * penalties away from them. Returns the number of entries, all of distinct tokens. `scratch` may be
 * NULL where no request has DRY. */
int32_t sampling_inputs_fill_biases(const struct sampling_position *at,
                                    const struct tokenizer *tokenizer, struct dry_scratch *scratch,
                                    struct token_bias *out);

enum sampling_mask {
    SAMPLING_MASK_NONE,
    SAMPLING_MASK_FILLED,
    SAMPLING_MASK_UNFINISHED, /* the grammar's takes longer: what is sampled means nothing */
};

/* Writes the mask, [SAMPLE_MASK_WORDS(vocab_size)] words, of a grammar that the output must match,
 * and of a request's allowed tokens, or the one that ends its reasoning (thinking_budget.h);
 * `scratch` is as long. Allowed tokens are ignored where the grammar takes none of them. The
 * grammar's costs no more than *budget (grammar_state_try_mask), from which that is taken; where it
 * would cost more it is found by a job (grammar_job.h), if no drafts come before. There is none
 * when none is needed, or memory is too short for the grammar: sequence_append then refuses a token
 * that does not match. A grammar that does not take the drafts is ignored: the rows before cannot
 * sample them. Without a vocabulary no request has a grammar. */
enum sampling_mask sampling_inputs_fill_mask(const struct sampling_position *at,
                                             const struct tokenizer *tokenizer,
                                             const struct grammar_vocabulary *vocabulary,
                                             int64_t *budget, uint32_t *scratch, uint32_t *mask);

/* Drops the bans of tokens that the mask allows when they would leave nothing to sample: an end
 * that the grammar requires comes before min_tokens. Biases are of distinct tokens; returns how
 * many are left. */
int32_t sampling_inputs_drop_bans(const uint32_t *mask, int32_t vocab_size,
                                  struct token_bias *biases, int32_t num_biases);

/* Returns how many drafts the counts of a step have room for, for each of its sequences: any number
 * without a penalty, or where none are drafted. At least one of those that may be drafted. */
int32_t sampling_inputs_max_drafts(const struct sequence *sequence,
                                   const struct serving_limits *limits);

/* Returns how many of the drafts after the sequence's tokens are worth computing: the grammar takes
 * each after those before it, allowed tokens or the one that ends the reasoning contain it, and
 * none of those before it ends the sequence. 0 when memory is short. */
int32_t sampling_inputs_cut_drafts(struct sequence *sequence, const struct tokenizer *tokenizer,
                                   const struct grammar_vocabulary *vocabulary,
                                   const int32_t *drafts, int32_t num_drafts);

#endif
