#include "models/weights/weights.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"
#include "models/weights/key_bias.h"
#include "models/weights/packed_cache.h"
#include "models/weights/rope.h"
#include "models/weights/weights_loader.h"
#include "models/weights/weights_plan.h"
#include "models/weights/weights_reader.h"

#include <stdlib.h>

/* --- Rope tables --- */

static bool rope_table_bytes(const struct model_config *config,
                             const struct weights_options *options, size_t *out) {
    return checked_mul((size_t)options->max_model_len, (size_t)config->rotary_dim * sizeof(float),
                       out);
}

static bool cuts_key_bias(const struct model *model, const struct weights_options *options) {
    static const enum tensor_role roles[] = {TENSOR_K, TENSOR_QKV};
    bool is_there = false;
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        is_there |= tensor_names_find(model, (struct tensor_place){roles[i], 0}, "bias") != NULL;
    return options->cuts_key_bias && is_there && key_bias_can_be_cut(&model->config);
}

static size_t rope_column_stride(const struct weights_options *options) {
    size_t num_positions = (size_t)options->max_model_len;
    return (num_positions + ROPE_COLUMN_STEP - 1) / ROPE_COLUMN_STEP * ROPE_COLUMN_STEP;
}

/* Of the positions `first` on, whose rows are in `scratch`. */
static void upload_rope_columns(struct weights_loader *l, int32_t rope, int32_t first,
                                int32_t count) {
    const size_t rotary_dim = (size_t)l->model->config.rotary_dim;
    const size_t stride = rope_column_stride(l->options);
    const float *rows = l->scratch;
    float *column = l->requantised, *out = l->weights->rope_columns[rope].data;
    for (size_t c = 0; c < rotary_dim; c++) {
        for (size_t r = 0; r < (size_t)count; r++)
            column[r] = rows[r * rotary_dim + c];
        l->backend->ops->upload(l->backend, out + c * stride + first, column,
                                (size_t)count * sizeof(float));
    }
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
    bool has_columns = cuts_key_bias(l->model, l->options);
    if (has_columns && weights_loader_alloc(l, rope_column_stride(l->options) * row_bytes,
                                            &l->weights->rope_columns[rope]) != 0)
        return -1;
    int32_t rows_per_chunk = (int32_t)(WEIGHTS_CHUNK_BYTES / row_bytes);
    for (int32_t first = 0, count; first < num_positions; first += count) {
        count = min_int32(num_positions - first, rows_per_chunk);
        rope_fill_table(&config->ropes[rope], config->rotary_dim, num_positions, first, count,
                        l->scratch);
        l->backend->ops->upload(l->backend, (char *)out->data + (size_t)first * row_bytes,
                                l->scratch, (size_t)count * row_bytes);
        if (has_columns)
            upload_rope_columns(l, rope, first, count);
    }
    return 0;
}

/* --- Layers and ends --- */

/* In the order in which files have them. */
static const struct {
    enum projection_role role;
    size_t offset;
} projections[] = {
    {PROJECTION_Q_A, offsetof(struct layer_weights, q_a)},
    {PROJECTION_QKV, offsetof(struct layer_weights, qkv)},
    {PROJECTION_KV_A, offsetof(struct layer_weights, kv_a)},
    {PROJECTION_KEY_UP, offsetof(struct layer_weights, key_up)},
    {PROJECTION_VALUE_UP, offsetof(struct layer_weights, value_up)},
    {PROJECTION_ATTENTION_OUT, offsetof(struct layer_weights, attention_out)},
    {PROJECTION_GATE_UP, offsetof(struct layer_weights, gate_up)},
    {PROJECTION_DOWN, offsetof(struct layer_weights, down)},
    {PROJECTION_ROUTER, offsetof(struct layer_weights, router)},
    {PROJECTION_EXPERT_GATE_UP, offsetof(struct layer_weights, expert_gate_up)},
    {PROJECTION_EXPERT_DOWN, offsetof(struct layer_weights, expert_down)},
    {PROJECTION_SHARED_ROUTER, offsetof(struct layer_weights, shared_router)},
};
#define NUM_PROJECTIONS (sizeof(projections) / sizeof(projections[0]))

static struct projection *projection_at(struct layer_weights *w, size_t i) {
    return (struct projection *)((char *)w + projections[i].offset);
}

/* Keeps what was cut from the layer's key biases, [num_kv_heads]. Without any, attention is not
 * told. */
