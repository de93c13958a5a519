/* The prompt of a completion with a suffix: a text with a gap, for models that were trained to fill
 * it in.
 *
 * In front, what the tokenizer puts there, for a text with add_special_tokens; then the model's
 * tokens (tokenizer_fim) with the texts: other files, PREFIX prompt SUFFIX suffix MIDDLE, the order
 * of llama.cpp's /infill (tools/server/README.md). Nothing is put behind. */
#ifndef QUIRE_SERVER_API_COMPLETIONS_FIM_PROMPT_H
#define QUIRE_SERVER_API_COMPLETIONS_FIM_PROMPT_H

#include "server/api/fields/prompt_field.h"
#include "server/api/fields/sampling_lists.h"

struct fim_prompt {
    const cJSON *item; /* what stands before the gap: a text or ids; may be empty */
    const char *path;  /* of the item */
    const struct prompt_tokens *suffix;   /* what stands behind it */
    const struct prompt_tokens *between;  /* and between the item and the gap */
    const struct prompt_tokens *in_front; /* other files */
    unsigned flags;                       /* of the item's text (enum tokenizer_flags) */
};

/* Refuses a suffix, the field `path`, for a model without such tokens: -1 and *err, 400. is_infill:
 * it is no matter that it is empty. */
int fim_prompt_check(const struct api_context *context, const char *path, bool is_infill,
                     struct api_error *err);

/* Adds the tokens that end what fills a gap (tokenizer_fim_ends) to those that stop; a 400 where
 * they are too many together. */
int fim_prompt_add_ends(const struct api_context *context, struct sampling_lists *lists,
                        struct api_error *err);

/* Encodes a suffix, the field `path`, none where it is empty, once for all prompts of a call: of a
 * long one no more than a truncation leaves of a whole prompt. The caller frees the tokens. -1 and
 * *err. */
int fim_prompt_read_suffix(const struct api_context *context, const char *suffix, const char *path,
                           unsigned flags, const struct prompt_limits *limits,
                           struct prompt_tokens *out, struct api_error *err);

/* Makes the tokens, which the caller frees; those of the item are [*out_begin, *out_end). A
 * truncation keeps what is around the gap: of the suffix a quarter of the room, or what the item
 * leaves, and the rest of the item; of the other files the end of what both leave. -1 and *err: as
 * prompt_read_tokens, of the item's path where both together are too long. */
int fim_prompt_tokens(const struct api_context *context, const struct fim_prompt *prompt,
                      const struct prompt_limits *limits, struct prompt_tokens *out,
                      int32_t *out_begin, int32_t *out_end, struct api_error *err);

#endif
