/* Quantised weights that stay packed on the device (packed_layout.h): filling, products, rows of
 * an embedding. Called by cuda_matrix.c and cuda_gemm.c for matrices without values. */
#ifndef QUIRE_KERNELS_CUDA_MATRIX_CUDA_PACKED_WEIGHTS_H
#define QUIRE_KERNELS_CUDA_MATRIX_CUDA_PACKED_WEIGHTS_H

#include "kernels/cuda/matrix/cuda_gemm.h"

/* Packs rows of a file, of which `data` has num_rows, and sends them to rows first_row on of the
 * segment. Fails when the device does. */
int cuda_packed_fill(struct cuda_backend *b, const struct matrix_segment *segment, int32_t cols,
                     int32_t first_row, int32_t num_rows, const void *data, struct error *err);
void cuda_packed_linear(struct cuda_backend *b, const struct linear_args *args);
void cuda_packed_embed(struct cuda_backend *b, const struct embed_args *args);

#endif