static int keep_key_bias(struct weights_loader *l, const struct key_bias *heads,
                         int32_t num_kv_heads, struct layer_weights *w) {
    const struct model_config *config = &l->model->config;
    size_t bytes = (size_t)num_kv_heads * sizeof(*heads);
    int32_t num_pairs = 0;
    if (weights_loader_alloc(l, bytes, &w->key_bias) != 0)
        return -1;
    l->backend->ops->upload(l->backend, w->key_bias.data, heads, bytes);
    for (int32_t h = 0; h < num_kv_heads; h++)
        num_pairs += heads[h].num_pairs;
    w->key_biases = (struct key_biases){.heads = num_pairs > 0 ? w->key_bias.data : NULL,
                                        .stride = (int32_t)rope_column_stride(l->options),
                                        .rotary_dim = config->rotary_dim,
                                        .interleaved = config->rope_interleaved};
    return 0;
}

static int load_qkv(struct weights_loader *l, const struct weights_matrix *plan,
                    struct layer_weights *w) {
    int32_t num_kv_heads = plan->keys.num_rows / l->model->config.head_dim;
    if (!cuts_key_bias(l->model, l->options))
        return weights_loader_load_matrix(l, plan, NULL, &w->qkv.matrix);
    struct key_bias *heads = calloc((size_t)num_kv_heads, sizeof(*heads));
    if (heads == NULL)
        return error_set(l->err, ERROR_MEMORY, "no memory for %d key biases", num_kv_heads);
    int status = weights_loader_load_matrix(l, plan, heads, &w->qkv.matrix);
    if (status == 0)
        status = keep_key_bias(l, heads, num_kv_heads, w);
    free(heads);
    return status;
}

/* Only for a quantised cache: others keep their bits. */
static int balance_norms(struct weights_loader *l, int32_t layer, struct layer_weights *w) {
    const struct backend_ops *ops = l->backend->ops;
    float q[KV_MAX_HEAD_DIM], k[KV_MAX_HEAD_DIM];
    ops->download(l->backend, q, w->q_norm.data, w->q_norm.bytes);
    ops->download(l->backend, k, w->k_norm.data, w->k_norm.bytes);
    if (ops->synchronize(l->backend, l->err) != 0)
        return -1;
    key_bias_balance_norms(&l->model->config, layer, q, k);
    ops->upload(l->backend, w->q_norm.data, q, w->q_norm.bytes);
    ops->upload(l->backend, w->k_norm.data, k, w->k_norm.bytes);
    return 0;
}

static int load_layer(struct weights_loader *l, const struct model_shard *shard, int32_t layer) {
    struct layer_weights *w = &l->weights->layers[layer];
    struct weights_norm norms[WEIGHTS_MAX_NORMS];
    int num_norms = weights_plan_norms(&l->model->config, shard, layer, norms);
    bool is_kept = model_shard_has_layer(shard, layer);
    for (int i = 0; i < num_norms; i++) {
        struct buffer *out = (struct buffer *)((char *)w + norms[i].offset);
        if (weights_loader_load_norm(l, &norms[i], is_kept ? out : NULL) != 0)
            return -1;
    }
    if (is_kept && l->options->cuts_key_bias && l->model->config.qk_norm == QK_NORM_HEAD &&
        balance_norms(l, layer, w) != 0)
        return -1;
    for (size_t i = 0; i < NUM_PROJECTIONS; i++) {
        if (!weights_plan_has_projection(&l->model->config, projections[i].role, layer))
            continue;
        const struct weights_matrix plan =
            weights_plan_projection(l->model, shard, projections[i].role, layer);
        struct projection *projection = projection_at(w, i);
        *projection = (struct projection){.role = projections[i].role, .layer = layer};
        int status =
            is_kept && projections[i].role == PROJECTION_QKV
                ? load_qkv(l, &plan, w)
                : weights_loader_load_matrix(l, &plan, NULL, is_kept ? &projection->matrix : NULL);
        if (status != 0)
            return -1;
    }
    return 0;
}

/* The first stage of a pipeline has the embedding, and the last one, where that is also the head.
 */
static bool keeps_embedding(const struct model_config *config, const struct model_shard *shard) {
    return shard->has_embedding || (config->tied_embeddings && shard->has_head);
}

static int load_mtp_vocab(struct weights_loader *l, const struct model_shard *shard,
                          enum tensor_role role, struct matrix **out) {
    const struct weights_matrix plan =
        weights_plan_vocab(l->model, shard, role, l->backend->head_rows_step);
    return weights_loader_load_matrix(l, &plan, NULL, out);
}

