/* Private to this folder: a matrix on the device, its packed weights, and products of our own with
 * some of its rows. */
#ifndef QUIRE_KERNELS_CUDA_MATRIX_CUDA_PACKED_WEIGHTS_H
#define QUIRE_KERNELS_CUDA_MATRIX_CUDA_PACKED_WEIGHTS_H

#include "kernels/cuda/packed/packed_launch.h"
#include "kernels/cuda/state/cuda_state.h"

/* Neighbouring parts of one type. */
struct matrix_segment {
    enum dtype dtype; /* of the file */
    int32_t first_row, num_rows;
    int form;                    /* of packed weights (packed_layout.h) */
    struct packed_planes planes; /* likewise */
    float *row_scales; /* [num_rows] where cuBLASLt is to multiply them as they are packed: the
                          scale of all of a row's blocks. NULL: it is not */
    bool is_by_row;    /* all rows so far had one scale each */
};

struct matrix {
    int32_t rows;
    int32_t cols; /* a multiple of CUDA_MATRIX_COLS_STEP */
    struct buffer memory;
    void *values; /* [rows][cols] of activation_dtype; NULL: the segments are packed */
    /* [rows] of each type a product can have, NULL without a bias: cuBLASLt wants the bias in the
     * type of the product. */
    void *bias; /* activation_dtype */
    float *float_bias;
    int num_segments;
    struct matrix_segment segments[];
};

/* 16 bytes of 16-bit elements: rows then start where the fast kernels of cuBLASLt and the 16-byte
 * copies of the other ops can read them. */
#define CUDA_MATRIX_COLS_STEP 8

/* Activations as codes of E4M3 (packed_launch.h, quantise_launch). */
struct quantised_rows {
    uint8_t *codes; /* NULL: they are not */
    float *scales;
};

/* Rows of the weights that are multiplied by one algorithm. */
struct gemm_part {
    const struct linear_args *args;
    const struct matrix_segment *segment; /* that has them; NULL: the matrix has values */
    int32_t first_row, num_rows;
    struct packed_splits splits; /* for a product of our own, of which one is enqueued at a time */
    struct quantised_rows x;     /* likewise; without codes: x is the args' */
};

/* Returns where the result of the part begins if that of the product begins at `out`. */
static inline void *gemm_part_out(const struct gemm_part *part, void *out) {
    return (char *)out +
           (size_t)part->first_row * (part->args->float_out ? sizeof(float) : sizeof(uint16_t));
}

/* Packs rows of a file, of which `data` has num_rows, and sends them to rows first_row on of the
 * segment. Fails when the device does. */
int cuda_packed_fill(struct cuda_backend *b, struct matrix_segment *segment, int32_t cols,
                     int32_t first_row, int32_t num_rows, const void *data, struct error *err);
/* Returns where the weights of a part are. */
struct packed_planes cuda_part_planes(const struct gemm_part *part);
/* The product of our own, for any number of rows. Writes to `out` what the product would leave in
 * gemm_part_out(part, args->out), which may be the same. */
void cuda_multiply_ours(struct cuda_backend *b, const struct gemm_part *part, void *out);
/* Likewise, for a whole matrix and few rows (packed_product_launch, `gated`). */
void cuda_multiply_gated(struct cuda_backend *b, const struct gemm_part *part,
                         enum activation activation);
/* Writes the codes and scales of the part's x, of which weights of E4M3 are multiplied with codes.
 */
void cuda_quantise(struct cuda_backend *b, const struct gemm_part *part);
/* Writes the part's weights to `out` as rows of activation_dtype, rounded to it. */
void cuda_packed_widen(struct cuda_backend *b, const struct gemm_part *part, void *out);
void cuda_packed_embed(struct cuda_backend *b, const struct embed_args *args);

#endif
