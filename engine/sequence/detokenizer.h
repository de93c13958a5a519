/* Turns the bytes of one sequence's tokens into text, as they arrive: only whole UTF-8 characters,
 * with stop strings found anywhere across tokens.
 *
 * Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a character, as the Unicode
 * standard recommends (chapter 3, "U+FFFD substitution of maximal subparts") and Python's
 * errors="replace" does. Text that may begin a stop string is held back until that is decided. The
 * match that ends first wins; of several that end together, the longest. The boundaries of tokens
 * make no difference. Engine thread only. */
#ifndef QUIRE_ENGINE_SEQUENCE_DETOKENIZER_H
#define QUIRE_ENGINE_SEQUENCE_DETOKENIZER_H

#include "engine/request/sampling_params.h"

#include <stdbool.h>
#include <stddef.h>

struct detokenizer {
    const struct sampling_params *params; /* the stop strings; the request's */
    unsigned char partial[4];             /* the first bytes of an unfinished character */
    int num_partial;
    char *text; /* what the last push released, then what is held back */
    size_t text_bytes, text_capacity;
    size_t num_given;
};

/* The result of a push; the text is valid until the next push. */
struct detokenized {
    const char *text;
    size_t text_bytes;
    int32_t stop_string; /* index of the one that was found, else -1 */
};

enum detokenizer_flags {
    DETOKENIZER_MATCH_STOPS = 1, /* a stop string may end in these bytes */
    DETOKENIZER_FINAL = 2,       /* nothing follows: release everything */
};

void detokenizer_init(struct detokenizer *detokenizer, const struct sampling_params *params);
void detokenizer_finish(struct detokenizer *detokenizer); /* accepts a zeroed one */

/* Adds bytes (may be none). After a stop string was found nothing may follow. Returns -1 when
 * memory is short: nothing was added. */
int detokenizer_push(struct detokenizer *detokenizer, const char *bytes, size_t length,
                     unsigned flags, struct detokenized *out);

#endif