/* What an MTP layer has besides a layer, and its own ends or those of the model. */
static int load_mtp(struct weights_loader *l, const struct model_shard *shard) {
    const struct model_config *config = &l->model->config;
    const struct weights *shared = l->options->shared;
    struct weights *w = l->weights;
    struct buffer *vectors[] = {&w->embedding_norm, &w->hidden_norm, &w->output_norm};
    struct matrix **products[] = {&w->from_embedding, &w->from_hidden};
    struct weights_norm norms[WEIGHTS_MTP_NORMS];
    weights_plan_mtp_norms(l->model, norms);
    for (int i = 0; i < WEIGHTS_MTP_NORMS; i++)
        if (weights_loader_load_norm(l, &norms[i], vectors[i]) != 0)
            return -1;
    for (int i = 0; i < 2; i++) {
        const struct weights_matrix plan = weights_plan_mtp_projection(l->model, i == 1);
        if (weights_loader_load_matrix(l, &plan, NULL, products[i]) != 0)
            return -1;
    }
    w->shares_embedding = !config->has_own_embedding;
    w->shares_head = !config->has_own_head;
    w->embedding = w->shares_embedding ? shared->embedding : NULL;
    w->head = w->shares_head ? shared->head : NULL;
    if (!w->shares_embedding && load_mtp_vocab(l, shard, TENSOR_MTP_EMBEDDING, &w->embedding) != 0)
        return -1;
    return w->shares_head ? 0 : load_mtp_vocab(l, shard, TENSOR_MTP_HEAD, &w->head);
}

static int load_ends(struct weights_loader *l, const struct model_shard *shard) {
    const struct model_config *config = &l->model->config;
    struct weights *w = l->weights;
    int32_t step = l->backend->head_rows_step;
    const struct weights_matrix embedding =
        weights_plan_vocab(l->model, shard, TENSOR_EMBEDDING, step);
    const struct weights_matrix head = weights_plan_vocab(l->model, shard, TENSOR_HEAD, step);
    const struct weights_norm norm = weights_plan_output_norm(config);
    if (weights_loader_load_matrix(l, &embedding, NULL,
                                   keeps_embedding(config, shard) ? &w->embedding : NULL) != 0)
        return -1;
    if (config->tied_embeddings)
        w->head = w->embedding;
    else if (weights_loader_load_matrix(l, &head, NULL, shard->has_head ? &w->head : NULL) != 0)
        return -1;
    return weights_loader_load_norm(l, &norm, shard->has_head ? &w->output_norm : NULL);
}

/* --- All --- */

static int load_all(struct weights_loader *l, const struct model_shard *shard) {
    const struct model_config *config = &l->model->config;
    l->weights->layers = calloc((size_t)config->num_layers, sizeof(*l->weights->layers));
    if (l->weights->layers == NULL)
        return error_set(l->err, ERROR_MEMORY, "no memory for %d layers", config->num_layers);
    l->weights->num_layers = config->num_layers;
    if ((config->is_mtp ? load_mtp(l, shard) : load_ends(l, shard)) != 0)
        return -1;
    for (int32_t layer = config->is_mtp ? shard->first_layer : 0; layer < config->num_layers;
         layer++)
        if (load_layer(l, shard, layer) != 0)
            return -1;
    if (weights_loader_check_all_bound(l) != 0 || weights_reader_end(l->reader, l->err) != 0)
        return -1;
    for (int32_t rope = 0; rope < config->num_ropes; rope++)
        if (load_rope_table(l, rope) != 0)
            return -1;
    for (int32_t layer = 0; layer < config->num_layers; layer++)
        if (config->layers[layer].rope >= 0)
            l->weights->layers[layer].key_biases.rope_columns =
                l->weights->rope_columns[config->layers[layer].rope].data;
    return 0;
}

/* The weights of every rank in this process are found in the cache, or none are. */
static int open_packed(struct weights_loader *l, const struct model_shard *shard) {
    uint8_t settings[CONTENT_HASH_BYTES];
    struct weights_digest digest;
    bool all_found;
    if (l->options->packed_cache == NULL || weights_reader_is_chained(l->reader))
        return 0;
    weights_reader_hash_settings(l->reader, settings);
    struct packed_cache *packed =
        packed_cache_open(l->backend, l->model, shard, l->options, settings);
    l->weights->packed = packed;
    if (weights_reader_agree(l->reader, packed_cache_is_found(packed), &all_found, l->err) != 0)
        return -1;
    if (!all_found) {
        packed_cache_forget(packed);
        return 0;
    }
    if (packed_cache_get_digest(packed, &digest, l->err) != 0)
        return -1;
    weights_reader_restore(l->reader, &digest);
    l->weights->mapped_bytes = packed_cache_mapped_bytes(packed);
    return 0;
}

