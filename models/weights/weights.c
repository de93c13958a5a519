/* Decides which tensors make up a model: the roles of tensor_names.h, those norms that the
 * configuration has, and what the file decides by having it. Biases and fused matrices are searched
 * in layer 0 and expected, or not, in all. */
#include "models/weights/weights.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"
#include "models/weights/model_digest.h"
#include "models/weights/rope.h"
#include "models/weights/weights_loader.h"

#include <stdlib.h>

/* --- Norms ------------------------------------------------------------------------------------ */

/* Keeps a norm as float whatever the file stores, and ready to multiply with. */
static int load_norm(struct weights_loader *l, struct tensor_place place, int32_t width,
                     float scale, struct buffer *out) {
    size_t bytes = (size_t)width * sizeof(float);
    float *values = weights_loader_read_vector(l, place, "weight", width);
    if (values == NULL)
        return -1;
    float added = l->model->config.norm_plus_one ? 1.0F : 0.0F;
    for (int32_t i = 0; i < width; i++)
        values[i] = (values[i] + added) * scale;
    int status = weights_loader_alloc(l, bytes, out);
    if (status == 0)
        l->backend->ops->upload(l->backend, out->data, values, bytes);
    free(values);
    return status;
}

static int load_norms(struct weights_loader *l, int32_t layer) {
    const struct model_config *config = &l->model->config;
    struct layer_weights *w = &l->weights->layers[layer];
    bool full = config->qk_norm == QK_NORM_FULL, has_qk = config->qk_norm != QK_NORM_NONE;
    int32_t hidden = config->hidden_size, head_dim = config->head_dim;
    float scale = config->residual_scale;
    const struct {
        bool is_there;
        enum tensor_role role;
        int32_t width;
        float scale;
        struct buffer *out;
    } norms[] = {
        {config->pre_norm, TENSOR_ATTENTION_NORM, hidden, 1.0F, &w->attention_norm},
        {config->pre_norm && !config->parallel_residual, TENSOR_FFN_NORM, hidden, 1.0F,
         &w->ffn_norm},
        {config->post_norm, TENSOR_ATTENTION_POST_NORM, hidden, scale, &w->attention_post_norm},
        {config->post_norm, TENSOR_FFN_POST_NORM, hidden, scale, &w->ffn_post_norm},
        {has_qk, TENSOR_Q_NORM, head_dim * (full ? config->num_heads : 1), 1.0F, &w->q_norm},
        {has_qk, TENSOR_K_NORM, head_dim * (full ? config->num_kv_heads : 1), 1.0F, &w->k_norm},
    };
    for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++) {
        struct tensor_place place = {norms[i].role, layer};
        if (norms[i].is_there &&
            load_norm(l, place, norms[i].width, norms[i].scale, norms[i].out) != 0)
            return -1;
    }
    return 0;
}

/* --- Matrices --------------------------------------------------------------------------------- */

/* Returns whether one of the roles has a bias in layer 0; then all of them have, in every layer. */
static bool is_biased(const struct weights_loader *l, const enum tensor_role *roles,
                      int num_roles) {
    for (int i = 0; i < num_roles; i++)
        if (weights_loader_has_bias(l, (struct tensor_place){roles[i], 0}))
            return true;
    return false;
}

/* Several matrices below one another, which the file has one by one or in one. */
struct stacked {
    enum tensor_role roles[3];
    int32_t rows[3];
    int num_roles;
    enum tensor_role fused;
};

static int load_stacked(struct weights_loader *l, int32_t layer, const struct stacked *stacked,
                        int32_t cols, struct matrix **out) {
    struct weights_part parts[3];
    bool biased = is_biased(l, stacked->roles, stacked->num_roles);
    int32_t rows = 0;
    for (int i = 0; i < stacked->num_roles; i++) {
        parts[i] = (struct weights_part){{stacked->roles[i], layer}, stacked->rows[i], biased};
        rows += stacked->rows[i];
    }
    /* By the number of rows, because GGUF files have one name for the fused matrix and its lower
     * part. */
    bool is_fused = weights_loader_num_rows(l, (struct tensor_place){stacked->roles[0], 0}) == 0 &&
                    weights_loader_num_rows(l, (struct tensor_place){stacked->fused, 0}) == rows;
    if (!is_fused)
        return weights_loader_load_matrix(l, parts, stacked->num_roles, cols, 1.0F, out);
    biased = is_biased(l, &stacked->fused, 1);
    const struct weights_part fused = {{stacked->fused, layer}, rows, biased};
    return weights_loader_load_matrix(l, &fused, 1, cols, 1.0F, out);
}

