/* Private to kernels/cpu: the collective ops, for both CPU backends. The ranks of a group are
 * threads of one process, or processes that send messages (cpu_group_private.h); results have the
 * same bits. A sum is taken in the order of the ranks, by the rank whose slice it is, which brings
 * it to all: so there is one result, whoever is late. */
#ifndef QUIRE_KERNELS_CPU_CPU_GROUP_H
#define QUIRE_KERNELS_CPU_CPU_GROUP_H

#include "kernels/backend.h"
#include "kernels/thread_pool.h"

/* As backend_group_create and backend_group_create_remote, for a number of ranks that was checked.
 */
int cpu_group_create(int32_t num_ranks, struct backend_group **out, struct error *err);
int cpu_group_create_remote(struct transport *transport, int32_t first_rank, int32_t num_ranks,
                            struct backend_group **out, struct error *err);

/* A rank's end of the group. */
struct cpu_rank {
    struct backend_group *group; /* NULL: the backend is alone, and each op has nothing to do */
    int32_t rank;
    struct thread_pool *pool; /* NULL: the caller alone computes */
    struct buffer row_sums;   /* double [2][max_num_batched_tokens], for cpu_group_sum_rows */
    int32_t max_rows;
};

/* `pool` outlives the rank. ERROR_CONFIG for a rank that the group does not have, ERROR_MEMORY. */
int cpu_rank_init(struct cpu_rank *out, const struct backend_config *config,
                  struct thread_pool *pool, struct error *err);
void cpu_rank_finish(struct cpu_rank *rank); /* accepts a zeroed one */
/* 0, or -1 with the first failure of a collective op, after which they do nothing. */
int cpu_rank_status(const struct cpu_rank *rank, struct error *err);

/* As backend.h says of the op of that name. */
void cpu_group_all_reduce(const struct cpu_rank *rank, const struct all_reduce_args *args);
void cpu_group_gather_columns(const struct cpu_rank *rank, const struct gather_columns_args *args);
/* sampled_tokens: of this rank, a number per sample row of the step. */
void cpu_group_share_samples(const struct cpu_rank *rank, const struct share_samples_args *args,
                             int32_t *sampled_tokens);

/* As gather_columns, of the first lengths[row] columns of each row, which follow one another in
 * args->x; of this rank, or on rank 0 of each: [ranks][num_rows]. The rest of args->out stays. */
void cpu_group_gather_beginnings(const struct cpu_rank *rank,
                                 const struct gather_columns_args *args, const int32_t *lengths);
/* Brings as many bytes of each rank to rank 0, whose own come first: out, [ranks][bytes] there. */
void cpu_group_gather(const struct cpu_rank *rank, const void *own, size_t bytes, void *out);
/* Brings rank 0's bytes to all. */
void cpu_group_broadcast(const struct cpu_rank *rank, void *data, size_t bytes);

/* Returns [num_rows] sums over the ranks of the first num_rows elements of row_sums, in memory of
 * the rank that stays as it is until the next call. After a failure they mean nothing. */
const double *cpu_group_sum_rows(const struct cpu_rank *rank, int32_t num_rows);

#endif
