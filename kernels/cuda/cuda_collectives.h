/* The collective ops of kernels/backend.h. */
#ifndef QUIRE_KERNELS_CUDA_CUDA_COLLECTIVES_H
#define QUIRE_KERNELS_CUDA_CUDA_COLLECTIVES_H

#include "kernels/cuda/cuda_backend.h"

void cuda_all_reduce(struct backend *b, const struct all_reduce_args *args);
void cuda_gather_columns(struct backend *b, const struct gather_columns_args *args);
void cuda_share_samples(struct backend *b, const struct share_samples_args *args);
/* A norm whose groups the ranks of a group share out. */
void cuda_norm_over_ranks(struct cuda_backend *b, const struct norm_args *args);

/* Memory for the parts of all ranks of b's group. Of a backend that is alone: nothing. */
int cuda_collectives_create(struct cuda_backend *b, struct error *err);
void cuda_collectives_destroy(struct cuda_backend *b);

#endif
