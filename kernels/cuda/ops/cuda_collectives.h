/* The collective ops of kernels/backend.h. */
#ifndef QUIRE_KERNELS_CUDA_OPS_CUDA_COLLECTIVES_H
#define QUIRE_KERNELS_CUDA_OPS_CUDA_COLLECTIVES_H

#include "kernels/cuda/state/cuda_state.h"

void cuda_all_reduce(struct backend *b, const struct all_reduce_args *args);
void cuda_gather_columns(struct backend *b, const struct gather_columns_args *args);
void cuda_share_samples(struct backend *b, const struct share_samples_args *args);
void cuda_send_rows(struct backend *b, const struct stage_rows_args *args);
void cuda_receive_rows(struct backend *b, const struct stage_rows_args *args);
/* A norm whose groups are distributed over the ranks. */
void cuda_norm_over_ranks(struct cuda_backend *b, const struct norm_args *args);

/* Whether all_reduce is NCCL's own. */
bool cuda_sums_by_nccl(const struct cuda_backend *b);

/* For ops that consist of several NCCL operations, on a rank with a group; false after a failure.
 *
 * Gathers the parts of all ranks, `bytes` of each, in `parts`. */
bool cuda_all_gather(struct cuda_backend *b, const void *own, size_t bytes, void *parts);
/* Gathers every rank's part on rank 0, contiguous in comm->parts, where rank 0's own may already
 * be. Rank r's part has part_bytes[r] bytes; each rank knows its own size, rank 0 knows all. */
bool cuda_bring_parts(struct cuda_backend *b, const void *own, const size_t *part_bytes);
/* Once: every rank learns how wide the others' columns are (comm->widths). Waits for the device. */
bool cuda_learn_widths(struct cuda_backend *b, int32_t width);
/* Returns the number of columns of the ranks before this one. */
size_t cuda_columns_before(const struct cuda_comm *comm, int32_t rank);

/* Allocates memory for the parts of all ranks of b's group; nothing without a group. */
int cuda_collectives_create(struct cuda_backend *b, struct error *err);
void cuda_collectives_destroy(struct cuda_backend *b);

#endif
