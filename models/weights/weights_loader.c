/* Finds and checks what a matrix or a norm is made of, reads the vectors, and creates the matrix
 * empty; weights_rows.c fills it. */
#include "models/weights/weights_loader.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "models/weights/key_bias.h"
#include "models/weights/packed_cache.h"
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
    return error_set(
        l->err, ERROR_MODEL,
        "%s: tensor '%.*s': type %s is not supported here (supported: F32, F16, BF16, and "
        "what quantization_config describes)",
        tensor_file_path(l->model->file), text_print_length(tensor->name), tensor->name.data,
        tensor->unsupported->name);
}

static void bind(struct weights_loader *l, const struct tensor_info *tensor) {
    l->bound[tensor - tensor_file_tensor(l->model->file, 0)] = true;
}

static int refuse_missing(struct weights_loader *l, struct tensor_place place, const char *suffix) {
    char name[TENSOR_NAME_BYTES];
    if (place.role == TENSOR_K_B || place.role == TENSOR_V_B)
        place = (struct tensor_place){TENSOR_KV_B, place.layer, 0};
    tensor_names_write(&l->model->config, place, suffix, name);
    return error_set(l->err, ERROR_MODEL, "%s: tensor '%s' is missing",
                     tensor_file_path(l->model->file), name);
}

/* Copies them from the cache, or reads them and adds them to it. */
static int take_floats(struct weights_loader *l, const struct tensor_info *tensor, float *values) {
    size_t item = dtype_block_bytes(tensor->dtype), count = tensor->bytes / item;
    struct packed_cache *packed = l->weights->packed;
    struct packed_bytes found;
    if (packed_cache_is_found(packed)) {
        if (packed_cache_next(packed, count * sizeof(float), &found, l->err) != 0)
            return -1;
        memcpy(values, found.data, found.bytes);
        return 0;
    }
    for (size_t done = 0, bytes; done < tensor->bytes; done += bytes) {
        bytes = min_size(tensor->bytes - done, WEIGHTS_CHUNK_BYTES);
        const struct weights_piece piece = {
            .tensor = tensor, .offset = done, .bytes = bytes, .is_kept = true};
        const void *data;
        if (weights_reader_read(l->reader, &piece, &data, l->err) != 0)
            return -1;
        dtype_to_f32(tensor->dtype, data, values + done / item, bytes / item);
    }
    packed_cache_add_vector(packed, values, count);
    return 0;
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
    size_t count = tensor->bytes / dtype_block_bytes(tensor->dtype);
    float *values = malloc(count * sizeof(float));
    if (values == NULL)
        error_set(l->err, ERROR_MEMORY, "no memory for a vector of %zu elements", count);
    else if (take_floats(l, tensor, values) == 0)
        return values;
    free(values);
    return NULL;
}

int weights_loader_alloc(struct weights_loader *l, size_t bytes, struct buffer *out) {
    if (l->backend->ops->buffer_alloc(l->backend, bytes, out, l->err) != 0)
        return -1;
    l->weights->bytes += bytes;
    return 0;
}

/* The caller frees. NULL on failure. */
static float *read_vector(struct weights_loader *l, const struct weights_norm *plan,
                          const char *suffix) {
    const struct tensor_info *tensor = tensor_names_find(l->model, plan->place, suffix);
    if (tensor == NULL) {
        refuse_missing(l, plan->place, suffix);
        return NULL;
    }
    if (tensor->num_dims != 1 || tensor->shape[0] != plan->width) {
        char expected[16];
        snprintf(expected, sizeof(expected), "%d", plan->width);
        if (check_type(l, tensor) == 0)
            refuse_shape(l, tensor, expected);
        return NULL;
    }
    bind(l, tensor);
    return read_floats(l, tensor);
}

int weights_loader_load_norm(struct weights_loader *l, const struct weights_norm *plan,
                             struct buffer *out) {
    float *weight = read_vector(l, plan, "weight"), *bias = NULL;
    size_t bytes = (size_t)plan->count * sizeof(float);
    int status = weight == NULL ? -1 : 0;
    if (status == 0 && plan->biased && (bias = read_vector(l, plan, "bias")) == NULL)
        status = -1;
    if (status == 0 && out != NULL)
        status = weights_loader_alloc(l, weights_norm_bytes(plan), out);
    for (int32_t i = plan->first; status == 0 && out != NULL && i < plan->first + plan->count;
         i++) {
        weight[i] = (weight[i] + plan->added) * plan->scale;
        if (plan->biased)
            bias[i] *= plan->scale;
    }
    if (status == 0 && out != NULL)
        l->backend->ops->upload(l->backend, out->data, weight + plan->first, bytes);
    if (status == 0 && out != NULL && plan->biased)
        l->backend->ops->upload(l->backend, (char *)out->data + bytes, bias + plan->first, bytes);
    free(weight);
    free(bias);
    return status;
}

