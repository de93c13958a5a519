/* Weights are bound by the names of GGUF llama files. Each tensor is checked against the shape the
 * configuration asks for before the backend reads it, and its pages of the mapping are given back
 * to the system afterwards: what stays resident is the backend's repacked copy. */
#include "models/weights.h"

#include "config/check.h"
#include "config/checked.h"
#include "models/rope.h"
#include "models/tensor_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 3, NAME_BYTES = 64 };

struct loader {
    struct backend *backend;
    const struct model *model;
    struct weights *weights;
    bool *bound; /* [number of tensors in the file] */
    struct error *err;
};

/* One tensor of a matrix: its name and rows, and the name of its bias. */
struct wanted_part {
    char name[NAME_BYTES];
    char bias[NAME_BYTES]; /* empty: none */
    int32_t rows;
};

static struct wanted_part global_part(const char *name, int32_t rows) {
    struct wanted_part part = {.rows = rows};
    snprintf(part.name, sizeof(part.name), "%s.weight", name);
    return part;
}

static struct wanted_part layer_part(int32_t layer, const char *name, int32_t rows) {
    struct wanted_part part = {.rows = rows};
    snprintf(part.name, sizeof(part.name), "blk.%d.%s.weight", layer, name);
    return part;
}

static void print_shape(char *out, size_t capacity, const struct tensor_info *tensor) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < tensor->num_dims && used < capacity; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%" PRId64, i > 0 ? ", " : "",
                                 tensor->shape[i]);
}

