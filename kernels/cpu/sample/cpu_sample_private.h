/* Shared by the parts of the CPU's sampling: a row being sampled, and the tokens that are left of
 * it.
 *
 * A weight is exp((logit - max) / temperature) as a multiple of 2^-34, so that sums are exact and
 * the same in any order (vocabularies up to 2^18). */
#ifndef QUIRE_KERNELS_CPU_SAMPLE_CPU_SAMPLE_PRIVATE_H
#define QUIRE_KERNELS_CPU_SAMPLE_CPU_SAMPLE_PRIVATE_H

#include "kernels/backend.h"
#include "kernels/cpu/levels/cpu_op_kernels.h"
#include "kernels/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_backend;

#define SAMPLE_CHUNK 512 /* number of tokens whose weights are summed at a time */

struct cpu_sampler {
    const struct cpu_op_kernels *op;
    const struct sample_row *row;
    struct sample_scale scale; /* of the whole row */
    int32_t vocab_size;
    int32_t first_token, num_tokens;     /* of the vocabulary: this rank's part of the row */
    const float *logits;                 /* [num_tokens], edited */
    struct sample_candidate *candidates; /* [num_tokens], or more */
    struct sample_candidate *heap;       /* likewise */
    double *sums;                        /* [cpu_sample_num_chunks(num_tokens)] of weights */
};

static inline int32_t cpu_sample_num_chunks(int32_t num_tokens) {
    return (num_tokens + SAMPLE_CHUNK - 1) / SAMPLE_CHUNK;
}

/* Returns the bytes of a worker's memory for the arrays of a sampler. */
size_t cpu_sample_worker_bytes(int32_t num_tokens);
/* Points the arrays into that memory. */
void cpu_sample_bind(struct cpu_sampler *s, int32_t num_tokens, void *memory);

/* A call of the sample op, and one of its rows. */
struct cpu_sample_call {
    const struct cpu_backend *backend;
    const struct sample_args *args;
};
/* memory: cpu_sample_worker_bytes(args->vocab_size). */
void cpu_sample_row(const struct cpu_sample_call *call, int64_t row, void *memory);

/* cpu_sample_filter.c. */

/* Returns the token of the row, which has the tokens of the whole vocabulary: steps 4 to 10. *mu is
 * that of struct sample_output. */
int32_t cpu_sample_choose(const struct cpu_sampler *s, float *mu);

/* How the tokens of an unshaped row are filtered. */
enum cpu_sample_filters {
    SAMPLE_UNFILTERED,
    SAMPLE_BY_MASS, /* by top_p alone, of the weight of all tokens */
    SAMPLE_BY_BOUND /* by top_k or min_p, and then possibly top_p of what is left */
};
enum cpu_sample_filters cpu_sample_filters(const struct cpu_sampler *s);

/* Fills `sums` and returns the total, both over this rank's tokens. */
double cpu_sample_sum(const struct cpu_sampler *s);
/* Returns the token at which the sum of weights exceeds `point`, starting from `sum`, the weight of
 * the tokens before; if none does, the last with a nonzero weight. Called after cpu_sample_sum. */
int32_t cpu_sample_pick(const struct cpu_sampler *s, double sum, double point);
/* Returns the first token with the largest logit, which is on this rank. */
int32_t cpu_sample_first_of(const struct cpu_sampler *s, float largest);
/* Returns top_k; 0: all tokens are kept. */
int32_t cpu_sample_top_k(const struct cpu_sampler *s);
/* Return a lower bound of the exponents of all kept tokens: by min_p; by top_k, if this rank has k
 * tokens with a nonzero weight; by top_p alone, of the weight of all tokens. */
float cpu_sample_bound_of_min_p(const struct cpu_sampler *s);
float cpu_sample_bound_of_top_k(const struct cpu_sampler *s, int32_t k);
float cpu_sample_bound_of_mass(const struct cpu_sampler *s, double total);
/* Reduces the n candidates, which are all tokens that reach the bound, to those that top_k and
 * top_p keep; returns their number. total: with SAMPLE_BY_MASS, the weight of all tokens. */
int32_t cpu_sample_filter(const struct cpu_sampler *s, int32_t n, double total);
/* Samples a token from the n candidates. */
int32_t cpu_sample_draw(const struct cpu_sampler *s, int32_t n);

/* cpu_sample_cut.c. */

/* Limits the kept candidates, from the most probable down, by number and by mass: until either is
 * reached. */
struct cpu_sample_cut {
    int32_t count;
    double mass;
};

/* Finds the last of the n candidates that the limit keeps, in order of descending logit (none is
 * above `top`) and ascending id; false: it keeps all. Changes the heap. */
bool cpu_sample_find_last(const struct cpu_sampler *s, int32_t n, float top,
                          struct cpu_sample_cut limit, struct sample_candidate *out);
/* Reduces the n candidates to the limit, keeping them in id order; returns how many are left. */
int32_t cpu_sample_keep_top(const struct cpu_sampler *s, int32_t n, struct cpu_sample_cut limit);
double cpu_sample_mass(const struct sample_candidate *c, int32_t n);
/* Fills `candidates` with the tokens whose exponents are at least `lowest`, in id order; returns
 * how many there are. */
int32_t cpu_sample_collect(const struct cpu_sampler *s, float lowest);

/* cpu_sample_shape.c: steps 4, 7 to 9 of sampling.h, and Mirostat. */

/* Bans in place those of the logits [n], whose largest is `max`, that top_n_sigma drops. */
void cpu_sample_drop_below_sigma(const struct sampling_settings *by, float *logits, int32_t n,
                                 float max);
/* Reduces the n candidates, which stay in id order; returns how many are left. Weights become those
 * of the dynamic temperature. */
int32_t cpu_sample_shape(const struct cpu_sampler *s, int32_t n);
/* Fills `candidates` with the tokens that Mirostat keeps; returns their number. */
int32_t cpu_sample_mirostat(const struct cpu_sampler *s);

#endif