/* Loads a matrix whose product is added to the hidden states. residual_scale multiplies its bias
 * too, unless a norm follows, which then carries it. */
static int load_branch_end(struct weights_loader *l, struct tensor_place place, int32_t cols,
                           struct matrix **out) {
    const struct model_config *config = &l->model->config;
    const struct weights_part part = {place, config->hidden_size, is_biased(l, &place.role, 1)};
    float bias_scale = config->post_norm ? 1.0F : config->residual_scale;
    return weights_loader_load_matrix(l, &part, 1, cols, bias_scale, out);
}

static int load_layer(struct weights_loader *l, int32_t layer) {
    const struct model_config *config = &l->model->config;
    struct layer_weights *w = &l->weights->layers[layer];
    int32_t hidden = config->hidden_size, ffn = config->intermediate_size;
    int32_t q_rows = config->num_heads * config->head_dim;
    int32_t kv_rows = config->num_kv_heads * config->head_dim;
    const struct stacked qkv = {
        {TENSOR_Q, TENSOR_K, TENSOR_V}, {q_rows, kv_rows, kv_rows}, 3, TENSOR_QKV};
    const struct stacked gate_up = {{TENSOR_GATE, TENSOR_UP}, {ffn, ffn}, 2, TENSOR_GATE_UP};
    const struct tensor_place attention_out = {TENSOR_ATTENTION_OUT, layer};
    const struct tensor_place down = {TENSOR_DOWN, layer};
    if (load_norms(l, layer) != 0 || load_stacked(l, layer, &qkv, hidden, &w->qkv) != 0 ||
        load_branch_end(l, attention_out, q_rows, &w->attention_out) != 0 ||
        load_stacked(l, layer, &gate_up, hidden, &w->gate_up) != 0)
        return -1;
    return load_branch_end(l, down, ffn, &w->down);
}

static int load_ends(struct weights_loader *l) {
    const struct model_config *config = &l->model->config;
    struct weights *w = l->weights;
    const struct tensor_place norm = {TENSOR_OUTPUT_NORM, 0};
    const struct weights_part embedding = {{TENSOR_EMBEDDING, 0}, config->vocab_size, false};
    const struct weights_part head = {{TENSOR_HEAD, 0}, config->vocab_size, false};
    if (weights_loader_load_matrix(l, &embedding, 1, config->hidden_size, 1.0F, &w->embedding) != 0)
        return -1;
    if (config->tied_embeddings)
        w->head = w->embedding;
    else if (weights_loader_load_matrix(l, &head, 1, config->hidden_size, 1.0F, &w->head) != 0)
        return -1;
    return load_norm(l, norm, config->hidden_size, 1.0F, &w->output_norm);
}

/* --- Rope tables ------------------------------------------------------------------------------ */

static bool rope_table_bytes(const struct model_config *config,
                             const struct weights_options *options, size_t *out) {
    return checked_mul((size_t)options->max_model_len, (size_t)config->rotary_dim * sizeof(float),
                       out);
}