/* rows 0: a vector of cols elements. */
static int check_shape(const struct loader *l, const struct tensor_info *tensor, int32_t rows,
                       int32_t cols) {
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

static const struct tensor_info *find(struct loader *l, const char *name, int32_t rows,
                                      int32_t cols) {
    const struct tensor_file *file = l->model->file;
    const struct tensor_info *tensor = tensor_file_find(file, name);
    if (tensor == NULL) {
        error_set(l->err, ERROR_MODEL, "%s: tensor '%s' is missing", tensor_file_path(file), name);
        return NULL;
    }
    if (check_shape(l, tensor, rows, cols) != 0)
        return NULL;
    l->bound[tensor - tensor_file_tensor(file, 0)] = true;
    return tensor;
}

/* A vector as float, whatever float type the file stores; the caller frees. NULL on failure. */
static float *read_vector(struct loader *l, const char *name, int32_t width) {
    const struct tensor_info *tensor = find(l, name, 0, width);
    if (tensor == NULL)
        return NULL;
    if (dtype_is_quantised(tensor->dtype)) {
        error_set(l->err, ERROR_MODEL, "%s: tensor '%s': type %s, expected f32, f16 or bf16",
                  tensor_file_path(l->model->file), name, dtype_name(tensor->dtype));
        return NULL;
    }
    float *values = malloc((size_t)width * sizeof(float));
    if (values == NULL) {
        error_set(l->err, ERROR_MEMORY, "no memory for a vector of %d elements", width);
        return NULL;
    }
    dtype_to_f32(tensor->dtype, tensor->data, values, (size_t)width);
    return values;
}

/* Fills in the parts of a matrix; the caller frees the biases, also after a failure. */
static int find_parts(struct loader *l, const struct wanted_part *wanted, int num_parts,
                      int32_t cols, const struct tensor_info **tensors, float **biases,
                      struct matrix_part *parts) {
    for (int i = 0; i < num_parts; i++) {
        tensors[i] = find(l, wanted[i].name, wanted[i].rows, cols);
        if (tensors[i] == NULL)
            return -1;
        if (wanted[i].bias[0] != '\0') {
            biases[i] = read_vector(l, wanted[i].bias, wanted[i].rows);
            if (biases[i] == NULL)
                return -1;
        }
        parts[i] =
            (struct matrix_part){tensors[i]->dtype, wanted[i].rows, tensors[i]->data, biases[i]};
    }
    return 0;
}

static int load_matrix(struct loader *l, const struct wanted_part *wanted, int num_parts,
                       int32_t cols, struct matrix **out) {
    const struct tensor_info *tensors[MAX_PARTS];
    struct matrix_part parts[MAX_PARTS];
    float *biases[MAX_PARTS] = {NULL};
    struct error why = {0};
    struct backend *b = l->backend;
    int status = find_parts(l, wanted, num_parts, cols, tensors, biases, parts);
    if (status == 0 && b->ops->matrix_create(b, parts, num_parts, cols, out, &why) != 0)
        status = error_set(l->err, why.code, "%s: tensor '%s': %s",
                           tensor_file_path(l->model->file), wanted[0].name, why.message);
    for (int i = 0; i < num_parts; i++)
        free(biases[i]);
    if (status != 0)
        return -1;
    for (int i = 0; i < num_parts; i++) {
        l->weights->bytes += tensors[i]->bytes;
        tensor_file_release(l->model->file, tensors[i]);
    }
    return 0;
}

static int alloc_buffer(struct loader *l, size_t bytes, struct buffer *out) {
    if (l->backend->ops->buffer_alloc(l->backend, bytes, out, l->err) != 0)
        return -1;
    l->weights->bytes += bytes;
    return 0;
}

/* Norm weights are kept as float whatever the file stores. */
static int load_norm(struct loader *l, struct wanted_part wanted, struct buffer *out) {
    int32_t width = l->model->config.hidden_size;
    size_t bytes = (size_t)width * sizeof(float);
    float *values = read_vector(l, wanted.name, width);
    if (values == NULL)
        return -1;
    int status = alloc_buffer(l, bytes, out);
    if (status == 0)
        l->backend->ops->upload(l->backend, out->data, values, bytes);
    free(values);
    return status;
}

/* q, k and v have a bias each, or none of them has. */
static void want_biases(const struct loader *l, int32_t layer, struct wanted_part qkv[3]) {
    static const char *const names[3] = {"attn_q", "attn_k", "attn_v"};
    bool present = false;
    for (int i = 0; i < 3; i++) {
        snprintf(qkv[i].bias, sizeof(qkv[i].bias), "blk.%d.%s.bias", layer, names[i]);
        present = present || tensor_file_find(l->model->file, qkv[i].bias) != NULL;
    }
    for (int i = 0; i < 3 && !present; i++)
        qkv[i].bias[0] = '\0';
}

static int load_layer(struct loader *l, int32_t layer) {
    const struct model_config *config = &l->model->config;
    struct layer_weights *w = &l->weights->layers[layer];
    int32_t hidden = config->hidden_size, ffn = config->intermediate_size;
    int32_t q_rows = config->num_heads * config->head_dim;
    int32_t kv_rows = config->num_kv_heads * config->head_dim;
    struct wanted_part qkv[3] = {layer_part(layer, "attn_q", q_rows),
                                 layer_part(layer, "attn_k", kv_rows),
                                 layer_part(layer, "attn_v", kv_rows)};
    want_biases(l, layer, qkv);
    const struct wanted_part gate_up[2] = {layer_part(layer, "ffn_gate", ffn),
                                           layer_part(layer, "ffn_up", ffn)};
    const struct wanted_part attention_out = layer_part(layer, "attn_output", hidden);
    const struct wanted_part down = layer_part(layer, "ffn_down", hidden);
    if (load_norm(l, layer_part(layer, "attn_norm", 0), &w->attention_norm) != 0 ||
        load_norm(l, layer_part(layer, "ffn_norm", 0), &w->ffn_norm) != 0)
        return -1;
    if (load_matrix(l, qkv, 3, hidden, &w->qkv) != 0 ||
        load_matrix(l, &attention_out, 1, q_rows, &w->attention_out) != 0)
        return -1;
    if (load_matrix(l, gate_up, 2, hidden, &w->gate_up) != 0)
        return -1;
    return load_matrix(l, &down, 1, ffn, &w->down);
}

static int load_ends(struct loader *l) {
    const struct model_config *config = &l->model->config;
    struct weights *w = l->weights;
    const struct wanted_part embedding = global_part("token_embd", config->vocab_size);
    const struct wanted_part head = global_part("output", config->vocab_size);
    if (load_matrix(l, &embedding, 1, config->hidden_size, &w->embedding) != 0)
        return -1;
    if (config->tied_embeddings)
        w->head = w->embedding;
    else if (load_matrix(l, &head, 1, config->hidden_size, &w->head) != 0)
        return -1;
    return load_norm(l, global_part("output_norm", 0), &w->output_norm);
}

static int load_rope_table(struct loader *l, int32_t num_positions) {
    const struct model_config *config = &l->model->config;
    size_t bytes;
    if (!checked_mul((size_t)num_positions, (size_t)config->rotary_dim * sizeof(float), &bytes))
        return error_set(l->err, ERROR_MEMORY, "a rope table of %d positions is too large",
                         num_positions);
    if (alloc_buffer(l, bytes, &l->weights->rope_table) != 0)
        return -1;
    float *table = malloc(bytes);
    if (table == NULL)
        return error_set(l->err, ERROR_MEMORY, "no memory for a rope table of %d positions",
                         num_positions);
    rope_fill_table(&config->ropes[0], config->rotary_dim, num_positions, table);
    l->backend->ops->upload(l->backend, l->weights->rope_table.data, table, bytes);
    free(table);
    return 0;
}

/* A tensor nobody asked for (another bias, rope frequency factors) means the model computes
 * something this code does not. */
static int check_all_bound(const struct loader *l) {
    const struct tensor_file *file = l->model->file;
    for (size_t i = 0; i < tensor_file_num_tensors(file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(file, i);
        if (!l->bound[i])
            return error_set(l->err, ERROR_MODEL,
                             "%s: tensor '%.*s' is not part of a %s model as supported here",
                             tensor_file_path(file), text_print_length(tensor->name),
                             tensor->name.data, l->model->config.architecture);
    }
    return 0;
}

static int load_all(struct loader *l, int32_t max_model_len) {
    const struct model_config *config = &l->model->config;
    l->weights->layers = calloc((size_t)config->num_layers, sizeof(*l->weights->layers));
    if (l->weights->layers == NULL)
        return error_set(l->err, ERROR_MEMORY, "no memory for %d layers", config->num_layers);
    l->weights->num_layers = config->num_layers;
    if (load_ends(l) != 0)
        return -1;
    for (int32_t layer = 0; layer < config->num_layers; layer++)
        if (load_layer(l, layer) != 0)
            return -1;
    if (check_all_bound(l) != 0)
        return -1;
    return load_rope_table(l, max_model_len);
}

size_t weights_needed(const struct model *model, int32_t max_model_len, enum dtype dtype) {
    const struct model_config *config = &model->config;
    size_t bytes = (size_t)max_model_len * (size_t)config->rotary_dim * sizeof(float);
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(model->file, i);
        size_t elements = 1;
        for (int d = 0; d < tensor->num_dims; d++)
            elements *= (size_t)tensor->shape[d];
        bytes += dtype_row_bytes(tensor->num_dims > 1 ? dtype : DTYPE_F32, elements);
    }
    return bytes;
}

int weights_load(struct backend *backend, const struct model *model, int32_t max_model_len,
                 struct weights **out, struct error *err) {
    CHECK(max_model_len > 0);
    size_t num_tensors = tensor_file_num_tensors(model->file);
    struct loader loader = {.backend = backend, .model = model, .err = err};
    loader.weights = calloc(1, sizeof(*loader.weights));
    loader.bound = calloc(num_tensors + 1, sizeof(*loader.bound));
    int status;
    if (loader.weights == NULL || loader.bound == NULL)
        status = error_set(err, ERROR_MEMORY, "no memory for %zu tensors", num_tensors);
    else
        status = load_all(&loader, max_model_len);
    if (status == 0)
        status = backend->ops->synchronize(backend, err);
    free(loader.bound);
    if (status != 0) {
        weights_free(backend, loader.weights);
        return -1;
    }
    *out = loader.weights;
    return 0;
}

static void free_layer(struct backend *backend, struct layer_weights *w) {
    const struct backend_ops *ops = backend->ops;
    ops->buffer_free(backend, &w->attention_norm);
    ops->buffer_free(backend, &w->ffn_norm);
    ops->matrix_destroy(backend, w->qkv);
    ops->matrix_destroy(backend, w->attention_out);
    ops->matrix_destroy(backend, w->gate_up);
    ops->matrix_destroy(backend, w->down);
}

void weights_free(struct backend *backend, struct weights *weights) {
    if (weights == NULL)
        return;
    const struct backend_ops *ops = backend->ops;
    for (int32_t layer = 0; layer < weights->num_layers; layer++)
        free_layer(backend, &weights->layers[layer]);
    free(weights->layers);
    if (weights->head != weights->embedding)
        ops->matrix_destroy(backend, weights->head);
    ops->matrix_destroy(backend, weights->embedding);
    ops->buffer_free(backend, &weights->output_norm);
    ops->buffer_free(backend, &weights->rope_table);
    free(weights);
}
