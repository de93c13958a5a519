/* Finds the tokens that are matched in the text itself: leftmost first and of those that start at
 * one place the longest, as the added tokens of Hugging Face's tokenizers. One set holds those
 * matched in the text as it came, another those matched in the normalised text. Immutable after
 * init. */
#ifndef QUIRE_MODELS_TOKENIZER_ADDED_TOKENS_H
#define QUIRE_MODELS_TOKENIZER_ADDED_TOKENS_H

#include "config/base/error.h"
#include "models/tokenizer/tokenizer_spec.h"
#include "models/tokenizer/vocabulary.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keeps a search linear: a longer one in a file is refused. */
#define ADDED_TOKEN_MAX_BYTES 1024

/* Says which bytes of a text come from a client, so that no control token is matched there. */
struct client_spans {
    const struct text_span *spans; /* rising, apart */
    size_t count;
    bool markers_match; /* as other added tokens that are not special */
};

/* Returns the first span that ends behind byte `at`, which either holds it or is the next one;
 * behind the last byte there is an empty one. O(log count). */
static inline struct text_span client_spans_from(const struct client_spans *client, size_t at) {
    size_t low = 0;
    for (size_t high = client->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (client->spans[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < client->count ? client->spans[low] : (struct text_span){SIZE_MAX, SIZE_MAX};
}

struct added_entry {
    struct text text;
    struct added_token token;
    /* Written as "<|user|>" or DeepSeek's "<｜User｜>": divides a prompt, even where its model does
     * not call it special, as DeepSeek's do not. */
    bool is_marker;
};

struct added_tokens {
    struct added_entry *entries; /* sorted by text */
    size_t count;
    size_t first[257]; /* entries[first[b] .. first[b + 1]) start with byte b */
    char *texts;       /* where the texts are the set's own */
};

struct normalizer;

/* Collects the added tokens of spec that are `normalized` or are not. The texts of the former are
 * themselves normalised, as in Hugging Face. */
int added_tokens_init(const struct tokenizer_spec *spec, const struct vocabulary *vocabulary,
                      bool normalized, const struct normalizer *normalizer,
                      struct added_tokens *out, struct error *err);
/* Accepts a zeroed struct. */
void added_tokens_finish(struct added_tokens *added);

/* A match, or the end of the text with token -1. */
struct added_match {
    size_t start, end; /* with the white space it swallows */
    size_t next;       /* where the search continues */
    int32_t token;
};

/* Returns the first match in text[0..length) at or after `from`; text before `used` belongs to the
 * match before. A special token or marker is matched only where none of its bytes is a client's.
 * What a client writes one with, and where a single_word stands inside a word, is plain text as a
 * whole; but such text ends where the client's ends, so that no client hides a token that
 * follows. */
struct added_match added_tokens_find(const struct added_tokens *added, const char *text,
                                     size_t length, size_t from, size_t used,
                                     const struct client_spans *client);

#endif
