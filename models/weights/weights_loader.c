#include "models/weights/weights_loader.h"

#include "models/weights/model_digest.h"
#include "models/files/tensor_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int weights_loader_init(struct weights_loader *loader) {
    size_t num_tensors = tensor_file_num_tensors(loader->model->file);
    loader->weights = calloc(1, sizeof(*loader->weights));
    loader->bound = calloc(num_tensors + 1, sizeof(*loader->bound));
    loader->piece = malloc(WEIGHTS_PIECE_BYTES);
    if (loader->options->quantization != DTYPE_COUNT)
        loader->requantised = malloc(WEIGHTS_PIECE_BYTES);
    loader->hash = content_hash_create();
    if (loader->weights != NULL && loader->bound != NULL && loader->piece != NULL &&
        loader->hash != NULL &&
        (loader->requantised != NULL || loader->options->quantization == DTYPE_COUNT))
        return 0;
    return error_set(loader->err, ERROR_MEMORY, "no memory to read %zu tensors", num_tensors);
}

void weights_loader_finish(struct weights_loader *loader) {
    free(loader->bound);
    free(loader->piece);
    free(loader->requantised);
    content_hash_destroy(loader->hash);
}

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
    if (tensor->foreign == NULL)
        return 0;
    return error_set(l->err, ERROR_MODEL,
                     "%s: tensor '%.*s': type %s is not supported (supported: F32, F16, BF16)",
                     tensor_file_path(l->model->file), text_print_length(tensor->name),
                     tensor->name.data, tensor->foreign->name);
}

const struct tensor_info *weights_loader_find(struct weights_loader *l, struct tensor_place place,
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

int weights_loader_read(struct weights_loader *l, const struct tensor_info *tensor, size_t offset,
                        size_t bytes) {
    if (tensor_read(l->model->file, tensor, offset, bytes, l->piece, l->err) != 0)
        return -1;
    content_hash_add(l->hash, l->piece, bytes);
    return 0;
}

float *weights_loader_read_vector(struct weights_loader *l, struct tensor_place place,
                                  const char *suffix, int32_t width) {
    const struct tensor_info *tensor = weights_loader_find(l, place, suffix, 0, width);
    if (tensor == NULL)
        return NULL;
    if (dtype_is_quantised(tensor->dtype)) {
        error_set(l->err, ERROR_MODEL, "%s: tensor '%.*s': type %s, expected f32, f16 or bf16",
                  tensor_file_path(l->model->file), text_print_length(tensor->name),
                  tensor->name.data, dtype_name(tensor->dtype));
        return NULL;
    }
    if (weights_loader_read(l, tensor, 0, tensor->bytes) != 0)
        return NULL;
    float *values = malloc((size_t)width * sizeof(float));
    if (values == NULL)
        error_set(l->err, ERROR_MEMORY, "no memory for a vector of %d elements", width);
    else
        dtype_to_f32(tensor->dtype, l->piece, values, (size_t)width);
    return values;
}

int weights_loader_alloc(struct weights_loader *l, size_t bytes, struct buffer *out) {
    if (l->backend->ops->buffer_alloc(l->backend, bytes, out, l->err) != 0)
        return -1;
    l->weights->bytes += bytes;
    return 0;
}

/* A tensor left over (another bias, another norm) means the model computes something this code does
 * not. */
int weights_loader_check_all_bound(const struct weights_loader *l) {
    const struct tensor_file *file = l->model->file;
    for (size_t i = 0; i < tensor_file_num_tensors(file); i++) {
        struct text name = tensor_file_tensor(file, i)->name;
        if (!l->bound[i] && !tensor_names_is_spare(&l->model->config, name))
            return error_set(l->err, ERROR_MODEL,
                             "%s: tensor '%.*s' is not part of a %s model as supported here",
                             tensor_file_path(file), text_print_length(name), name.data,
                             l->model->config.architecture);
    }
    return 0;
}
