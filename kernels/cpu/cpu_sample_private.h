/* What the parts of the CPU's sampling share: a row on its way to a token, and the tokens that are
 * left of it.
 *
 * A weight is exp((logit - max) / temperature) as a multiple of 2^-34, so that sums are exact and
 * the same in any order (vocabularies up to 2^18). */
#ifndef QUIRE_KERNELS_CPU_CPU_SAMPLE_PRIVATE_H
#define QUIRE_KERNELS_CPU_CPU_SAMPLE_PRIVATE_H

#include "kernels/backend.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_backend;

#define SAMPLE_CHUNK 512 /* tokens whose weights are summed at a time */

struct cpu_sampler {
    const struct cpu_op_kernels *op;
    const struct sample_row *row;
    struct sample_scale scale; /* of the whole row */
    int32_t vocab_size;
    int32_t first_token, num_tokens;     /* of the vocabulary: what this rank has of the row */
    const float *logits;                 /* [num_tokens], edited */
    struct sample_candidate *candidates; /* [num_tokens], or more */
    struct sample_candidate *heap;       /* likewise */
    double *sums;                        /* [cpu_sample_num_chunks(num_tokens)] of weights */
};

static inline int32_t cpu_sample_num_chunks(int32_t num_tokens) {
    return (num_tokens + SAMPLE_CHUNK - 1) / SAMPLE_CHUNK;
}

/* Memory of a worker for the arrays of a sampler. */
size_t cpu_sample_worker_bytes(int32_t num_tokens);
/* Points the arrays to it. */
void cpu_sample_bind(struct cpu_sampler *s, int32_t num_tokens, void *memory);

/* A call of the sample op, and one of its rows. */
struct cpu_sample_call {
    const struct cpu_backend *backend;
    const struct sample_args *args;
};
/* memory: cpu_sample_worker_bytes(args->vocab_size). */
void cpu_sample_row(const struct cpu_sample_call *call, int64_t row, void *memory);

/* cpu_sample_filter.c. */

/* Returns the token of the row, which has tokens of the whole vocabulary: steps 4 to 10. *mu is
 * what struct sample_output has. */
int32_t cpu_sample_choose(const struct cpu_sampler *s, float *mu);

/* How tokens of a row that is not shaped are kept. */
enum cpu_sample_filters {
    SAMPLE_UNFILTERED,
    SAMPLE_BY_MASS, /* by top_p alone, of what all weigh */
    SAMPLE_BY_BOUND /* by top_k or min_p, and then perhaps top_p, of what is left */
};
enum cpu_sample_filters cpu_sample_filters(const struct cpu_sampler *s);

/* Fills `sums`, and returns the sum of all: of the tokens that are here. */
double cpu_sample_sum(const struct cpu_sampler *s);
/* Returns the token at which the sum of weights exceeds `point`, from `sum` on, which those before
 * weigh; the last that weighs anything, if none does. After cpu_sample_sum. */
int32_t cpu_sample_pick(const struct cpu_sampler *s, double sum, double point);
/* Returns the first token of the largest logit, which is here. */
int32_t cpu_sample_first_of(const struct cpu_sampler *s, float largest);
/* Returns top_k; 0: it keeps all. */
int32_t cpu_sample_top_k(const struct cpu_sampler *s);
/* Exponents that no token is below that is kept: by min_p; by top_k, where k tokens are here that
 * weigh anything; by top_p alone, of what all tokens weigh. */
float cpu_sample_bound_of_min_p(const struct cpu_sampler *s);
float cpu_sample_bound_of_top_k(const struct cpu_sampler *s, int32_t k);
float cpu_sample_bound_of_mass(const struct cpu_sampler *s, double total);
/* Leaves of the n candidates, which are all that reach the bound, what top_k and top_p keep;
 * returns how many. total: with SAMPLE_BY_MASS, what all tokens weigh. */
int32_t cpu_sample_filter(const struct cpu_sampler *s, int32_t n, double total);
/* Draws a token of the n candidates. */
int32_t cpu_sample_draw(const struct cpu_sampler *s, int32_t n);

/* cpu_sample_cut.c. */

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
/* Fills `candidates` with the tokens whose exponents are at least `lowest`, in id order; returns
 * how many there are. */
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
