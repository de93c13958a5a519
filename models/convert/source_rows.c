/* The rows of a planned tensor: those of a tensor in their order or that of its rotated pairs, or
 * those that a folder has in any of the forms of tensor_source.h. */
#include "models/convert/conversion_private.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <stdlib.h>
#include <string.h>

void source_rows_init(struct source_rows *rows, const struct conversion *c,
                      const struct planned_tensor *planned, size_t cols, size_t matrix_rows) {
    *rows = (struct source_rows){
        .c = c, .planned = planned, .cols = cols, .matrix_rows = matrix_rows, .matrix = -1};
}

static void release(struct source_rows *rows) {
    for (int i = 0; i < TENSOR_SOURCE_MAX_TENSORS; i++) {
        free(rows->raw[i]);
        rows->raw[i] = NULL;
    }
    rows->matrix = -1;
}

void source_rows_finish(struct source_rows *rows) {
    release(rows);
    free(rows->line);
}

static int no_memory(const struct source_rows *rows, struct error *err) {
    return error_set(err, ERROR_MEMORY, "no memory for rows of '%s'", rows->planned->tensor.name);
}

/* --- A tensor --- */

/* Takes some elements of each row. */
static int read_elements(struct source_rows *rows, size_t first, size_t count, uint8_t *dst,
                         struct error *err) {
    const struct planned_tensor *planned = rows->planned;
    size_t item = dtype_block_bytes(planned->tensor.from);
    size_t line_bytes = (size_t)planned->source_cols * item;
    if (rows->line == NULL && (rows->line = malloc(line_bytes)) == NULL)
        return no_memory(rows, err);
    for (size_t row = first; row < first + count; row++) {
        if (tensor_read(rows->c->file, planned->source, row * line_bytes, line_bytes, rows->line,
                        err) != 0)
            return -1;
        const uint8_t *from = rows->line + (size_t)planned->first_col * item;
        for (size_t i = 0; i < rows->cols; i++, dst += item)
            memcpy(dst, from + i * (size_t)planned->col_step * item, item);
    }
    return 0;
}

static int read_tensor(struct source_rows *rows, size_t first, size_t count, uint8_t *dst,
                       struct error *err) {
    const struct planned_tensor *planned = rows->planned;
    size_t row_bytes = dtype_row_bytes(planned->tensor.from, rows->cols);
    if (planned->source_cols > 0)
        return read_elements(rows, first, count, dst, err);
    return tensor_read(rows->c->file, planned->source, first * row_bytes, count * row_bytes, dst,
                       err);
}

/* --- A folder's matrices --- */

static size_t index_in_source(const struct source_rows *rows) {
    return rows->source.num_experts > 1 ? (size_t)rows->matrix : 0;
}

/* Reads the tensors that rows are assembled of, as far as they are a matrix's. */
static int read_parts(struct source_rows *rows, struct error *err) {
    const struct tensor_source *source = &rows->source;
    for (int i = 0; i < source->num_tensors; i++) {
        if (source->tensors[i] == NULL)
            continue;
        size_t bytes = tensor_source_part_bytes(source, i);
        if ((rows->raw[i] = malloc(bytes + 1)) == NULL)
            return no_memory(rows, err);
        if (tensor_read(rows->c->file, source->tensors[i], index_in_source(rows) * bytes, bytes,
                        rows->raw[i], err) != 0)
            return -1;
    }
    return 0;
}

static int select_matrix(struct source_rows *rows, int32_t matrix, struct error *err) {
    struct tensor_place place = rows->planned->place;
    if (rows->matrix == matrix)
        return 0;
    if (rows->planned->has_experts_apart)
        place.expert = matrix;
    release(rows);
    rows->matrix = matrix;
    CHECK(tensor_source_find(rows->c->model, place, &rows->source));
    return rows->source.assemble != NULL ? read_parts(rows, err) : 0;
}

/* Reads rows of one matrix, from `first` of the source's on. */
static int read_placed(struct source_rows *rows, int32_t matrix, size_t first, size_t count,
                       uint8_t *dst, struct error *err) {
    const struct tensor_source *source = &rows->source;
    if (select_matrix(rows, matrix, err) != 0)
        return -1;
    if (source->assemble == NULL) {
        size_t row_bytes = dtype_row_bytes(source->dtype, rows->cols);
        size_t offset = index_in_source(rows) * tensor_source_part_bytes(source, 0);
        return tensor_read(rows->c->file, source->tensors[0], offset + first * row_bytes,
                           count * row_bytes, dst, err);
    }
    const char *wrong = source->assemble(source, (const uint8_t *const *)rows->raw, (int32_t)first,
                                         (int32_t)count, dst);
    if (wrong == NULL)
        return 0;
    return error_set(err, ERROR_MODEL, "%s: tensor '%.*s': %s", rows->c->path,
                     text_print_length(source->tensors[0]->name), source->tensors[0]->name.data,
                     wrong);
}

/* --- All --- */

/* Row r of a head comes from its first half if r is even, else from its second. */
static size_t interleaved_row(const struct source_rows *rows, size_t row) {
    size_t head_rows = rows->matrix_rows / (size_t)rows->planned->interleaved_heads;
    size_t head = row / head_rows, r = row % head_rows;
    return head * head_rows + (r % 2) * (head_rows / 2) + r / 2;
}

int source_rows_read(struct source_rows *rows, size_t first, size_t count, uint8_t *dst,
                     struct error *err) {
    const struct planned_tensor *planned = rows->planned;
    size_t row_bytes = dtype_row_bytes(planned->tensor.from, rows->cols);
    bool is_tensor = planned->source != NULL, is_permuted = planned->interleaved_heads > 0;
    if (is_tensor && !is_permuted)
        return read_tensor(rows, first, count, dst, err);
    for (size_t run; count > 0; first += run, count -= run, dst += run * row_bytes) {
        size_t matrix = first / rows->matrix_rows, row = first % rows->matrix_rows;
        run = is_permuted ? 1 : min_size(count, rows->matrix_rows - row);
        row = is_permuted ? interleaved_row(rows, row) : row + (size_t)planned->first_row;
        if ((is_tensor ? read_tensor(rows, row, run, dst, err)
                       : read_placed(rows, (int32_t)matrix, row, run, dst, err)) != 0)
            return -1;
    }
    return 0;
}