static int write_packed(struct weights_loader *l) {
    struct weights_digest digest;
    if (l->weights->packed == NULL || packed_cache_is_found(l->weights->packed))
        return 0;
    if (weights_reader_copy_digest(l->reader, &digest, l->err) != 0)
        return -1;
    packed_cache_write(l->weights->packed, &digest);
    weights_digest_finish(&digest);
    return 0;
}

int weights_load(struct backend *backend, const struct model *model,
                 const struct model_shard *shard, struct weights_reader *reader,
                 const struct weights_options *options, struct weights **out, struct error *err) {
    CHECK(options->max_model_len > 0);
    CHECK(!model->config.is_mtp || options->shared != NULL);
    struct error why = {0};
    struct weights_loader loader = {
        .backend = backend, .model = model, .reader = reader, .options = options, .err = &why};
    int status = weights_loader_init(&loader);
    if (status == 0)
        status = open_packed(&loader, shard);
    if (status == 0)
        status = load_all(&loader, shard);
    if (status == 0)
        status = write_packed(&loader);
    weights_loader_finish(&loader);
    if (status == 0) {
        *out = loader.weights;
        return 0;
    }
    weights_reader_abandon(reader, &why);
    weights_free(backend, loader.weights);
    return error_set(err, why.code, "%s", why.message);
}

int weights_load_alone(struct backend *backend, const struct model *model,
                       const struct model_shard *shard, const struct weights_options *options,
                       struct weights **out, struct error *err) {
    struct weights_reader *reader;
    if (weights_reader_create(model, 1, &reader, err) != 0)
        return -1;
    int status = weights_load(backend, model, shard, reader, options, out, err);
    weights_reader_destroy(reader);
    if (status == 0 && backend->ops->synchronize(backend, err) != 0) {
        weights_free(backend, *out);
        *out = NULL;
        return -1;
    }
    return status;
}

/* --- What it takes --- */

/* A tensor that is missing, or cannot be used, takes nothing: loading says so. */
static size_t matrix_bytes(const struct model *model, const struct weights_options *options,
                           const struct backend *backend, const struct weights_matrix *plan) {
    enum dtype types[WEIGHTS_MAX_PARTS];
    for (int i = 0; i < plan->num_parts; i++) {
        struct tensor_source source;
        if (!weights_part_find(model, &plan->parts[i], 0, &source) || source.dtype == DTYPE_NONE)
            types[i] = DTYPE_NONE;
        else
            types[i] = plan->keeps_type
                           ? source.dtype
                           : model_held_dtype(options->quantization, source.dtype, plan->cols);
    }
    return weights_plan_matrix_bytes(plan, types, backend);
}

static size_t layer_bytes(const struct model *model, const struct model_shard *shard,
                          const struct weights_options *options, const struct backend *backend,
                          int32_t layer) {
    struct weights_norm norms[WEIGHTS_MAX_NORMS];
    int num_norms = weights_plan_norms(&model->config, shard, layer, norms);
    size_t bytes = 0;
    for (int i = 0; i < num_norms; i++)
        bytes += weights_norm_bytes(&norms[i]);
    for (size_t i = 0; i < NUM_PROJECTIONS; i++) {
        if (!weights_plan_has_projection(&model->config, projections[i].role, layer))
            continue;
        const struct weights_matrix plan =
            weights_plan_projection(model, shard, projections[i].role, layer);
        bytes += matrix_bytes(model, options, backend, &plan);
    }
    return bytes;
}

/* What cutting takes: columns as large as the rope tables, which were measured. */
static size_t key_bias_bytes(const struct model_config *config, const struct model_shard *shard,
                             const struct weights_options *options) {
    size_t columns = rope_column_stride(options) * (size_t)config->rotary_dim;
    return columns * sizeof(float) * (size_t)config->num_ropes +
           (size_t)(shard->num_layers * shard->num_kv_heads) * sizeof(struct key_bias);
}

