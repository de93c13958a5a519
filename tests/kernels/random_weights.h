/* Weights as files hold them, for the checks and the benches of the matrix product. */
#ifndef QUIRE_TESTS_KERNELS_RANDOM_WEIGHTS_H
#define QUIRE_TESTS_KERNELS_RANDOM_WEIGHTS_H

#include "kernels/dtype.h"

#include <stddef.h>
#include <stdint.h>

/* A row of n elements: numbers in [-1, 1) for a plain type, else blocks of random bytes whose
 * factors give values of about that size. Successive rows of one seed differ. */
void random_weights_row(uint64_t *seed, enum dtype dtype, void *out, size_t n);

/* Sets every byte of a quantised block but the factors and the zero point, and the first factor: d,
 * or of a type whose factors are powers of 2, one near it. */
void random_weights_fill_block(enum dtype dtype, void *block, uint8_t pattern, uint16_t d);

/* An element type that takes rows of `cols`. */
enum dtype random_weights_dtype(uint64_t *seed, int32_t cols);

#endif
