/* Random matrices of several parts for the checks of `linear`, `embed` and `matrix_fill`, and these
 * ops on arrays of a backend. Device values are those that the backends keep, which the oracle gets
 * as F32: those of the file if all parts are of types that a device holds packed, else rounded to
 * f->dtype. */
#ifndef QUIRE_TESTS_KERNELS_WEIGHTS_FIXTURE_H
#define QUIRE_TESTS_KERNELS_WEIGHTS_FIXTURE_H

#include "tests/kernels/kernel_fixture.h"

#define WEIGHTS_MAX_PARTS 3

/* Starts as {.cols = ...}. */
struct weights {
    int32_t rows, cols;
    int num_parts;
    struct matrix_part parts[WEIGHTS_MAX_PARTS]; /* as a file holds them */
    char *data[WEIGHTS_MAX_PARTS];
    bool is_packed;                   /* on a device */
    float *values[WEIGHTS_MAX_PARTS]; /* [rows, cols], rounded if not */
    float *biases[WEIGHTS_MAX_PARTS]; /* [rows], zeros where the part has none */
};

void weights_add_part(const struct kernel_fixture *f, struct weights *w, enum dtype dtype,
                      int32_t rows, bool biased, uint64_t *seed);
void weights_finish(struct weights *w);

/* A few blocks, at most max_steps of 32 elements unless one has more. */
int32_t weights_random_cols(enum dtype dtype, int max_steps, uint64_t *seed);
/* Row r over all parts. */
const float *weights_row(const struct weights *w, int32_t r);

struct matrix *weights_create(const struct kernel_fixture *f, struct backend *b,
                              const struct weights *w);

/* The product of x [num_rows, cols], floats that the backend can hold: [num_rows, rows] in host
 * memory, to be freed by kernel_fixture_guarded_free. `initial` NULL: the output starts as NaN and
 * is overwritten, else the product is added to it. */
float *weights_multiply(const struct kernel_fixture *f, struct backend *b,
                        const struct matrix *matrix, const struct weights *w, const float *x,
                        const struct linear_args *args, const float *initial);
/* Likewise [num_tokens, cols]: rows of the matrix, whose first is that of token first_row. */
float *weights_embed(const struct kernel_fixture *f, struct backend *b, const struct matrix *matrix,
                     const struct weights *w, int32_t first_row, const int32_t *tokens,
                     int32_t num_tokens, float scale);

#endif
