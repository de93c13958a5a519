#include "tests/kernels/weights_fixture.h"

#include "kernels/cuda/packed/packed_layout.h"
#include "tests/kernels/random_weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_TOKENS 512

/* Of a row of E4M3_128. */
static void leave_out_nan(char *row, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (i % dtype_block_bytes(DTYPE_E4M3_128) >= sizeof(float) && (row[i] & 0x7f) == 0x7f)
            row[i] ^= 1;
}

void weights_add_part(const struct kernel_fixture *f, struct weights *w, enum dtype dtype,
                      int32_t rows, bool biased, uint64_t *seed) {
    size_t n = (size_t)rows * (size_t)w->cols, row_bytes = dtype_row_bytes(dtype, (size_t)w->cols);
    int p = w->num_parts++;
    w->values[p] = kernel_fixture_memory(n * sizeof(float));
    w->data[p] = kernel_fixture_memory((size_t)rows * row_bytes);
    w->biases[p] = kernel_fixture_random_floats(seed, (size_t)rows);
    for (int32_t r = 0; r < rows; r++) {
        random_weights_row(seed, dtype, w->data[p] + (size_t)r * row_bytes, (size_t)w->cols);
        if (f->fp8_activations && dtype == DTYPE_E4M3_128)
            leave_out_nan(w->data[p] + (size_t)r * row_bytes, row_bytes);
        w->biases[p][r] *= biased ? 4 : 0;
    }
    dtype_to_f32(dtype, w->data[p], w->values[p], n);
    w->parts[p] = (struct matrix_part){dtype, rows, w->data[p], biased ? w->biases[p] : NULL};
    w->rows += rows;
    bool was_packed = p == 0 || w->is_packed;
    w->is_packed = was_packed && packed_form_index(dtype) >= 0;
    for (int i = was_packed ? 0 : p; i <= p && !w->is_packed; i++)
        kernel_fixture_round(f, w->values[i], (size_t)w->parts[i].rows * (size_t)w->cols);
}

void weights_finish(struct weights *w) {
    for (int p = 0; p < w->num_parts; p++) {
        free(w->data[p]);
        free(w->values[p]);
        free(w->biases[p]);
    }
}

int32_t weights_random_cols(enum dtype dtype, int max_steps, uint64_t *seed) {
    int32_t step = dtype_block_elements(dtype) > 32 ? dtype_block_elements(dtype) : 32;
    return step * kernel_fixture_random_in(seed, 1, step > 32 ? 2 : max_steps);
}

const float *weights_row(const struct weights *w, int32_t r) {
    int p = 0;
    for (; r >= w->parts[p].rows; p++)
        r -= w->parts[p].rows;
    return w->values[p] + (size_t)r * (size_t)w->cols;
}

struct matrix *weights_create(const struct kernel_fixture *f, struct backend *b,
                              const struct weights *w) {
    struct matrix_part parts[WEIGHTS_MAX_PARTS];
    for (int p = 0; p < w->num_parts; p++) {
        parts[p] = w->parts[p];
        if (b == f->oracle && f->dtype != DTYPE_F32)
            parts[p].dtype = DTYPE_F32, parts[p].data = w->values[p];
    }
    return kernel_fixture_matrix(b, parts, w->num_parts, w->cols, MATRIX_LINEAR);
}

static enum dtype type_of(const struct kernel_fixture *f, const struct backend *b) {
    return b == f->oracle ? DTYPE_F32 : f->dtype;
}

float *weights_multiply(const struct kernel_fixture *f, struct backend *b,
                        const struct matrix *matrix, const struct weights *w, const float *x,
                        const struct linear_args *args, const float *initial) {
    size_t num_rows = (size_t)args->num_rows, n = num_rows * (size_t)w->rows;
    enum dtype dtype = type_of(f, b), out_dtype = args->float_out ? DTYPE_F32 : dtype;
    void *device_x = kernel_fixture_put(b, dtype, x, num_rows * (size_t)w->cols);
    void *device_out = kernel_fixture_put(b, out_dtype, initial, n);
    struct linear_args full = *args;
    full.x = device_x, full.weight = matrix, full.out = device_out;
    full.accumulate = initial != NULL;
    b->ops->linear(b, &full);
    kernel_fixture_synchronize(b);
    float *out = kernel_fixture_guarded(n);
    kernel_fixture_get(b, out_dtype, device_out, out, n);
    kernel_fixture_free(b, device_x);
    kernel_fixture_free(b, device_out);
    return out;
}

static void call_embed(struct backend *b, const void *args) {
    b->ops->embed(b, args);
}

float *weights_embed(const struct kernel_fixture *f, struct backend *b, const struct matrix *matrix,
                     const struct weights *w, int32_t first_row, const int32_t *tokens,
                     int32_t num_tokens, float scale) {
    static const int32_t zeros[MAX_TOKENS];
    assert_in_range(num_tokens, 1, MAX_TOKENS);
    const struct step_inputs step = {.num_tokens = num_tokens,
                                     .num_seqs = 1,
                                     .max_blocks_per_seq = 1,
                                     .token_ids = tokens,
                                     .positions = zeros,
                                     .slot_mapping = zeros,
                                     .query_start = zeros,
                                     .context_lens = zeros,
                                     .block_tables = zeros};
    size_t n = (size_t)num_tokens * (size_t)w->cols;
    enum dtype dtype = type_of(f, b);
    struct embed_args args = {.table = matrix,
                              .out = kernel_fixture_put(b, dtype, NULL, n),
                              .first_row = first_row,
                              .scale = scale};
    b->ops->step_begin(b, &step);
    kernel_fixture_run(b, call_embed, &args, args.out, dtype_row_bytes(dtype, n));
    float *out = kernel_fixture_guarded(n);
    kernel_fixture_get(b, dtype, args.out, out, n);
    kernel_fixture_free(b, args.out);
    return out;
}
