/* How test tokenizers encode: the longest token that the text goes on with, again and again. */
#ifndef QUIRE_TESTS_LONGEST_MATCH_H
#define QUIRE_TESTS_LONGEST_MATCH_H

#include "models/tokenizer/tokenizer.h"

#include <string.h>

/* Returns the number of tokens, of which `capacity` are written at most. Bytes that no token begins
 * with are left out. */
static inline int64_t longest_match_encode(const struct tokenizer *tokenizer, const char *text,
                                           size_t length, int32_t *out, size_t capacity) {
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        size_t longest = 0;
        int32_t found = -1;
        for (int32_t token = 0; token < tokenizer_vocab_size(tokenizer); token++) {
            struct text piece = tokenizer_piece(tokenizer, token);
            if (tokenizer_is_special(tokenizer, token) || piece.length <= longest ||
                piece.length > length - at || memcmp(piece.data, text + at, piece.length) != 0)
                continue;
            longest = piece.length;
            found = token;
        }
        if (found >= 0 && count < capacity)
            out[count] = found;
        count += found >= 0;
        at += longest > 0 ? longest : 1;
    }
    return (int64_t)count;
}

#endif
