/* Private to kernels/cpu: the collective ops, for both CPU backends. The ranks of a group are
 * threads of one process, or processes that send messages (cpu_group_private.h); results have the
 * same bits. Each slice is summed in the order of the ranks by the rank that owns it, which sends
 * the sum to all: so there is only one result, regardless of timing. */
#ifndef QUIRE_KERNELS_CPU_RANKS_CPU_GROUP_H
#define QUIRE_KERNELS_CPU_RANKS_CPU_GROUP_H

#include "kernels/backend.h"
#include "kernels/thread_pool.h"

/* Like backend_group_create and backend_group_create_remote, for a checked number of ranks.
 */
int cpu_group_create(int32_t num_ranks, struct backend_group **out, struct error *err);
int cpu_group_create_remote(struct transport *transport, int32_t first_rank, int32_t num_ranks,
                            struct backend_group **out, struct error *err);

/* A rank's view of the group. */
struct cpu_rank {
    struct backend_group *group; /* NULL: no group, and the ops do nothing */
    int32_t rank;
    struct thread_pool *pool; /* NULL: the caller alone computes */
    struct buffer row_sums;   /* double [2][max_num_batched_tokens], for cpu_group_sum_rows */
    int32_t max_rows;
};

/* `pool` outlives the rank. Fails with ERROR_CONFIG for a rank that the group does not have, or
 * ERROR_MEMORY. */
int cpu_rank_init(struct cpu_rank *out, const struct backend_config *config,
                  struct thread_pool *pool, struct error *err);
void cpu_rank_finish(struct cpu_rank *rank); /* accepts a zeroed one */
/* Returns 0, or -1 with the first failure of a collective op, after which they do nothing. */
int cpu_rank_status(const struct cpu_rank *rank, struct error *err);

/* See the op of that name in backend.h. */
void cpu_group_all_reduce(const struct cpu_rank *rank, const struct all_reduce_args *args);
void cpu_group_gather_columns(const struct cpu_rank *rank, const struct gather_columns_args *args);
/* sampled_tokens: this rank's, one per sample row of the step. */
void cpu_group_share_samples(const struct cpu_rank *rank, const struct share_samples_args *args,
                             int32_t *sampled_tokens);

/* Like gather_columns, but only for the first lengths[row] columns of each row, which are
 * contiguous in args->x. lengths are those of this rank, or on rank 0 of all: [ranks][num_rows].
 * The rest of args->out is unchanged. */
void cpu_group_gather_beginnings(const struct cpu_rank *rank,
                                 const struct gather_columns_args *args, const int32_t *lengths);
/* Gathers the same number of bytes of each rank on rank 0, whose own come first: out is
 * [ranks][bytes] there. */
void cpu_group_gather(const struct cpu_rank *rank, const void *own, size_t bytes, void *out);
/* Broadcasts rank 0's bytes to all ranks. */
void cpu_group_broadcast(const struct cpu_rank *rank, void *data, size_t bytes);

/* Returns [num_rows] sums over the ranks of the first num_rows elements of row_sums, in memory of
 * the rank that is valid until the next call. After a failure they are meaningless. */
const double *cpu_group_sum_rows(const struct cpu_rank *rank, int32_t num_rows);

#endif
