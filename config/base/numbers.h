/* Minimum and maximum of two numbers, and bytes in the units that people read. */
#ifndef QUIRE_CONFIG_BASE_NUMBERS_H
#define QUIRE_CONFIG_BASE_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

static inline int32_t min_int32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static inline int32_t max_int32(int32_t a, int32_t b) {
    return a > b ? a : b;
}

static inline int64_t min_int64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t max_int64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Returns the bytes in MiB. */
static inline double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

#endif
