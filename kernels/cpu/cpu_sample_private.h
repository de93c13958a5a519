/* What the parts of the CPU's sampling share: a row on its way to a token, and the tokens that are
 * left of it.
 *
 * A weight is exp((logit - max) / temperature) as a multiple of 2^-34, so that sums are exact and
 * the same in any order (vocabularies up to 2^18). */
#ifndef QUIRE_KERNELS_CPU_CPU_SAMPLE_PRIVATE_H
#define QUIRE_KERNELS_CPU_CPU_SAMPLE_PRIVATE_H

#include "kernels/cpu/cpu_ops.h"
#include "kernels/sampling.h"

#include <stdbool.h>
#include <stdint.h>

struct cpu_sampler {
    const struct cpu_op_kernels *op;
    const struct sample_row *row;
    struct sample_scale scale;
    int32_t vocab_size;
    const float *logits;                 /* [vocab_size], edited */
    struct sample_candidate *candidates; /* [vocab_size] */
    struct sample_candidate *heap;       /* [vocab_size] */
    double *sums;                        /* [num_chunks] of weights */
};

/* Limits the candidates to keep, from the most probable down, by number and by mass: until either
 * is reached. */
struct cpu_sample_cut {
    int32_t count;
    double mass;
};

/* Finds the last of the n candidates that the limit keeps, in the order of falling logit, none of
 * which is above `top`, and rising id; false: it keeps all. Changes the heap. */
bool cpu_sample_find_last(const struct cpu_sampler *s, int32_t n, float top,
                          struct cpu_sample_cut limit, struct sample_candidate *out);
/* Cuts the n candidates down to the limit, leaving them in id order; returns how many are left. */
int32_t cpu_sample_keep_top(const struct cpu_sampler *s, int32_t n, struct cpu_sample_cut limit);
double cpu_sample_mass(const struct sample_candidate *c, int32_t n);
/* Fills `candidates` with the tokens whose exponents are at least `lowest`, in id order; returns how
 * many there are. */
int32_t cpu_sample_collect(const struct cpu_sampler *s, float lowest);

/* cpu_sample_shape.c: steps 4, 7 to 9 of sampling.h, and Mirostat. */

/* Bans in place what top_n_sigma drops of the logits [n], whose largest is `max`. */
void cpu_sample_drop_below_sigma(const struct sampling_settings *by, float *logits, int32_t n,
                                 float max);
/* Cuts the n candidates, which are in id order and stay so; returns how many are left. Weights
 * become those of the dynamic temperature. */
int32_t cpu_sample_shape(const struct cpu_sampler *s, int32_t n);
/* Fills `candidates` with what Mirostat keeps; returns how many those are. */
int32_t cpu_sample_mirostat(const struct cpu_sampler *s);

#endif
