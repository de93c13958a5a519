/* A matrix is created empty, and what the rank keeps of its tensors' rows is cut, requantised if
 * requested, and handed to the backend a chunk at a time; what stays in memory is the backend's own
 * form. */
#include "models/weights/weights_loader.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "models/weights/key_bias.h"
#include "models/weights/weights_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int weights_loader_init(struct weights_loader *loader) {
    size_t num_tensors = tensor_file_num_tensors(loader->model->file);
    loader->weights = calloc(1, sizeof(*loader->weights));
    loader->bound = calloc(num_tensors + 1, sizeof(*loader->bound));
    loader->scratch = malloc(WEIGHTS_CHUNK_BYTES);
    loader->requantised = malloc(WEIGHTS_CHUNK_BYTES);
    if (loader->weights != NULL && loader->bound != NULL && loader->scratch != NULL &&
        loader->requantised != NULL)
        return 0;
    return error_set(loader->err, ERROR_MEMORY, "no memory to read %zu tensors", num_tensors);
}

void weights_loader_finish(struct weights_loader *loader) {
    free(loader->bound);
    free(loader->scratch);
    free(loader->requantised);
    free(loader->assembled);
}

/* --- Tensors --- */

static void print_shape(char *out, size_t capacity, const struct tensor_info *tensor) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < tensor->num_dims && used < capacity; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%" PRId64, i > 0 ? ", " : "",
                                 tensor->shape[i]);
}

static int refuse_shape(const struct weights_loader *l, const struct tensor_info *tensor,
                        const char *expected) {
    char found[96];
    print_shape(found, sizeof(found), tensor);
    return error_set(l->err, ERROR_MODEL, "%s: tensor '%.*s': shape [%s], expected [%s]",
                     tensor_file_path(l->model->file), text_print_length(tensor->name),
                     tensor->name.data, found, expected);
}

static int check_type(const struct weights_loader *l, const struct tensor_info *tensor) {
    if (tensor->unsupported == NULL)
        return 0;
    return error_set(l->err, ERROR_MODEL,
                     "%s: tensor '%.*s': type %s is not supported (supported: F32, F16, BF16)",
                     tensor_file_path(l->model->file), text_print_length(tensor->name),
                     tensor->name.data, tensor->unsupported->name);
}

static void bind(struct weights_loader *l, const struct tensor_info *tensor) {
    l->bound[tensor - tensor_file_tensor(l->model->file, 0)] = true;
}

static int refuse_missing(struct weights_loader *l, struct tensor_place place, const char *suffix) {
    char name[TENSOR_NAME_BYTES];
    tensor_names_write(&l->model->config, place, suffix, name);
    return error_set(l->err, ERROR_MODEL, "%s: tensor '%s' is missing",
                     tensor_file_path(l->model->file), name);
}

/* Reads a tensor of floats, whole. The caller frees. NULL on failure. */
static float *read_floats(struct weights_loader *l, const struct tensor_info *tensor) {
    if (check_type(l, tensor) != 0)
        return NULL;
    if (dtype_is_quantised(tensor->dtype)) {
        error_set(l->err, ERROR_MODEL, "%s: tensor '%.*s': type %s, expected f32, f16 or bf16",
                  tensor_file_path(l->model->file), text_print_length(tensor->name),
                  tensor->name.data, dtype_name(tensor->dtype));
        return NULL;
    }
    size_t item = dtype_block_bytes(tensor->dtype), count = tensor->bytes / item;
    float *values = malloc(count * sizeof(float));
    if (values == NULL)
        error_set(l->err, ERROR_MEMORY, "no memory for a vector of %zu elements", count);
    for (size_t done = 0, bytes; values != NULL && done < tensor->bytes; done += bytes) {
        bytes = min_size(tensor->bytes - done, WEIGHTS_CHUNK_BYTES);
        const struct weights_piece piece = {
            .tensor = tensor, .offset = done, .bytes = bytes, .is_kept = true};
        const void *data;
        if (weights_reader_read(l->reader, &piece, &data, l->err) != 0) {
            free(values);
            return NULL;
        }
        dtype_to_f32(tensor->dtype, data, values + done / item, bytes / item);
    }
    return values;
}

