/* The prompt of a completion with a suffix: a text with a gap, for models that were trained to fill
 * it in.
 *
 * First come the tokens that the tokenizer puts there, if the item is a text with
 * add_special_tokens. Then come the model's tokens (tokenizer_fim) with the texts: other files,
 * PREFIX prompt SUFFIX suffix MIDDLE, in the order of llama.cpp's /infill (tools/server/README.md).
 * Nothing is added at the end. */
#ifndef QUIRE_SERVER_API_COMPLETIONS_FIM_PROMPT_H
#define QUIRE_SERVER_API_COMPLETIONS_FIM_PROMPT_H

#include "server/api/fields/prompt_field.h"
#include "server/api/fields/sampling_lists.h"

struct fim_prompt {
    const cJSON *item;                    /* text or ids before the gap; may be empty */
    const char *path;                     /* of the item */
    const struct prompt_tokens *suffix;   /* what follows the gap */
    const struct prompt_tokens *between;  /* what is between the item and the gap */
    const struct prompt_tokens *in_front; /* other files */
    unsigned flags;                       /* of the item's text (enum tokenizer_flags) */
};

/* Returns -1 and *err, 400, for a suffix, the field `path`, if the model has no such tokens.
 * is_infill: the suffix may be empty. */
int fim_prompt_check(const struct api_context *context, const char *path, bool is_infill,
                     struct api_error *err);

/* Adds the tokens that end the text in a gap (tokenizer_fim_ends) to the stop tokens; a 400 if
 * there are too many together. */
int fim_prompt_add_ends(const struct api_context *context, struct sampling_lists *lists,
                        struct api_error *err);

/* Encodes a suffix, the field `path`, once for all prompts of a call; no tokens if it is empty. Of
 * a long suffix, encodes no more than a truncation leaves of a whole prompt. The caller frees the
 * tokens. Returns -1 and *err on failure. */
int fim_prompt_read_suffix(const struct api_context *context, const char *suffix, const char *path,
                           unsigned flags, const struct prompt_limits *limits,
                           struct prompt_tokens *out, struct api_error *err);

/* Makes the tokens, which the caller frees; those of the item are [*out_begin, *out_end). A
 * truncation keeps what is next to the gap. The suffix keeps a quarter of the room, or more if the
 * item leaves more; the item keeps the rest; the other files keep their end, in the room that both
 * leave. Returns -1 and *err like prompt_read_tokens, with the item's path if both together are too
 * long. */
int fim_prompt_tokens(const struct api_context *context, const struct fim_prompt *prompt,
                      const struct prompt_limits *limits, struct prompt_tokens *out,
                      int32_t *out_begin, int32_t *out_end, struct api_error *err);

#endif
