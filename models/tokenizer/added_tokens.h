/* Finds the tokens that are matched in the text itself: leftmost first, and the longest of those
 * that start at the same place, like the added tokens of Hugging Face's tokenizers. One set holds
 * those matched in the original text, another those matched in the normalised text. Immutable after
 * init. */
#ifndef QUIRE_MODELS_TOKENIZER_ADDED_TOKENS_H
#define QUIRE_MODELS_TOKENIZER_ADDED_TOKENS_H

#include "config/base/error.h"
#include "models/tokenizer/tokenizer_spec.h"
#include "models/tokenizer/vocabulary.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum length, which keeps a search linear: a longer token in a file is refused. */
#define ADDED_TOKEN_MAX_BYTES 1024

/* Which bytes of a text come from a client, so that no control token is matched there. */
struct client_spans {
    const struct text_span *spans; /* rising, apart */
    size_t count;
    bool markers_match; /* like other added tokens that are not special */
};

/* Returns the first span that ends after byte `at`: the one that contains it, or the next one.
 * After the last span there is an empty one. O(log count). */
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
    /* Written as "<|user|>" or DeepSeek's "<｜User｜>": divides a prompt, even if its model does
     * not call it special, like DeepSeek's. */
    bool is_marker;
};

struct added_tokens {
    struct added_entry *entries; /* sorted by text */
    size_t count;
    size_t first[257]; /* entries[first[b] .. first[b + 1]) start with byte b */
    char *texts;       /* if the set owns the texts */
};

struct normalizer;

/* Collects the added tokens of spec whose flag equals `normalized`. The texts of normalized ones
 * are normalised themselves, as in Hugging Face. */
int added_tokens_init(const struct tokenizer_spec *spec, const struct vocabulary *vocabulary,
                      bool normalized, const struct normalizer *normalizer,
                      struct added_tokens *out, struct error *err);
/* Accepts a zeroed struct. */
void added_tokens_finish(struct added_tokens *added);

/* A match, or the end of the text with token -1. */
struct added_match {
    size_t start, end; /* includes the white space it consumes */
    size_t next;       /* where the search continues */
    int32_t token;
};

/* Returns the first match in text[0..length) at or after `from`; text before `used` belongs to the
 * previous match. A special token or marker is matched only if none of its bytes is a client's. One
 * that a client wrote, and a single_word token inside a word, is plain text as a whole; but such
 * text ends at the end of the client's span, so that a client cannot hide a token that follows. */
struct added_match added_tokens_find(const struct added_tokens *added, const char *text,
                                     size_t length, size_t from, size_t used,
                                     const struct client_spans *client);

#endif
