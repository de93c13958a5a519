/* Private to kernels/cpu: the sample_vocab_parallel op. */
#ifndef QUIRE_KERNELS_CPU_CPU_SAMPLE_PARALLEL_H
#define QUIRE_KERNELS_CPU_CPU_SAMPLE_PARALLEL_H

#include "kernels/backend.h"
#include "kernels/cpu/cpu_group.h"

struct cpu_sample_request;
struct cpu_sample_answer;

/* What the ranks exchange in one call. Rows are those of the call. */
struct cpu_sample_parallel {
    struct cpu_sample_request *requests; /* [rows] of rank 0 */
    struct cpu_sample_answer *own;       /* [rows] of this rank */
    /* On rank 0: */
    struct cpu_sample_answer *answers; /* [ranks][rows] */
    double *totals;                    /* [rows] the weight of all tokens, if needed */
    int32_t *lengths; /* [ranks][rows] floats that are gathered; on other ranks [rows] */
    int32_t *tokens;  /* [rows] the likeliest, or the target */
    struct buffer memory;
};

/* Allocates for max_logit_rows; nothing without a group. Fails with ERROR_MEMORY. */
int cpu_sample_parallel_init(struct cpu_sample_parallel *out, const struct cpu_rank *rank,
                             const struct serving_limits *limits, struct error *err);
void cpu_sample_parallel_finish(struct cpu_sample_parallel *p); /* accepts a zeroed one */

/* See the op in backend.h. */
void cpu_sample_vocab_parallel(struct backend *b, const struct vocab_parallel_sample_args *args);

#endif
