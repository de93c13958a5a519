/* What the rank keeps of a source's rows is cut, requantised if requested, and handed to the
 * backend a chunk at a time; what stays in memory is the backend's own form. */
#include "models/weights/weights_loader.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "models/weights/weights_reader.h"

#include <stdlib.h>
#include <string.h>

int weights_rows_explain(const struct weights_loader *l, const struct tensor_info *tensor,
                         enum error_code code, const char *why) {
    return error_set(l->err, code, "%s: tensor '%.*s': %s", tensor_file_path(l->model->file),
                     text_print_length(tensor->name), tensor->name.data, why);
}

/* Returns the kept columns of these rows, in contiguous rows. */
static const void *cut_columns(struct weights_loader *l, const struct weights_matrix *plan,
                               enum dtype dtype, const void *rows, int32_t num_rows) {
    if (plan->num_cols == plan->cols)
        return rows;
    size_t row_bytes = dtype_row_bytes(dtype, (size_t)plan->cols);
    size_t kept_bytes = dtype_row_bytes(dtype, (size_t)plan->num_cols);
    const uint8_t *from = (const uint8_t *)rows + dtype_row_bytes(dtype, (size_t)plan->first_col);
    uint8_t *to = l->scratch;
    for (int32_t row = 0; row < num_rows; row++)
        memcpy(to + (size_t)row * kept_bytes, from + (size_t)row * row_bytes, kept_bytes);
    return l->scratch;
}

/* Returns the elements in the type that they are held in; `count` of them are whole blocks. */
static const void *convert(struct weights_loader *l, enum dtype stored, enum dtype held,
                           const void *data, size_t count) {
    if (stored == held)
        return data;
    const uint8_t *src = data;
    uint8_t *dst = l->requantised;
    float values[1024];
    for (size_t left = count, n; left > 0; left -= n) {
        n = min_size(left, 1024);
        dtype_to_f32(stored, src, values, n);
        dtype_from_f32(held, values, dst, n);
        src += dtype_row_bytes(stored, n);
        dst += dtype_row_bytes(held, n);
    }
    return l->requantised;
}

/* Rows of an expert's part, and the row of the matrix where its kept rows begin. */
struct chunk {
    const struct tensor_source *source;
    const uint8_t *data;
    int32_t first_row, num_rows; /* of the source */
    int32_t matrix_row;
};

/* Hands the chunk's share of a span to the backend. span_row: of the matrix, where the span begins.
 */
static int fill_span(struct weights_loader *l, const struct matrix_source *source, int part,
                     const struct chunk *chunk, const struct row_span *span, int32_t span_row,
                     struct matrix *matrix) {
    const struct weights_matrix *plan = source->plan;
    enum dtype stored = source->stored[part];
    struct error why = {0};
    int32_t first = max_int32(chunk->first_row, span->first_row);
    int32_t end = min_int32(chunk->first_row + chunk->num_rows, span->first_row + span->num_rows);
    if (first >= end)
        return 0;
    size_t row_bytes = dtype_row_bytes(stored, (size_t)plan->cols);
    const void *data = chunk->data + (size_t)(first - chunk->first_row) * row_bytes;
    data = cut_columns(l, plan, stored, data, end - first);
    data = convert(l, stored, source->types[part], data,
                   (size_t)(end - first) * (size_t)plan->num_cols);
    if (l->backend->ops->matrix_fill(l->backend, matrix, span_row + first - span->first_row,
                                     end - first, data, &why) != 0)
        return weights_rows_explain(l, chunk->source->tensors[0], why.code, why.message);
    return 0;
}

static int fill_chunk(struct weights_loader *l, const struct matrix_source *source, int part,
                      const struct chunk *chunk, struct matrix *matrix) {
    const struct weights_part *plan = &source->plan->parts[part];
    int32_t span_row = chunk->matrix_row;
    for (int i = 0; i < plan->num_spans; i++) {
        if (fill_span(l, source, part, chunk, &plan->spans[i], span_row, matrix) != 0)
            return -1;
        span_row += plan->spans[i].num_rows;
    }
    return 0;
}

static bool keeps_rows(const struct weights_part *part, int32_t first_row, int32_t num_rows) {
    bool keeps = false;
    for (int i = 0; i < part->num_spans; i++)
        keeps |= part->spans[i].first_row < first_row + num_rows &&
                 first_row < part->spans[i].first_row + part->spans[i].num_rows;
    return keeps;
}

/* One expert's rows of a source. */
struct expert_rows {
    const struct tensor_source *source;
    int part;
    int32_t index;         /* of the expert in the source */
    int32_t matrix_row;    /* where its kept rows begin */
    struct matrix *matrix; /* NULL: nothing of it is kept */
};