int weights_loader_alloc(struct weights_loader *l, size_t bytes, struct buffer *out) {
    if (l->backend->ops->buffer_alloc(l->backend, bytes, out, l->err) != 0)
        return -1;
    l->weights->bytes += bytes;
    return 0;
}

int weights_loader_load_norm(struct weights_loader *l, const struct weights_norm *plan,
                             struct buffer *out) {
    size_t bytes = (size_t)plan->count * sizeof(float);
    const struct tensor_info *tensor = tensor_names_find(l->model, plan->place, "weight");
    if (tensor == NULL)
        return refuse_missing(l, plan->place, "weight");
    if (tensor->num_dims != 1 || tensor->shape[0] != plan->width) {
        char expected[16];
        snprintf(expected, sizeof(expected), "%d", plan->width);
        return check_type(l, tensor) != 0 ? -1 : refuse_shape(l, tensor, expected);
    }
    bind(l, tensor);
    float *values = read_floats(l, tensor);
    if (values == NULL)
        return -1;
    if (out == NULL) {
        free(values);
        return 0;
    }
    float *kept = values + plan->first;
    for (int32_t i = 0; i < plan->count; i++)
        kept[i] = (kept[i] + plan->added) * plan->scale;
    int status = weights_loader_alloc(l, bytes, out);
    if (status == 0)
        l->backend->ops->upload(l->backend, out->data, kept, bytes);
    free(values);
    return status;
}

/* --- Matrices --- */

/* What is known of a matrix once its tensors were found. */
struct matrix_source {
    const struct weights_matrix *plan;
    struct matrix_part *parts; /* of each of the rank's experts; then the padding */
    int num_parts;
    enum dtype types[WEIGHTS_MAX_PARTS]; /* that the parts are held in */
    enum dtype stored[WEIGHTS_MAX_PARTS];
    float *biases[WEIGHTS_MAX_PARTS]; /* [own experts][kept rows]; NULL: none */
};

static int check_shape(const struct weights_loader *l, const struct weights_matrix *plan,
                       const struct weights_part *part, const struct tensor_source *source) {
    bool has_all = part->place.expert == TENSOR_ALL_EXPERTS;
    int32_t num_experts = has_all ? plan->num_experts : 1;
    if (source->rows == part->rows && source->cols == plan->cols &&
        source->num_experts == num_experts)
        return 0;
    char expected[48];
    int used = has_all ? snprintf(expected, sizeof(expected), "%d, ", num_experts) : 0;
    bool swaps = source->assemble != NULL && source->num_tensors == 1;
    snprintf(expected + used, sizeof(expected) - (size_t)used, "%d, %d",
             swaps ? plan->cols : part->rows, swaps ? part->rows : plan->cols);
    return refuse_shape(l, source->tensors[0], expected);
}

/* Every rank reads the bias, also one that leaves it to another. first: the source's first expert.
 */
static int read_bias(struct weights_loader *l, const struct weights_matrix *plan, int p,
                     const struct tensor_source *source, int32_t first, float *out) {
    const struct weights_part *part = &plan->parts[p];
    const struct tensor_info *tensor = source->bias;
    size_t count = (size_t)source->num_experts * (size_t)part->rows;
    bool has_all = part->place.expert == TENSOR_ALL_EXPERTS;
    if (tensor->num_dims != (has_all ? 2 : 1) ||
        (has_all && tensor->shape[0] != plan->num_experts) ||
        tensor->shape[tensor->num_dims - 1] != part->rows) {
        char expected[32];
        int used = has_all ? snprintf(expected, sizeof(expected), "%d, ", plan->num_experts) : 0;
        snprintf(expected + used, sizeof(expected) - (size_t)used, "%d", part->rows);
        return refuse_shape(l, tensor, expected);
    }
    bind(l, tensor);
    float *bias = read_floats(l, tensor);
    if (bias == NULL)
        return -1;
    size_t kept_rows = (size_t)weights_part_rows(part);
    for (size_t x = 0; x < count / (size_t)part->rows; x++) {
        int64_t own = (int64_t)x + first - plan->own.first_row;
        float *to = out + (size_t)own * kept_rows;
        if (own < 0 || own >= plan->own.num_rows)
            continue;
        for (int i = 0; i < part->num_spans; i++)
            for (int32_t k = 0; k < part->spans[i].num_rows; k++)
                *to++ = bias[x * (size_t)part->rows + (size_t)tensor_source_bias_index(
                                                          source, part->spans[i].first_row + k)] *
                        plan->bias_scale;
    }
    free(bias);
    return 0;
}

