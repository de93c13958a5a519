/* Compares two formats of the matrix product, or two ways of attention, on this machine. */
#ifndef QUIRE_KERNELS_CPU_CPU_PROBE_H
#define QUIRE_KERNELS_CPU_CPU_PROBE_H

#include "kernels/dtype.h"

#include <stdbool.h>

struct cpu_attention_kernels; /* cpu_ops.h */
struct cpu_gemm_format;

/* Returns whether the product of a batch of rows, weights and activations in the caches, takes less
 * time in `format` than in `other` by a factor of 1.2, and that of one row is not clearly slower.
 * Each takes the best of many short runs that alternate, of which other work on the machine leaves
 * some alone: where the difference is not near these bounds, the answer is the same from start to
 * start. False when memory is short. */
bool cpu_probe_is_faster(enum dtype dtype, const struct cpu_gemm_format *format,
                         const struct cpu_gemm_format *other);

/* The same of attention over 256 tokens for a tile of rows, and for one token. Both keep elements
 * of at most 4 bytes. */
bool cpu_probe_is_attention_faster(const struct cpu_attention_kernels *kernels,
                                   const struct cpu_attention_kernels *other);

#endif
