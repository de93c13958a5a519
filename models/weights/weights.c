#include "models/weights/weights.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"
#include "models/weights/rope.h"
#include "models/weights/weights_loader.h"
#include "models/weights/weights_plan.h"
#include "models/weights/weights_reader.h"

#include <stdlib.h>

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
                        l->scratch);
        l->backend->ops->upload(l->backend, (char *)out->data + (size_t)first * row_bytes,
                                l->scratch, (size_t)count * row_bytes);
    }
    return 0;
}

/* --- Layers and ends --------------------------------------------------------------------------- */

/* In the order in which files have them. */
static const struct {
    enum projection_role role;
    size_t offset;
} projections[] = {
    {PROJECTION_QKV, offsetof(struct layer_weights, qkv)},
    {PROJECTION_ATTENTION_OUT, offsetof(struct layer_weights, attention_out)},
    {PROJECTION_GATE_UP, offsetof(struct layer_weights, gate_up)},
    {PROJECTION_DOWN, offsetof(struct layer_weights, down)},
};
#define NUM_PROJECTIONS (sizeof(projections) / sizeof(projections[0]))

static struct projection *projection_at(struct layer_weights *w, size_t i) {
    return (struct projection *)((char *)w + projections[i].offset);
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
    for (size_t i = 0; i < NUM_PROJECTIONS; i++) {
        const struct weights_matrix plan =
            weights_plan_projection(l->model, shard, projections[i].role, layer);
        struct projection *projection = projection_at(w, i);
        *projection = (struct projection){.role = projections[i].role, .layer = layer};
        if (weights_loader_load_matrix(l, &plan, is_kept ? &projection->matrix : NULL) != 0)
            return -1;
    }
    return 0;
}

/* The first stage of a pipeline has the embedding, and the last one, where that is also the head. */
static bool keeps_embedding(const struct model_config *config, const struct model_shard *shard) {
    return shard->has_embedding || (config->tied_embeddings && shard->has_head);
}

static int load_ends(struct weights_loader *l, const struct model_shard *shard) {
    const struct model_config *config = &l->model->config;
    struct weights *w = l->weights;
    int32_t step = l->backend->head_rows_step;
    const struct weights_matrix embedding =
        weights_plan_vocab(l->model, shard, TENSOR_EMBEDDING, step);
    const struct weights_matrix head = weights_plan_vocab(l->model, shard, TENSOR_HEAD, step);
    const struct weights_norm norm = weights_plan_output_norm(config);
    if (weights_loader_load_matrix(l, &embedding,
                                   keeps_embedding(config, shard) ? &w->embedding : NULL) != 0)
        return -1;
    if (config->tied_embeddings)
        w->head = w->embedding;
    else if (weights_loader_load_matrix(l, &head, shard->has_head ? &w->head : NULL) != 0)
        return -1;
    return weights_loader_load_norm(l, &norm, shard->has_head ? &w->output_norm : NULL);
}

/* --- All -------------------------------------------------------------------------------------- */

static int load_all(struct weights_loader *l, const struct model_shard *shard) {
    const struct model_config *config = &l->model->config;
    l->weights->layers = calloc((size_t)config->num_layers, sizeof(*l->weights->layers));
    if (l->weights->layers == NULL)
        return error_set(l->err, ERROR_MEMORY, "no memory for %d layers", config->num_layers);
    l->weights->num_layers = config->num_layers;
    if (load_ends(l, shard) != 0)
        return -1;
    for (int32_t layer = 0; layer < config->num_layers; layer++)
        if (load_layer(l, shard, layer) != 0)
            return -1;
    if (weights_loader_check_all_bound(l) != 0 || weights_reader_end(l->reader, l->err) != 0)
        return -1;
    for (int32_t rope = 0; rope < config->num_ropes; rope++)
        if (load_rope_table(l, rope) != 0)
            return -1;
    return 0;
}

int weights_load(struct backend *backend, const struct model *model,
                 const struct model_shard *shard, struct weights_reader *reader,
                 const struct weights_options *options, struct weights **out, struct error *err) {
    CHECK(options->max_model_len > 0);
    struct error why = {0};
    struct weights_loader loader = {
        .backend = backend, .model = model, .reader = reader, .options = options, .err = &why};
    int status = weights_loader_init(&loader);
    if (status == 0)
        status = load_all(&loader, shard);
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

/* --- What it takes ---------------------------------------------------------------------------- */

/* A tensor that is missing, or cannot be used, takes nothing: loading says so. */
static size_t matrix_bytes(const struct model *model, const struct weights_options *options,
                           enum dtype held, const struct weights_matrix *plan) {
    enum dtype types[WEIGHTS_MAX_PARTS];
    for (int i = 0; i < plan->num_parts; i++) {
        const struct tensor_info *tensor = tensor_names_find(model, plan->parts[i].place, "weight");
        types[i] = held;
        if (tensor == NULL || tensor->unsupported != NULL)
            types[i] = DTYPE_NONE;
        else if (held == DTYPE_NONE)
            types[i] = model_held_dtype(options->quantization, tensor->dtype, plan->cols);
    }
    return weights_plan_matrix_bytes(plan, types);
}

static size_t layer_bytes(const struct model *model, const struct model_shard *shard,
                          const struct weights_options *options, enum dtype held, int32_t layer) {
    struct weights_norm norms[WEIGHTS_MAX_NORMS];
    int num_norms = weights_plan_norms(&model->config, shard, layer, norms);
    size_t bytes = 0;
    for (int i = 0; i < num_norms; i++)
        bytes += (size_t)norms[i].count * sizeof(float);
    for (size_t i = 0; i < NUM_PROJECTIONS; i++) {
        const struct weights_matrix plan =
            weights_plan_projection(model, shard, projections[i].role, layer);
        bytes += matrix_bytes(model, options, held, &plan);
    }
    return bytes;
}

size_t weights_needed(const struct model *model, const struct model_shard *shard,
                      const struct weights_options *options, enum dtype held,
                      int32_t head_rows_step) {
    const struct model_config *config = &model->config;
    const struct weights_matrix embedding =
        weights_plan_vocab(model, shard, TENSOR_EMBEDDING, head_rows_step);
    const struct weights_matrix head =
        weights_plan_vocab(model, shard, TENSOR_HEAD, head_rows_step);
    size_t bytes, table_bytes;
    if (!rope_table_bytes(config, options, &table_bytes) ||
        !checked_mul(table_bytes, (size_t)config->num_ropes, &bytes))
        return SIZE_MAX;
    size_t ends = shard->has_head ? (size_t)config->hidden_size * sizeof(float) : 0;
    if (keeps_embedding(config, shard))
        ends += matrix_bytes(model, options, held, &embedding);
    if (shard->has_head && !config->tied_embeddings)
        ends += matrix_bytes(model, options, held, &head);
    if (!checked_add(bytes, ends, &bytes))
        return SIZE_MAX;
    for (int32_t i = 0; i < shard->num_layers; i++)
        if (!checked_add(bytes, layer_bytes(model, shard, options, held, shard->first_layer + i),
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
    ops->buffer_free(backend, &w->ffn_norm);
    ops->buffer_free(backend, &w->ffn_post_norm);
    for (size_t i = 0; i < NUM_PROJECTIONS; i++)
        ops->matrix_destroy(backend, projection_at(w, i)->matrix);
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
