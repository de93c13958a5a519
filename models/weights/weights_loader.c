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
}

/* --- Tensors --- */

static void print_shape(char *out, size_t capacity, const struct tensor_info *tensor) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < tensor->num_dims && used < capacity; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%" PRId64, i > 0 ? ", " : "",
                                 tensor->shape[i]);
}

static int check_shape(const struct weights_loader *l, const struct tensor_info *tensor,
                       int32_t rows, int32_t cols) {
    bool matches =
        rows == 0 ? tensor->num_dims == 1 && tensor->shape[0] == cols
                  : tensor->num_dims == 2 && tensor->shape[0] == rows && tensor->shape[1] == cols;
    if (matches)
        return 0;
    char found[96], expected[32];
    print_shape(found, sizeof(found), tensor);
    if (rows == 0)
        snprintf(expected, sizeof(expected), "%d", cols);
    else
        snprintf(expected, sizeof(expected), "%d, %d", rows, cols);
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

/* Returns a tensor of this shape and a supported type, which is bound by that; rows 0: a vector of
 * cols elements. NULL with the error set otherwise. */
static const struct tensor_info *find_tensor(struct weights_loader *l, struct tensor_place place,
                                             const char *suffix, int32_t rows, int32_t cols) {
    const struct tensor_file *file = l->model->file;
    char name[TENSOR_NAME_BYTES];
    tensor_names_write(&l->model->config, place, suffix, name);
    const struct tensor_info *tensor = tensor_file_find(file, name);
    if (tensor == NULL) {
        error_set(l->err, ERROR_MODEL, "%s: tensor '%s' is missing", tensor_file_path(file), name);
        return NULL;
    }
    if (check_type(l, tensor) != 0 || check_shape(l, tensor, rows, cols) != 0)
        return NULL;
    l->bound[tensor - tensor_file_tensor(file, 0)] = true;
    return tensor;
}

/* The caller frees. NULL on failure. */
static float *read_vector(struct weights_loader *l, struct tensor_place place, const char *suffix,
                          int32_t width) {
    const struct tensor_info *tensor = find_tensor(l, place, suffix, 0, width);
    if (tensor == NULL)
        return NULL;
    if (dtype_is_quantised(tensor->dtype)) {
        error_set(l->err, ERROR_MODEL, "%s: tensor '%.*s': type %s, expected f32, f16 or bf16",
                  tensor_file_path(l->model->file), text_print_length(tensor->name),
                  tensor->name.data, dtype_name(tensor->dtype));
        return NULL;
    }
    const struct weights_piece all = {.tensor = tensor, .bytes = tensor->bytes, .is_kept = true};
    const void *data;
    if (weights_reader_read(l->reader, &all, &data, l->err) != 0)
        return NULL;
    float *values = malloc((size_t)width * sizeof(float));
    if (values == NULL)
        error_set(l->err, ERROR_MEMORY, "no memory for a vector of %d elements", width);
    else
        dtype_to_f32(tensor->dtype, data, values, (size_t)width);
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
    float *values = read_vector(l, plan->place, "weight", plan->width);
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
    const struct tensor_info *tensors[WEIGHTS_MAX_PARTS];
    struct matrix_part parts[WEIGHTS_MAX_PARTS + 1]; /* then the padding */
    enum dtype types[WEIGHTS_MAX_PARTS];             /* that the parts are held in */
    float *biases[WEIGHTS_MAX_PARTS];                /* of the kept rows; NULL: none */
};

/* Every rank reads the bias, also one that leaves it to another. */
static int read_bias(struct weights_loader *l, const struct weights_part *part, float scale,
                     float **out) {
    float *bias = read_vector(l, part->place, "bias", part->rows);
    if (bias == NULL)
        return -1;
    int32_t row = 0;
    for (int i = 0; i < part->num_spans; i++)
        for (int32_t k = 0; k < part->spans[i].num_rows; k++)
            bias[row++] = bias[part->spans[i].first_row + k] * scale;
    if (scale != 0.0F) {
        *out = bias;
        return 0;
    }
    free(bias);
    return 0;
}

/* The caller frees the biases, also after a failure. */
static int find_parts(struct weights_loader *l, struct matrix_source *source) {
    const struct weights_matrix *plan = source->plan;
    for (int i = 0; i < plan->num_parts; i++) {
        const struct weights_part *part = &plan->parts[i];
        const struct tensor_info *tensor =
            find_tensor(l, part->place, "weight", part->rows, plan->cols);
        source->tensors[i] = tensor;
        if (tensor == NULL ||
            (part->biased && read_bias(l, part, plan->bias_scale, &source->biases[i]) != 0))
            return -1;
        source->types[i] = model_held_dtype(l->options->quantization, tensor->dtype, plan->cols);
        source->parts[i] = (struct matrix_part){
            .dtype = source->types[i],
            .rows = weights_part_rows(part),
            .bias = source->biases[i],
        };
    }
    return 0;
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

/* A chunk of a tensor's rows, and the row of the matrix where the tensor's kept rows begin. */
struct chunk {
    const uint8_t *data;
    int32_t first_row, num_rows; /* of the tensor */
    int32_t matrix_row;
};

/* Hands the chunk's share of a span to the backend. span_row: of the matrix, where the span begins.
 */
static int fill_span(struct weights_loader *l, const struct matrix_source *source, int part,
                     const struct chunk *chunk, const struct row_span *span, int32_t span_row,
                     struct matrix *matrix) {
    const struct weights_matrix *plan = source->plan;
    enum dtype stored = source->tensors[part]->dtype;
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
        return explain(l, source->tensors[part], &why);
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

/* Reads the whole tensor, regardless of what is kept: the digest and the other ranks need it.
 * matrix_row: where its kept rows begin; matrix NULL: nothing is. */
static int stream_part(struct weights_loader *l, const struct matrix_source *source, int part,
                       int32_t matrix_row, struct matrix *matrix) {
    const struct tensor_info *tensor = source->tensors[part];
    int32_t num_rows = source->plan->parts[part].rows;
    size_t row_bytes = dtype_row_bytes(tensor->dtype, (size_t)source->plan->cols);
    CHECK(row_bytes > 0 && row_bytes <= WEIGHTS_CHUNK_BYTES);
    int32_t rows_per_chunk = (int32_t)(WEIGHTS_CHUNK_BYTES / row_bytes);
    for (int32_t row = 0, count; row < num_rows; row += count) {
        count = min_int32(num_rows - row, rows_per_chunk);
        const struct weights_piece piece = {
            .tensor = tensor,
            .offset = (size_t)row * row_bytes,
            .bytes = (size_t)count * row_bytes,
            .is_kept = matrix != NULL && keeps_rows(&source->plan->parts[part], row, count),
        };
        const void *data;
        if (weights_reader_read(l->reader, &piece, &data, l->err) != 0)
            return -1;
        const struct chunk chunk = {
            .data = data, .first_row = row, .num_rows = count, .matrix_row = matrix_row};
        if (piece.is_kept && fill_chunk(l, source, part, &chunk, matrix) != 0)
            return -1;
    }
    return 0;
}

static int create_matrix(struct weights_loader *l, struct matrix_source *source,
                         struct matrix **out) {
    const struct weights_matrix *plan = source->plan;
    struct error why = {0};
    int num_parts = plan->num_parts;
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
    return status == 0 ? 0 : explain(l, source->tensors[0], &why);
}

static int load_parts(struct weights_loader *l, struct matrix_source *source, struct matrix **out) {
    struct backend *b = l->backend;
    struct matrix *matrix = NULL;
    int32_t matrix_row = 0;
    if (out != NULL && create_matrix(l, source, &matrix) != 0)
        return -1;
    for (int i = 0; i < source->plan->num_parts; i++) {
        if (stream_part(l, source, i, matrix_row, matrix) != 0) {
            b->ops->matrix_destroy(b, matrix);
            return -1;
        }
        matrix_row += source->parts[i].rows;
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
    for (int i = 0; i < plan->num_parts; i++)
        free(source.biases[i]);
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