static int load_rope_table(struct weights_loader *l, int32_t rope) {
    const struct model_config *config = &l->model->config;
    struct buffer *out = &l->weights->rope_tables[rope];
    int32_t num_positions = l->options->max_model_len;
    size_t bytes;
    if (!rope_table_bytes(config, l->options, &bytes))
        return error_set(l->err, ERROR_MEMORY, "a rope table of %d positions is too large",
                         num_positions);
    if (weights_loader_alloc(l, bytes, out) != 0)
        return -1;
    size_t row_bytes = (size_t)config->rotary_dim * sizeof(float);
    int32_t rows_per_chunk = (int32_t)(WEIGHTS_CHUNK_BYTES / row_bytes);
    for (int32_t first = 0, count; first < num_positions; first += count) {
        count = min_int32(num_positions - first, rows_per_chunk);
        rope_fill_table(&config->ropes[rope], config->rotary_dim, num_positions, first, count,
                        l->chunk);
        l->backend->ops->upload(l->backend, (char *)out->data + (size_t)first * row_bytes, l->chunk,
                                (size_t)count * row_bytes);
    }
    return 0;
}

/* --- All -------------------------------------------------------------------------------------- */

static int load_all(struct weights_loader *l) {
    const struct model_config *config = &l->model->config;
    l->weights->layers = calloc((size_t)config->num_layers, sizeof(*l->weights->layers));
    if (l->weights->layers == NULL)
        return error_set(l->err, ERROR_MEMORY, "no memory for %d layers", config->num_layers);
    l->weights->num_layers = config->num_layers;
    if (model_digest_add_settings(l->hash, l->model, l->chunk, WEIGHTS_CHUNK_BYTES, l->err) != 0)
        return -1;
    if (load_ends(l) != 0)
        return -1;
    for (int32_t layer = 0; layer < config->num_layers; layer++)
        if (load_layer(l, layer) != 0)
            return -1;
    if (weights_loader_check_all_bound(l) != 0)
        return -1;
    content_hash_digest(l->hash, l->weights->digest);
    for (int32_t rope = 0; rope < config->num_ropes; rope++)
        if (load_rope_table(l, rope) != 0)
            return -1;
    return l->backend->ops->synchronize(l->backend, l->err);
}

int weights_load(struct backend *backend, const struct model *model,
                 const struct weights_options *options, struct weights **out, struct error *err) {
    CHECK(options->max_model_len > 0);
    struct weights_loader loader = {
        .backend = backend, .model = model, .options = options, .err = err};
    int status = weights_loader_init(&loader);
    if (status == 0)
        status = load_all(&loader);
    weights_loader_finish(&loader);
    if (status != 0) {
        weights_free(backend, loader.weights);
        return -1;
    }
    *out = loader.weights;
    return 0;
}

size_t weights_needed(const struct model *model, const struct weights_options *options,
                      enum dtype held) {
    const struct model_config *config = &model->config;
    size_t bytes, table_bytes;
    if (!rope_table_bytes(config, options, &table_bytes) ||
        !checked_mul(table_bytes, (size_t)config->num_ropes, &bytes))
        return SIZE_MAX;
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct tensor_info *tensor = tensor_file_tensor(model->file, i);
        enum dtype dtype = DTYPE_F32;
        size_t elements = 1;
        for (int d = 0; d < tensor->num_dims; d++)
            elements *= (size_t)tensor->shape[d];
        if (tensor->num_dims > 1 && tensor->unsupported == NULL)
            dtype = held != DTYPE_NONE
                        ? held
                        : weights_loader_held_dtype(options, tensor->dtype,
                                                    tensor->shape[tensor->num_dims - 1]);
        if (!tensor_names_is_ignorable(config, tensor->name) &&
            !checked_add(bytes, dtype_row_bytes(dtype, elements), &bytes))
            return SIZE_MAX;
    }
    return bytes;
}

static void free_layer(struct backend *backend, struct layer_weights *w) {
    const struct backend_ops *ops = backend->ops;
    ops->buffer_free(backend, &w->attention_norm);
    ops->buffer_free(backend, &w->attention_post_norm);
    ops->buffer_free(backend, &w->q_norm);
    ops->buffer_free(backend, &w->k_norm);
    ops->buffer_free(backend, &w->ffn_norm);
    ops->buffer_free(backend, &w->ffn_post_norm);
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
    for (int rope = 0; rope < MODEL_MAX_ROPES; rope++)
        ops->buffer_free(backend, &weights->rope_tables[rope]);
    free(weights);
}
