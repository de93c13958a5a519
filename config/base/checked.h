/* Overflow-checked size arithmetic for every size that comes from outside. Each function returns
 * false and leaves *out untouched when the true result does not fit. */
#ifndef QUIRE_CONFIG_BASE_CHECKED_H
#define QUIRE_CONFIG_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>

static inline bool checked_add(size_t a, size_t b, size_t *out) {
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

static inline bool checked_mul(size_t a, size_t b, size_t *out) {
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

#endif