/* Reads all rows, regardless of what is kept: the digest and the other ranks need it. */
static int stream_rows(struct weights_loader *l, const struct matrix_source *source,
                       const struct expert_rows *rows) {
    const struct weights_part *part = &source->plan->parts[rows->part];
    size_t row_bytes = dtype_row_bytes(source->stored[rows->part], (size_t)source->plan->cols);
    size_t start = (size_t)rows->index * tensor_source_part_bytes(rows->source, 0);
    CHECK(row_bytes > 0 && row_bytes <= WEIGHTS_CHUNK_BYTES);
    int32_t rows_per_chunk = (int32_t)(WEIGHTS_CHUNK_BYTES / row_bytes);
    for (int32_t row = 0, count; row < part->rows; row += count) {
        count = min_int32(part->rows - row, rows_per_chunk);
        const struct weights_piece piece = {
            .tensor = rows->source->tensors[0],
            .offset = start + (size_t)row * row_bytes,
            .bytes = (size_t)count * row_bytes,
            .is_kept = rows->matrix != NULL && keeps_rows(part, row, count),
        };
        const void *data;
        if (weights_reader_read(l->reader, &piece, &data, l->err) != 0)
            return -1;
        const struct chunk chunk = {rows->source, data, row, count, rows->matrix_row};
        if (piece.is_kept && fill_chunk(l, source, rows->part, &chunk, rows->matrix) != 0)
            return -1;
    }
    return 0;
}

/* Reads an expert's part of a tensor into memory; out NULL: it is not kept. */
static int read_whole(struct weights_loader *l, const struct expert_rows *rows, int tensor,
                      uint8_t *out) {
    size_t part_bytes = tensor_source_part_bytes(rows->source, tensor);
    for (size_t done = 0, bytes; done < part_bytes; done += bytes) {
        bytes = min_size(part_bytes - done, WEIGHTS_CHUNK_BYTES);
        const struct weights_piece piece = {
            .tensor = rows->source->tensors[tensor],
            .offset = (size_t)rows->index * part_bytes + done,
            .bytes = bytes,
            .is_kept = out != NULL,
        };
        const void *data;
        if (weights_reader_read(l->reader, &piece, &data, l->err) != 0)
            return -1;
        if (out != NULL)
            memcpy(out + done, data, bytes);
    }
    return 0;
}

/* Assembles rows of what was read, chunk by chunk. */
static int assemble_rows(struct weights_loader *l, const struct matrix_source *source,
                         const struct expert_rows *rows, const uint8_t *const raw[]) {
    const struct weights_part *part = &source->plan->parts[rows->part];
    size_t row_bytes = dtype_row_bytes(source->stored[rows->part], (size_t)source->plan->cols);
    int32_t rows_per_chunk = (int32_t)(WEIGHTS_CHUNK_BYTES / row_bytes);
    for (int32_t row = 0, count; row < part->rows; row += count) {
        count = min_int32(part->rows - row, rows_per_chunk);
        if (!keeps_rows(part, row, count))
            continue;
        const char *wrong = rows->source->assemble(rows->source, raw, row, count, l->assembled);
        const struct chunk chunk = {rows->source, l->assembled, row, count, rows->matrix_row};
        if (wrong != NULL)
            return weights_rows_explain(l, rows->source->tensors[0], ERROR_MODEL, wrong);
        if (fill_chunk(l, source, rows->part, &chunk, rows->matrix) != 0)
            return -1;
    }
    return 0;
}

static int stream_assembled(struct weights_loader *l, const struct matrix_source *source,
                            const struct expert_rows *rows) {
    uint8_t *raw[TENSOR_SOURCE_MAX_TENSORS] = {NULL};
    bool is_kept = rows->matrix != NULL;
    int status = 0;
    if (l->assembled == NULL && (l->assembled = malloc(WEIGHTS_CHUNK_BYTES)) == NULL)
        return error_set(l->err, ERROR_MEMORY, "no memory to assemble a tensor");
    for (int i = 0; i < rows->source->num_tensors && status == 0; i++) {
        if (rows->source->tensors[i] == NULL)
            continue;
        size_t bytes = tensor_source_part_bytes(rows->source, i);
        if (is_kept && (raw[i] = malloc(bytes)) == NULL)
            status = error_set(l->err, ERROR_MEMORY, "no memory for a tensor of %zu bytes", bytes);
        else
            status = read_whole(l, rows, i, raw[i]);
    }
    if (status == 0 && is_kept)
        status = assemble_rows(l, source, rows, (const uint8_t *const *)raw);
    for (int i = 0; i < rows->source->num_tensors; i++)
        free(raw[i]);
    return status;
}

int weights_rows_load(struct weights_loader *l, const struct matrix_source *source, int part,
                      int32_t part_row, struct matrix *matrix) {
    const struct weights_matrix *plan = source->plan;
    int32_t expert_rows = 0;
    for (int p = 0; p < plan->num_parts; p++)
        expert_rows += weights_part_rows(&plan->parts[p]);
    for (int32_t e = 0; e < plan->num_experts; e++) {
        struct tensor_source found;
        CHECK(weights_part_find(l->model, &plan->parts[part], e, &found));
        int32_t own = e - plan->own.first_row;
        bool is_kept = matrix != NULL && own >= 0 && own < plan->own.num_rows;
        const struct expert_rows rows = {
            .source = &found,
            .part = part,
            .index = found.num_experts > 1 ? e : 0,
            .matrix_row = own * expert_rows + part_row,
            .matrix = is_kept ? matrix : NULL,
        };
        if ((found.assemble != NULL ? stream_assembled : stream_rows)(l, source, &rows) != 0)
            return -1;
    }
    return 0;
}