/* Checks the source of an expert's part, or of all experts'. */
static int check_source(struct weights_loader *l, struct matrix_source *matrix, int p,
                        int32_t expert) {
    const struct weights_matrix *plan = matrix->plan;
    const struct weights_part *part = &plan->parts[p];
    struct tensor_source source;
    struct tensor_place place = part->place;
    if (!weights_part_find(l->model, part, expert, &source)) {
        place.expert = place.expert == TENSOR_ALL_EXPERTS ? place.expert : expert;
        return refuse_missing(l, place, "weight");
    }
    for (int i = 0; i < source.num_tensors; i++)
        bind(l, source.tensors[i]);
    if (source.dtype == DTYPE_NONE && check_type(l, source.tensors[0]) != 0)
        return -1;
    if (check_shape(l, plan, part, &source) != 0)
        return -1;
    if (expert > 0 && source.dtype != matrix->stored[p])
        return error_set(l->err, ERROR_MODEL, "%s: tensor '%.*s': type %s, that of expert 0 is %s",
                         tensor_file_path(l->model->file),
                         text_print_length(source.tensors[0]->name), source.tensors[0]->name.data,
                         dtype_name(source.dtype), dtype_name(matrix->stored[p]));
    matrix->stored[p] = source.dtype;
    if (part->biased && source.bias == NULL) {
        place.expert = place.expert == TENSOR_ALL_EXPERTS ? place.expert : expert;
        return refuse_missing(l, place, "bias");
    }
    return part->biased ? read_bias(l, plan, p, &source, expert, matrix->biases[p]) : 0;
}

/* Returns how many sources a part has: one, or one for each expert. */
static int32_t num_sources(const struct weights_matrix *plan, const struct weights_part *part) {
    return part->place.expert == TENSOR_ALL_EXPERTS ? 1 : plan->num_experts;
}

static int find_part(struct weights_loader *l, struct matrix_source *matrix, int p) {
    const struct weights_matrix *plan = matrix->plan;
    const struct weights_part *part = &plan->parts[p];
    int32_t rows = weights_part_rows(part);
    if (part->biased) {
        matrix->biases[p] = calloc((size_t)plan->own.num_rows * (size_t)rows + 1, sizeof(float));
        if (matrix->biases[p] == NULL)
            return error_set(l->err, ERROR_MEMORY, "no memory for a bias of %d elements", rows);
    }
    for (int32_t i = 0; i < num_sources(plan, part); i++)
        if (check_source(l, matrix, p, i) != 0)
            return -1;
    matrix->types[p] = plan->keeps_type ? matrix->stored[p]
                                        : model_held_dtype(l->options->quantization,
                                                           matrix->stored[p], plan->cols);
    for (int32_t e = 0; e < plan->own.num_rows; e++) {
        bool adds_bias = part->biased && plan->bias_scale != 0.0F;
        matrix->parts[e * plan->num_parts + p] = (struct matrix_part){
            .dtype = matrix->types[p],
            .rows = rows,
            .bias = adds_bias ? matrix->biases[p] + (size_t)e * (size_t)rows : NULL,
        };
    }
    return 0;
}

/* The caller finishes `matrix`, also after a failure. */
static int find_parts(struct weights_loader *l, struct matrix_source *matrix) {
    const struct weights_matrix *plan = matrix->plan;
    matrix->num_parts = plan->own.num_rows * plan->num_parts;
    matrix->parts = calloc((size_t)matrix->num_parts + 1, sizeof(*matrix->parts));
    if (matrix->parts == NULL)
        return error_set(l->err, ERROR_MEMORY, "no memory for a matrix of %d parts",
                         matrix->num_parts);
    for (int p = 0; p < plan->num_parts; p++)
        if (find_part(l, matrix, p) != 0)
            return -1;
    return 0;
}

static void finish_source(struct matrix_source *matrix) {
    for (int p = 0; p < matrix->plan->num_parts; p++)
        free(matrix->biases[p]);
    free(matrix->parts);
}

