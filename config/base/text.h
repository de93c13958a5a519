/* A string somewhere in a larger piece of memory: not NUL-terminated, and valid as long as what it
 * points into. */
#ifndef QUIRE_CONFIG_BASE_TEXT_H
#define QUIRE_CONFIG_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct text {
    const char *data;
    size_t length;
};

/* Bytes begin <= i < end of some text. */
struct text_span {
    size_t begin, end;
};

static inline bool text_is(struct text text, const char *literal) {
    return text.length == strlen(literal) && memcmp(text.data, literal, text.length) == 0;
}

static inline bool text_ends_with(struct text text, const char *end) {
    size_t length = strlen(end);
    return text.length >= length && memcmp(text.data + (text.length - length), end, length) == 0;
}

/* Compares bytes, for sorting names; < 0, 0, > 0. */
static inline int text_compare(struct text a, struct text b) {
    size_t shorter = a.length < b.length ? a.length : b.length;
    int order = shorter > 0 ? memcmp(a.data, b.data, shorter) : 0;
    if (order != 0)
        return order;
    return (a.length > b.length) - (a.length < b.length);
}

/* Returns the length to pass for "%.*s" in a message: long names are cut so that the reason still
 * fits. */
static inline int text_print_length(struct text text) {
    return text.length < 100 ? (int)text.length : 100;
}

/* Copies the bytes to *to and advances *to past them. Returns the copy. */
static inline struct text text_copy(struct text text, char **to) {
    struct text copy = {*to, text.length};
    if (text.length > 0)
        memcpy(*to, text.data, text.length);
    *to += text.length;
    return copy;
}

#endif
