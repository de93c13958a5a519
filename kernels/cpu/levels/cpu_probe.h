/* Compares two formats of the matrix product, or two ways of attention, on this machine. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_CPU_PROBE_H
#define QUIRE_KERNELS_CPU_LEVELS_CPU_PROBE_H

#include "kernels/dtype.h"

#include <stdbool.h>

struct cpu_attention_kernels; /* cpu_op_kernels.h */
struct cpu_gemm_format;

/* Returns whether the product of a batch of rows, weights and activations in the caches, takes less
 * time in `format` than in `other` by a factor of 1.2, and that of one row is not clearly slower.
 * Each time is the best of many short alternating runs, some of which are undisturbed by other work
 * on the machine. Unless the difference is near these bounds, the answer is the same at every
 * start. False when memory is short. */
bool cpu_probe_is_faster(enum dtype dtype, const struct cpu_gemm_format *format,
                         const struct cpu_gemm_format *other);

/* The same for attention over 256 tokens, for a tile of rows and for one token. Both store elements
 * of at most 4 bytes. */
bool cpu_probe_is_attention_faster(const struct cpu_attention_kernels *kernels,
                                   const struct cpu_attention_kernels *other);

#endif