/* Puts the tensor's name before what the backend says. */
static int explain(const struct weights_loader *l, const struct tensor_info *tensor,
                   const struct error *why) {
    return error_set(l->err, why->code, "%s: tensor '%.*s': %s", tensor_file_path(l->model->file),
                     text_print_length(tensor->name), tensor->name.data, why->message);
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
        return explain(l, chunk->source->tensors[0], &why);
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
        const struct error why = {.code = ERROR_MODEL};
        const struct chunk chunk = {rows->source, l->assembled, row, count, rows->matrix_row};
        if (wrong != NULL)
            return error_set(l->err, why.code, "%s: tensor '%.*s': %s",
                             tensor_file_path(l->model->file),
                             text_print_length(rows->source->tensors[0]->name),
                             rows->source->tensors[0]->name.data, wrong);
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

/* part_row: of an expert's rows in the matrix, where those of the part begin. */
static int stream_part(struct weights_loader *l, const struct matrix_source *source, int part,
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

static int create_matrix(struct weights_loader *l, struct matrix_source *source,
                         struct matrix **out) {
    const struct weights_matrix *plan = source->plan;
    struct error why = {0};
    int num_parts = source->num_parts;
    float *zeros = NULL;
    if (plan->padding_rows > 0) {
        zeros = calloc((size_t)plan->padding_rows * (size_t)plan->num_cols, sizeof(*zeros));
        if (zeros == NULL)
            return error_set(l->err, ERROR_MEMORY, "no memory for %d rows of padding",
                             plan->padding_rows);
        source->parts[num_parts++] =
            (struct matrix_part){.dtype = DTYPE_F32, .rows = plan->padding_rows, .data = zeros};
    }
    int status = l->backend->ops->matrix_create(l->backend, source->parts, num_parts,
                                                plan->num_cols, out, &why);
    free(zeros);
    if (status == 0)
        return 0;
    struct tensor_source first;
    CHECK(weights_part_find(l->model, &plan->parts[0], 0, &first));
    return explain(l, first.tensors[0], &why);
}

static int load_parts(struct weights_loader *l, struct matrix_source *source, struct matrix **out) {
    struct backend *b = l->backend;
    struct matrix *matrix = NULL;
    int32_t part_row = 0;
    if (out != NULL && create_matrix(l, source, &matrix) != 0)
        return -1;
    for (int i = 0; i < source->plan->num_parts; i++) {
        if (stream_part(l, source, i, part_row, matrix) != 0) {
            b->ops->matrix_destroy(b, matrix);
            return -1;
        }
        part_row += weights_part_rows(&source->plan->parts[i]);
    }
    if (out == NULL)
        return 0;
    l->weights->bytes += weights_plan_matrix_bytes(source->plan, source->types);
    *out = matrix;
    return 0;
}

static void cut_key_bias(const struct weights_loader *l, const struct matrix_source *source,
                         struct key_bias *out) {
    const struct model_config *config = &l->model->config;
    const struct row_span *keys = &source->plan->keys;
    int32_t row = keys->first_row, part = 0;
    while (row >= source->parts[part].rows)
        row -= source->parts[part++].rows;
    if (source->biases[part] != NULL)
        key_bias_cut(config, source->plan->parts[part].place.layer,
                     keys->num_rows / config->head_dim, source->biases[part] + row, out);
}

int weights_loader_load_matrix(struct weights_loader *l, const struct weights_matrix *plan,
                               struct key_bias *key_bias, struct matrix **out) {
    struct matrix_source source = {.plan = plan};
    int status = find_parts(l, &source);
    if (status == 0 && key_bias != NULL)
        cut_key_bias(l, &source, key_bias);
    if (status == 0)
        status = load_parts(l, &source, out);
    finish_source(&source);
    return status;
}

/* --- All of them --- */

/* A tensor that is left (another bias, another norm) means that the model computes something which
 * this code does not. */
int weights_loader_check_all_bound(const struct weights_loader *l) {
    const struct tensor_file *file = l->model->file;
    for (size_t i = 0; i < tensor_file_num_tensors(file); i++) {
        struct text name = tensor_file_tensor(file, i)->name;
        if (!l->bound[i] && !tensor_names_is_ignorable(&l->model->config, name))
            return error_set(l->err, ERROR_MODEL,
                             "%s: tensor '%.*s' is not part of a %s model as supported here",
                             tensor_file_path(file), text_print_length(name), name.data,
                             l->model->config.architecture);
    }
    return 0;
}
