/* A matrix is created empty and its rows are read, requantised if so wished, and handed to the
 * backend a piece at a time; what stays in memory is the backend's own form. */
#include "config/base/check.h"
#include "models/files/tensor_table.h"
#include "models/weights/weights_loader.h"

#include <stdlib.h>

enum { MAX_PARTS = 3 };

enum dtype weights_matrix_dtype(const struct weights_options *options, enum dtype stored,
                                int64_t cols) {
    enum dtype wanted = options->quantization;
    if (wanted == DTYPE_COUNT || dtype_is_quantised(stored) ||
        cols % dtype_block_elements(wanted) != 0)
        return stored;
    return wanted;
}

struct matrix_source {
    const struct tensor_info *tensors[MAX_PARTS];
    struct matrix_part parts[MAX_PARTS];
    float *biases[MAX_PARTS];
    int32_t cols;
};

static float *read_bias(struct weights_loader *l, const struct weights_part *part, float scale) {
    float *bias = weights_loader_read_vector(l, part->place, "bias", part->rows);
    for (int32_t i = 0; bias != NULL && i < part->rows; i++)
        bias[i] *= scale;
    return bias;
}

/* The biases are the caller's to free, also after a failure. */
static int find_parts(struct weights_loader *l, const struct weights_part *wanted, int num_parts,
                      float bias_scale, struct matrix_source *out) {
    for (int i = 0; i < num_parts; i++) {
        out->tensors[i] =
            weights_loader_find(l, wanted[i].place, "weight", wanted[i].rows, out->cols);
        if (out->tensors[i] == NULL)
            return -1;
        if (wanted[i].biased && (out->biases[i] = read_bias(l, &wanted[i], bias_scale)) == NULL)
            return -1;
        out->parts[i] = (struct matrix_part){
            .dtype = weights_matrix_dtype(l->options, out->tensors[i]->dtype, out->cols),
            .rows = wanted[i].rows,
            .bias = out->biases[i],
        };
    }
    return 0;
}

/* `why` says what, this says where. */
static int explain(const struct weights_loader *l, const struct tensor_info *tensor,
                   const struct error *why) {
    return error_set(l->err, why->code, "%s: tensor '%.*s': %s", tensor_file_path(l->model->file),
                     text_print_length(tensor->name), tensor->name.data, why->message);
}

/* The piece's rows in the type they are held in. */
static const void *convert(struct weights_loader *l, enum dtype stored, enum dtype held,
                           int32_t num_rows, int32_t cols) {
    if (stored == held)
        return l->piece;
    const uint8_t *src = l->piece;
    uint8_t *dst = l->requantised;
    float values[1024];
    CHECK(cols % dtype_block_elements(held) == 0);
    size_t left = (size_t)num_rows * (size_t)cols;
    while (left > 0) {
        size_t count = left < 1024 ? left : 1024;
        dtype_to_f32(stored, src, values, count);
        dtype_from_f32(held, values, dst, count);
        src += dtype_row_bytes(stored, count);
        dst += dtype_row_bytes(held, count);
        left -= count;
    }
    return l->requantised;
}

/* first_row: of the part, in the matrix. */
static int stream_part(struct weights_loader *l, const struct matrix_source *source, int part,
                       int32_t first_row, struct matrix *matrix) {
    struct backend *b = l->backend;
    struct error why = {0};
    const struct tensor_info *tensor = source->tensors[part];
    enum dtype held = source->parts[part].dtype;
    size_t row_bytes = dtype_row_bytes(tensor->dtype, (size_t)source->cols);
    CHECK(row_bytes > 0 && row_bytes <= WEIGHTS_PIECE_BYTES);
    int32_t rows_per_piece = (int32_t)(WEIGHTS_PIECE_BYTES / row_bytes);
    for (int32_t row = 0, count; row < source->parts[part].rows; row += count) {
        count = source->parts[part].rows - row;
        count = count < rows_per_piece ? count : rows_per_piece;
        if (weights_loader_read(l, tensor, (size_t)row * row_bytes, (size_t)count * row_bytes) != 0)
            return -1;
        const void *data = convert(l, tensor->dtype, held, count, source->cols);
        if (b->ops->matrix_fill(b, matrix, first_row + row, count, data, &why) != 0)
            return explain(l, tensor, &why);
    }
    return 0;
}

static int load_rows(struct weights_loader *l, const struct matrix_source *source, int num_parts,
                     struct matrix *matrix) {
    int32_t first_row = 0;
    for (int i = 0; i < num_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        if (stream_part(l, source, i, first_row, matrix) != 0)
            return -1;
        first_row += part->rows;
        size_t row_bytes = dtype_row_bytes(part->dtype, (size_t)source->cols);
        row_bytes += part->bias != NULL ? sizeof(*part->bias) : 0;
        l->weights->bytes += (size_t)part->rows * row_bytes;
    }
    return 0;
}

static int load_parts(struct weights_loader *l, const struct matrix_source *source, int num_parts,
                      struct matrix **out) {
    struct backend *b = l->backend;
    struct error why = {0};
    struct matrix *matrix;
    if (b->ops->matrix_create(b, source->parts, num_parts, source->cols, &matrix, &why) != 0)
        return explain(l, source->tensors[0], &why);
    if (load_rows(l, source, num_parts, matrix) != 0) {
        b->ops->matrix_destroy(b, matrix);
        return -1;
    }
    *out = matrix;
    return 0;
}

int weights_matrix_load(struct weights_loader *l, const struct weights_part *parts, int num_parts,
                        int32_t cols, float bias_scale, struct matrix **out) {
    CHECK(num_parts <= MAX_PARTS);
    struct matrix_source source = {.cols = cols};
    int status = find_parts(l, parts, num_parts, bias_scale, &source);
    if (status == 0)
        status = load_parts(l, &source, num_parts, out);
    for (int i = 0; i < num_parts; i++)
        free(source.biases[i]);
    return status;
}
