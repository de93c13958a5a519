/* Private to models/: says which bytes of a text come from a client, so that no control token is
 * matched there. */
#ifndef QUIRE_MODELS_TOKENIZER_CLIENT_SPANS_H
#define QUIRE_MODELS_TOKENIZER_CLIENT_SPANS_H

#include "config/base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct client_spans {
    const struct text_span *spans; /* rising, apart */
    size_t count;
    bool markers_match; /* as other added tokens that are not special (added_tokens.h) */
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

#endif
