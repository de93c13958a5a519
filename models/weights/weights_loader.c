/* A matrix is created empty and its rows are read, requantised if requested, and handed to the
 * backend a chunk at a time; what stays in memory is the backend's own form. */
#include "models/weights/weights_loader.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "models/files/tensor_table.h"
#include "models/weights/model_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_PARTS = 3 };

int weights_loader_init(struct weights_loader *loader) {
    size_t num_tensors = tensor_file_num_tensors(loader->model->file);
    loader->weights = calloc(1, sizeof(*loader->weights));
    loader->bound = calloc(num_tensors + 1, sizeof(*loader->bound));
    loader->chunk = malloc(WEIGHTS_CHUNK_BYTES);
    if (loader->options->quantization != DTYPE_NONE)
        loader->requantised = malloc(WEIGHTS_CHUNK_BYTES);
    loader->hash = content_hash_create();
    if (loader->weights != NULL && loader->bound != NULL && loader->chunk != NULL &&
        loader->hash != NULL &&
        (loader->requantised != NULL || loader->options->quantization == DTYPE_NONE))
        return 0;
    return error_set(loader->err, ERROR_MEMORY, "no memory to read %zu tensors", num_tensors);
}

void weights_loader_finish(struct weights_loader *loader) {
    free(loader->bound);
    free(loader->chunk);
    free(loader->requantised);
    content_hash_destroy(loader->hash);
}

/* --- Tensors ---------------------------------------------------------------------------------- */

static const struct tensor_info *look_up(const struct weights_loader *l, struct tensor_place place,
                                         const char *suffix) {
    char name[TENSOR_NAME_BYTES];
    tensor_names_write(&l->model->config, place.role, place.layer, suffix, name);
    return tensor_file_find(l->model->file, name);
}

bool weights_loader_has_bias(const struct weights_loader *loader, struct tensor_place place) {
    return look_up(loader, place, "bias") != NULL;
}

int64_t weights_loader_num_rows(const struct weights_loader *loader, struct tensor_place place) {
    const struct tensor_info *tensor = look_up(loader, place, "weight");
    return tensor != NULL ? tensor->shape[0] : 0;
}

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
    tensor_names_write(&l->model->config, place.role, place.layer, suffix, name);
    const struct tensor_info *tensor = tensor_file_find(file, name);
    if (tensor == NULL) {
        error_set(l->err, ERROR_MODEL, "%s: tensor '%s' is missing", tensor_file_path(file), name);
        return NULL;
    }
    if (check_type(l, tensor) != 0 || check_shape(l, tensor, rows, cols) != 0)
        return NULL;
    l->bound[tensor - tensor_file_tensor(file, 0)] = true;
    model_digest_add_tensor(l->hash, tensor);
    return tensor;
}

/* Fills the chunk; every byte of a tensor is read once, in order, because the digest is taken on the
 * way. */
static int read_chunk(struct weights_loader *l, const struct tensor_info *tensor, size_t offset,
                      size_t bytes) {
    if (tensor_read(l->model->file, tensor, offset, bytes, l->chunk, l->err) != 0)
        return -1;
    content_hash_add(l->hash, l->chunk, bytes);
    return 0;
}

float *weights_loader_read_vector(struct weights_loader *l, struct tensor_place place,
                                  const char *suffix, int32_t width) {
    const struct tensor_info *tensor = find_tensor(l, place, suffix, 0, width);
    if (tensor == NULL)
        return NULL;
    if (dtype_is_quantised(tensor->dtype)) {
        error_set(l->err, ERROR_MODEL, "%s: tensor '%.*s': type %s, expected f32, f16 or bf16",
                  tensor_file_path(l->model->file), text_print_length(tensor->name),
                  tensor->name.data, dtype_name(tensor->dtype));
        return NULL;
    }
    if (read_chunk(l, tensor, 0, tensor->bytes) != 0)
        return NULL;
    float *values = malloc((size_t)width * sizeof(float));
    if (values == NULL)
        error_set(l->err, ERROR_MEMORY, "no memory for a vector of %d elements", width);
    else
        dtype_to_f32(tensor->dtype, l->chunk, values, (size_t)width);
    return values;
}

int weights_loader_alloc(struct weights_loader *l, size_t bytes, struct buffer *out) {
    if (l->backend->ops->buffer_alloc(l->backend, bytes, out, l->err) != 0)
        return -1;
    l->weights->bytes += bytes;
    return 0;
}