/* --- Matrices --- */

static int check_shape(const struct weights_loader *l, const struct weights_matrix *plan,
                       const struct weights_part *part, const struct tensor_source *source) {
    bool has_all = part->place.expert == TENSOR_ALL_EXPERTS;
    int32_t num_experts = has_all ? plan->num_experts : 1;
    if (source->rows == part->rows && source->cols == plan->cols &&
        source->num_experts == num_experts)
        return 0;
    char expected[96];
    if (source->assemble != NULL && source->num_tensors > 1) {
        snprintf(expected, sizeof(expected), "holds %d of %d x %d weights, expected %d of %d x %d",
                 source->num_experts, source->rows, source->cols, num_experts, part->rows,
                 plan->cols);
        return weights_rows_explain(l, source->tensors[0], ERROR_MODEL, expected);
    }
    if (source->stored_rows > 0) {
        snprintf(expected, sizeof(expected), "%d, %d", source->stored_rows, source->stored_cols);
        return refuse_shape(l, source->tensors[0], expected);
    }
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
                *to++ = bias[x * (size_t)part->rows +
                             (size_t)tensor_source_file_row(source, part->spans[i].first_row + k)] *
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
        if (source.tensors[i] != NULL)
            bind(l, source.tensors[i]);
    if (source.wrong != NULL)
        return weights_rows_explain(l, source.tensors[source.wrong_tensor], ERROR_MODEL,
                                    source.wrong);
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

/* Creates it empty, or of what the cache has. */
static int create_of_parts(struct weights_loader *l, const struct matrix_source *source,
                           int num_parts, struct matrix **out, struct error *err) {
    const struct weights_matrix *plan = source->plan;
    struct backend *b = l->backend;
    struct packed_bytes packed;
    if (!packed_cache_is_found(l->weights->packed))
        return b->ops->matrix_create(b, source->parts, num_parts, plan->num_cols,
                                     plan->is_grouped ? MATRIX_GROUPED : MATRIX_LINEAR, out, err);
    if (packed_cache_next(l->weights->packed, SIZE_MAX, &packed, err) != 0)
        return -1;
    return b->ops->packing->matrix_map(b, source->parts, num_parts, plan->num_cols, packed, out,
                                       err);
}

static int create_matrix(struct weights_loader *l, struct matrix_source *source,
                         struct matrix **out) {
    const struct weights_matrix *plan = source->plan;
    struct error why = {0};
    int num_parts = source->num_parts;
    uint8_t *zeros = NULL; /* of any type */
    if (plan->padding_rows > 0) {
        zeros = calloc((size_t)plan->padding_rows,
                       dtype_row_bytes(source->types[0], (size_t)plan->num_cols));
        if (zeros == NULL)
            return error_set(l->err, ERROR_MEMORY, "no memory for %d rows of padding",
                             plan->padding_rows);
        source->parts[num_parts++] = (struct matrix_part){
            .dtype = source->types[0], .rows = plan->padding_rows, .data = zeros};
    }
    int status = create_of_parts(l, source, num_parts, out, &why);
    free(zeros);
    if (status == 0)
        return 0;
    struct tensor_source first;
    CHECK(weights_part_find(l->model, &plan->parts[0], 0, &first));
    return weights_rows_explain(l, first.tensors[0], why.code, why.message);
}

/* Reads the rows, also of a matrix that belongs to other ranks (NULL). */
static int fill_matrix(struct weights_loader *l, const struct matrix_source *source,
                       struct matrix *matrix) {
    int32_t part_row = 0;
    for (int i = 0; i < source->plan->num_parts; i++) {
        if (weights_rows_load(l, source, i, part_row, matrix) != 0)
            return -1;
        part_row += weights_part_rows(&source->plan->parts[i]);
    }
    if (matrix != NULL && l->weights->packed != NULL)
        packed_cache_add_matrix(l->weights->packed, l->backend->ops->packing->bytes_of(matrix));
    return 0;
}

static int load_parts(struct weights_loader *l, struct matrix_source *source, struct matrix **out) {
    struct backend *b = l->backend;
    struct matrix *matrix = NULL;
    if (out != NULL && create_matrix(l, source, &matrix) != 0)
        return -1;
    if (!packed_cache_is_found(l->weights->packed) && fill_matrix(l, source, matrix) != 0) {
        b->ops->matrix_destroy(b, matrix);
        return -1;
    }
    if (out == NULL)
        return 0;
    l->weights->bytes += weights_plan_matrix_bytes(source->plan, source->types, b);
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