static size_t mtp_bytes(const struct model *model, const struct model_shard *shard,
                        const struct weights_options *options, const struct backend *backend) {
    const struct model_config *config = &model->config;
    struct weights_norm norms[WEIGHTS_MTP_NORMS];
    size_t bytes = 0;
    weights_plan_mtp_norms(model, norms);
    for (int i = 0; i < WEIGHTS_MTP_NORMS; i++)
        bytes += weights_norm_bytes(&norms[i]);
    const struct weights_matrix plans[] = {
        weights_plan_mtp_projection(model, false),
        weights_plan_mtp_projection(model, true),
        weights_plan_vocab(model, shard, TENSOR_MTP_EMBEDDING, backend->head_rows_step),
        weights_plan_vocab(model, shard, TENSOR_MTP_HEAD, backend->head_rows_step),
    };
    const bool is_own[] = {true, true, config->has_own_embedding, config->has_own_head};
    for (int i = 0; i < 4; i++)
        bytes += is_own[i] ? matrix_bytes(model, options, backend, &plans[i]) : 0;
    return bytes;
}

static size_t ends_bytes(const struct model *model, const struct model_shard *shard,
                         const struct weights_options *options, const struct backend *backend) {
    const struct model_config *config = &model->config;
    const struct weights_matrix embedding =
        weights_plan_vocab(model, shard, TENSOR_EMBEDDING, backend->head_rows_step);
    const struct weights_matrix head =
        weights_plan_vocab(model, shard, TENSOR_HEAD, backend->head_rows_step);
    const struct weights_norm norm = weights_plan_output_norm(config);
    size_t bytes = shard->has_head ? weights_norm_bytes(&norm) : 0;
    if (keeps_embedding(config, shard))
        bytes += matrix_bytes(model, options, backend, &embedding);
    if (shard->has_head && !config->tied_embeddings)
        bytes += matrix_bytes(model, options, backend, &head);
    return bytes;
}

size_t weights_needed(const struct model *model, const struct model_shard *shard,
                      const struct weights_options *options, const struct backend *backend) {
    const struct model_config *config = &model->config;
    size_t bytes, table_bytes;
    if (!rope_table_bytes(config, options, &table_bytes) ||
        !checked_mul(table_bytes, (size_t)config->num_ropes, &bytes))
        return SIZE_MAX;
    if (cuts_key_bias(model, options) &&
        !checked_add(bytes, key_bias_bytes(config, shard, options), &bytes))
        return SIZE_MAX;
    size_t ends = config->is_mtp ? mtp_bytes(model, shard, options, backend)
                                 : ends_bytes(model, shard, options, backend);
    if (!checked_add(bytes, ends, &bytes))
        return SIZE_MAX;
    for (int32_t i = 0; i < shard->num_layers; i++)
        if (!checked_add(bytes, layer_bytes(model, shard, options, backend, shard->first_layer + i),
                         &bytes))
            return SIZE_MAX;
    return bytes;
}

static void free_layer(struct backend *backend, struct layer_weights *w) {
    const struct backend_ops *ops = backend->ops;
    ops->buffer_free(backend, &w->attention_norm);
    ops->buffer_free(backend, &w->attention_post_norm);
    ops->buffer_free(backend, &w->q_norm);
    ops->buffer_free(backend, &w->k_norm);
    ops->buffer_free(backend, &w->q_a_norm);
    ops->buffer_free(backend, &w->kv_a_norm);
    ops->buffer_free(backend, &w->key_bias);
    ops->buffer_free(backend, &w->sinks);
    ops->buffer_free(backend, &w->selection_bias);
    ops->buffer_free(backend, &w->ffn_norm);
    ops->buffer_free(backend, &w->ffn_post_norm);
    for (size_t i = 0; i < NUM_PROJECTIONS; i++)
        ops->matrix_destroy(backend, projection_at(w, i)->matrix);
}

void weights_free(struct backend *backend, struct weights *weights) {
    if (weights == NULL)
        return;
    const struct backend_ops *ops = backend->ops;
    packed_cache_end_writing(weights->packed);
    for (int32_t layer = 0; layer < weights->num_layers; layer++)
        free_layer(backend, &weights->layers[layer]);
    free(weights->layers);
    if (weights->head != weights->embedding && !weights->shares_head)
        ops->matrix_destroy(backend, weights->head);
    if (!weights->shares_embedding)
        ops->matrix_destroy(backend, weights->embedding);
    ops->matrix_destroy(backend, weights->from_embedding);
    ops->matrix_destroy(backend, weights->from_hidden);
    ops->buffer_free(backend, &weights->embedding_norm);
    ops->buffer_free(backend, &weights->hidden_norm);
    ops->buffer_free(backend, &weights->output_norm);
    for (int rope = 0; rope < MODEL_MAX_ROPES; rope++) {
        ops->buffer_free(backend, &weights->rope_tables[rope]);
        ops->buffer_free(backend, &weights->rope_columns[rope]);
    }
    packed_cache_close(weights->packed);
    free(weights);
}
