/* Private to kernels/cpu: the parts of a product that `linear` and `linear_experts` share. */
#ifndef QUIRE_KERNELS_CPU_OPS_CPU_GEMM_H
#define QUIRE_KERNELS_CPU_OPS_CPU_GEMM_H

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/cpu_gemm_format.h"

#define GEMM_PORTION_PANELS 4 /* that a thread takes at a time */

/* Packed rows times the panels of consecutive segments of a matrix. */
struct gemm_product {
    const struct matrix *matrix;
    const struct matrix_segment *segments;
    int num_segments;
    const uint8_t *following;                 /* panels to be prefetched after the last segment's */
    const uint8_t *packed[GEMM_MAX_PACKINGS]; /* by the matrix's packings */
    int32_t num_rows;
    float *out; /* element [0, first column of the first panel that is multiplied] */
    size_t out_stride;
    const int32_t *out_rows; /* as of a gemm_job */
    float scale;
    bool accumulate;
};

/* Returns memory of GEMM_CHUNK_ROWS rows of any matrix that has this packing, until the next op. */
uint8_t *cpu_gemm_packed_rows(struct cpu_backend *b, const struct cpu_row_packing *packing);
/* Packs row `row` of num_rows into `packed`, their place. */
void cpu_gemm_pack_row(const struct cpu_row_packing *packing, const float *x, int32_t depth,
                       uint8_t *packed, int32_t num_rows, int32_t row);
/* Returns how many rows are packed in one hand-over to a thread. */
int64_t cpu_gemm_pack_portion(int64_t num_rows, int64_t depth);
/* Multiplies with panels begin..end-1, counted from the first segment's. Returns their columns. */
int32_t cpu_gemm_multiply(const struct gemm_product *product, int32_t begin, int32_t end);
/* Returns the first column of a panel, counted in the same way. */
int32_t cpu_gemm_first_column(const struct gemm_product *product, int32_t panel);
/* Notes that the product of `matrix` begins, whose weights to be read are these, NULL if that is
 * not known ahead: the next time they are prefetched before it. Announces those expected next. */
void cpu_gemm_expect_next(struct cpu_backend *b, const struct matrix *matrix, const void *weights,
                          size_t bytes);

#endif
