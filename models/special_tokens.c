/* No automaton: the sorted array is narrowed by one more byte of the text at a time, which is a
 * handful of steps at the few places where a token could start. */
#include "models/special_tokens.h"

#include "models/tensor_table.h"

#include <stdlib.h>

static int compare(const void *a, const void *b) {
    const struct special_token *x = a, *y = b;
    int order = text_compare(x->text, y->text);
    return order != 0 ? order : x->id < y->id ? -1 : 1;
}

static bool is_wanted(const struct vocabulary *vocabulary, int32_t token, bool with_control) {
    uint8_t type = vocabulary->types[token];
    bool control = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
    return type == TOKEN_USER_DEFINED || (control && with_control);
}

/* Of equal texts keeps the last, which has the highest id; then fills first[]. */
static void index_tokens(struct special_tokens *specials) {
    size_t kept = 0;
    for (size_t i = 0; i < specials->count; i++) {
        if (kept > 0 &&
            text_compare(specials->tokens[kept - 1].text, specials->tokens[i].text) == 0)
            kept--;
        specials->tokens[kept++] = specials->tokens[i];
    }
    specials->count = kept;
    size_t next = 0;
    for (int byte = 0; byte < 256; byte++) {
        specials->first[byte] = next;
        while (next < kept && (unsigned char)specials->tokens[next].text.data[0] == byte)
            next++;
    }
    specials->first[256] = kept;
}

static int collect(const struct vocabulary *vocabulary, bool with_control,
                   struct special_tokens *specials, struct error *err) {
    for (int32_t i = 0; i < vocabulary->size; i++) {
        struct text text = vocabulary_raw(vocabulary, i);
        if (!is_wanted(vocabulary, i, with_control) || text.length == 0)
            continue;
        if (text.length > SPECIAL_TOKEN_MAX_BYTES)
            return error_set(err, ERROR_MODEL,
                             "tokenizer.ggml.tokens[%d], a special token, has %zu bytes, allowed "
                             "are %d",
                             i, text.length, SPECIAL_TOKEN_MAX_BYTES);
        specials->tokens[specials->count++] = (struct special_token){text, i};
    }
    return 0;
}

int special_tokens_init(const struct vocabulary *vocabulary, bool with_control,
                        struct special_tokens *out, struct error *err) {
    size_t count = 0;
    for (int32_t i = 0; i < vocabulary->size; i++)
        count += is_wanted(vocabulary, i, with_control);
    struct special_tokens specials = {0};
    specials.tokens = malloc((count + 1) * sizeof(*specials.tokens));
    if (specials.tokens == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu special tokens", count);
    if (collect(vocabulary, with_control, &specials, err) != 0) {
        special_tokens_finish(&specials);
        return -1;
    }
    qsort(specials.tokens, specials.count, sizeof(*specials.tokens), compare);
    index_tokens(&specials);
    *out = specials;
    return 0;
}

void special_tokens_finish(struct special_tokens *specials) {
    free(specials->tokens);
    *specials = (struct special_tokens){0};
}

/* First of tokens[low..high), which agree in `depth` bytes and are longer, whose next byte is at
 * least `byte`. */
static size_t lower_bound(const struct special_tokens *specials, size_t low, size_t high,
                          size_t depth, int byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((unsigned char)specials->tokens[middle].text.data[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct special_token *match_at(const struct special_tokens *specials, const char *text,
                                            size_t length) {
    const struct special_token *best = NULL;
    size_t low = specials->first[(unsigned char)text[0]];
    size_t high = specials->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        /* A token that ends here sorts before those that go on. */
        if (specials->tokens[low].text.length == depth)
            best = &specials->tokens[low++];
        if (depth == length)
            break;
        int byte = (unsigned char)text[depth];
        size_t end = high;
        low = lower_bound(specials, low, end, depth, byte);
        high = lower_bound(specials, low, end, depth, byte + 1);
    }
    return best;
}

size_t special_tokens_find(const struct special_tokens *specials, const char *text, size_t length,
                           size_t from, const struct special_token **out) {
    if (specials->count == 0)
        return length;
    for (size_t i = from; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (specials->first[byte] == specials->first[byte + 1])
            continue;
        const struct special_token *match = match_at(specials, text + i, length - i);
        if (match != NULL) {
            *out = match;
            return i;
        }
    }
    return length;
}