/* --- Matrices --------------------------------------------------------------------------------- */

enum dtype weights_loader_held_dtype(const struct weights_options *options, enum dtype stored,
                                     int64_t cols) {
    enum dtype requested = options->quantization;
    if (requested == DTYPE_NONE || dtype_is_quantised(stored) ||
        cols % dtype_block_elements(requested) != 0)
        return stored;
    return requested;
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

/* The caller frees the biases, also after a failure. */
static int find_parts(struct weights_loader *l, const struct weights_part *parts, int num_parts,
                      float bias_scale, struct matrix_source *out) {
    for (int i = 0; i < num_parts; i++) {
        out->tensors[i] = find_tensor(l, parts[i].place, "weight", parts[i].rows, out->cols);
        if (out->tensors[i] == NULL)
            return -1;
        if (parts[i].biased && (out->biases[i] = read_bias(l, &parts[i], bias_scale)) == NULL)
            return -1;
        out->parts[i] = (struct matrix_part){
            .dtype = weights_loader_held_dtype(l->options, out->tensors[i]->dtype, out->cols),
            .rows = parts[i].rows,
            .bias = out->biases[i],
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

/* Returns the chunk's rows in the type they are held in. */
static const void *convert(struct weights_loader *l, enum dtype stored, enum dtype held,
                           int32_t num_rows, int32_t cols) {
    if (stored == held)
        return l->chunk;
    const uint8_t *src = l->chunk;
    uint8_t *dst = l->requantised;
    float values[1024];
    CHECK(cols % dtype_block_elements(held) == 0);
    size_t left = (size_t)num_rows * (size_t)cols;
    while (left > 0) {
        size_t count = min_size(left, 1024);
        dtype_to_f32(stored, src, values, count);
        dtype_from_f32(held, values, dst, count);
        src += dtype_row_bytes(stored, count);
        dst += dtype_row_bytes(held, count);
        left -= count;
    }
    return l->requantised;
}

/* first_row: of the matrix, where the part's rows begin. */
static int stream_part(struct weights_loader *l, const struct matrix_source *source, int part,
                       int32_t first_row, struct matrix *matrix) {
    struct backend *b = l->backend;
    struct error why = {0};
    const struct tensor_info *tensor = source->tensors[part];
    enum dtype held = source->parts[part].dtype;
    size_t row_bytes = dtype_row_bytes(tensor->dtype, (size_t)source->cols);
    CHECK(row_bytes > 0 && row_bytes <= WEIGHTS_CHUNK_BYTES);
    int32_t rows_per_chunk = (int32_t)(WEIGHTS_CHUNK_BYTES / row_bytes);
    for (int32_t row = 0, count; row < source->parts[part].rows; row += count) {
        count = min_int32(source->parts[part].rows - row, rows_per_chunk);
        if (read_chunk(l, tensor, (size_t)row * row_bytes, (size_t)count * row_bytes) != 0)
            return -1;
        const void *data = convert(l, tensor->dtype, held, count, source->cols);
        if (b->ops->matrix_fill(b, matrix, first_row + row, count, data, &why) != 0)
            return explain(l, tensor, &why);
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
    int32_t first_row = 0;
    for (int i = 0; i < num_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        if (stream_part(l, source, i, first_row, matrix) != 0) {
            b->ops->matrix_destroy(b, matrix);
            return -1;
        }
        first_row += part->rows;
        size_t row_bytes = dtype_row_bytes(part->dtype, (size_t)source->cols);
        row_bytes += part->bias != NULL ? sizeof(*part->bias) : 0;
        l->weights->bytes += (size_t)part->rows * row_bytes;
    }
    *out = matrix;
    return 0;
}

int weights_loader_load_matrix(struct weights_loader *l, const struct weights_part *parts,
                               int num_parts, int32_t cols, float bias_scale, struct matrix **out) {
    CHECK(num_parts <= MAX_PARTS);
    struct matrix_source source = {.cols = cols};
    int status = find_parts(l, parts, num_parts, bias_scale, &source);
    if (status == 0)
        status = load_parts(l, &source, num_parts, out);
    for (int i = 0; i < num_parts; i++)
        free(source.biases[i]);
    return status;
}

/* --- All of them ------------------------------------------------------------------------------ */

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
