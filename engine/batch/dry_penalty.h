/* DRY ("don't repeat yourself"): a penalty on the tokens that would make the end of a sequence
 * longer a repetition of something it said before. The sample op receives it as token biases, which
 * are added before anything else changes a logit (kernels/sampling.h).
 *
 * As in llama.cpp (and pull request 5677 of text-generation-webui, whose idea it is): of the last
 * dry_penalty_last_n tokens, prompt and output, wherever the n tokens before some token t are also
 * the last n, and n >= dry_allowed_length, the logit of t falls by
 *     dry_multiplier * dry_base ^ (n - dry_allowed_length)
 * for the largest such n of t. A repetition never extends back past a sequence breaker: n is at
 * most the number of tokens after the last token in whose text a breaker ends. Penalties are at
 * most DRY_MAX_PENALTY. At most DRY_MAX_TOKENS tokens are penalised: those whose repetitions are
 * nearest the end. */
#ifndef QUIRE_ENGINE_BATCH_DRY_PENALTY_H
#define QUIRE_ENGINE_BATCH_DRY_PENALTY_H

#include "engine/request/sampling_params.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DRY_MAX_TOKENS 512
#define DRY_MAX_PENALTY 1e30

struct sequence;

/* Scratch memory of one caller; each call overwrites it. */
struct dry_scratch {
    int32_t *tokens;  /* [capacity] the newest first */
    int32_t *matches; /* [capacity] how many tokens from this one back equal those from the newest
                         back */
    int32_t capacity;
};

/* max_model_len: length of the longest sequence. Returns -1 when memory is short, with nothing to
 * free. */
int dry_scratch_init(struct dry_scratch *scratch, int32_t max_model_len);
size_t dry_scratch_bytes(int32_t max_model_len); /* what it allocates */
void dry_scratch_finish(struct dry_scratch *scratch);

bool dry_penalty_is_used(const struct sampling_params *params);
/* Writes the penalties (negative biases of distinct tokens, at most DRY_MAX_TOKENS) for the
 * position that follows the sequence's tokens and num_drafts drafts. Returns their number. Takes
 * time proportional to the window. */
int32_t dry_penalty_find(const struct sequence *sequence, const int32_t *drafts, int32_t num_drafts,
                         const struct tokenizer *tokenizer, struct dry_scratch *scratch,
                         struct token_bias *out);

#endif
