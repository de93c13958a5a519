/* Finds the tokens that are matched in the text itself, before pre-tokenisation: leftmost first and
 * of those that start at one place the longest, as the added tokens of Hugging Face's tokenizers.
 * Immutable after init. */
#ifndef QUIRE_MODELS_SPECIAL_TOKENS_H
#define QUIRE_MODELS_SPECIAL_TOKENS_H

#include "config/error.h"
#include "models/vocabulary.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keeps a search linear: a longer one in a file is refused. */
#define SPECIAL_TOKEN_MAX_BYTES 1024

struct special_token {
    struct text text; /* the vocabulary's */
    int32_t id;
};

struct special_tokens {
    struct special_token *tokens; /* sorted by text */
    size_t count;
    size_t first[257]; /* tokens[first[b] .. first[b + 1]) start with byte b */
};

/* Collects the added tokens (type USER_DEFINED) and, if with_control, also CONTROL and UNKNOWN. The
 * vocabulary outlives *out. */
int special_tokens_init(const struct vocabulary *vocabulary, bool with_control,
                        struct special_tokens *out, struct error *err);
/* Accepts a zeroed struct. */
void special_tokens_finish(struct special_tokens *specials);

/* The first match at or after `from`. Returns where it starts, with its token in *out, or `length`
 * if there is none. */
size_t special_tokens_find(const struct special_tokens *specials, const char *text, size_t length,
                           size_t from, const struct special_token **out);

#endif
