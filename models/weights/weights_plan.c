#include "models/weights/weights_plan.h"

#include "config/base/check.h"
#include "models/weights/weights.h"

/* --- What the file has --- */

static const struct tensor_info *find(const struct model *model, enum tensor_role role,
                                      const char *suffix) {
    return tensor_names_find(model, (struct tensor_place){role, 0}, suffix);
}

static int64_t num_rows(const struct model *model, enum tensor_role role) {
    const struct tensor_info *tensor = find(model, role, "weight");
    return tensor != NULL ? tensor->shape[0] : 0;
}

/* --- Matrices --- */

/* Matrices below one another, which the file has one by one or in one, and what is kept of each. */
struct stacked {
    int num_roles;
    enum tensor_role roles[WEIGHTS_MAX_PARTS];
    int32_t rows[WEIGHTS_MAX_PARTS];
    struct row_span kept[WEIGHTS_MAX_PARTS];
    enum tensor_role fused;
};

/* By the number of rows, because GGUF files have one name for the fused matrix and its lower part.
 */
static bool is_fused(const struct model *model, const struct stacked *stacked) {
    int32_t rows = 0;
    for (int i = 0; i < stacked->num_roles; i++)
        rows += stacked->rows[i];
    return num_rows(model, stacked->roles[0]) == 0 && num_rows(model, stacked->fused) == rows;
}

static struct weights_matrix plan_fused(const struct model *model, const struct stacked *stacked,
                                        int32_t layer) {
    struct weights_matrix out = {.num_parts = 1};
    struct weights_part *part = &out.parts[0];
    *part = (struct weights_part){.place = {stacked->fused, layer},
                                  .num_spans = stacked->num_roles,
                                  .biased = find(model, stacked->fused, "bias") != NULL};
    for (int i = 0; i < stacked->num_roles; i++) {
        part->spans[i] = stacked->kept[i];
        part->spans[i].first_row += part->rows;
        part->rows += stacked->rows[i];
    }
    return out;
}

/* One bias means that each of them has one. */
static struct weights_matrix plan_separate(const struct model *model, const struct stacked *stacked,
                                           int32_t layer) {
    struct weights_matrix out = {.num_parts = stacked->num_roles};
    bool biased = false;
    for (int i = 0; i < stacked->num_roles; i++)
        biased = biased || find(model, stacked->roles[i], "bias") != NULL;
    for (int i = 0; i < stacked->num_roles; i++)
        out.parts[i] = (struct weights_part){.place = {stacked->roles[i], layer},
                                             .rows = stacked->rows[i],
                                             .biased = biased,
                                             .num_spans = 1,
                                             .spans = {stacked->kept[i]}};
    return out;
}

/* A column-parallel matrix: whole rows, with their biases. */
static struct weights_matrix plan_stacked(const struct model *model, const struct stacked *stacked,
                                          int32_t layer) {
    struct weights_matrix out = is_fused(model, stacked) ? plan_fused(model, stacked, layer)
                                                         : plan_separate(model, stacked, layer);
    out.cols = out.num_cols = model->config.hidden_size;
    out.bias_scale = 1.0F;
    return out;
}

/* A row-parallel matrix, whose product is added to the hidden states: columns of all rows. The bias
 * is added once, by rank 0. residual_scale multiplies it too, unless a norm follows, which then
 * carries it. */
static struct weights_matrix plan_branch_end(const struct model *model,
                                             const struct model_shard *shard,
                                             struct tensor_place place, int32_t cols,
                                             struct row_span kept) {
    const struct model_config *config = &model->config;
    float bias_scale = config->post_norm ? 1.0F : config->residual_scale;
    return (struct weights_matrix){
        .num_parts = 1,
        .parts = {{.place = place,
                   .rows = config->hidden_size,
                   .biased = find(model, place.role, "bias") != NULL,
                   .num_spans = 1,
                   .spans = {{0, config->hidden_size}}}},
        .cols = cols,
        .first_col = kept.first_row,
        .num_cols = kept.num_rows,
        .bias_scale = shard->rank == 0 ? bias_scale : 0.0F,
    };
}

static struct row_span heads(int32_t first, int32_t count, const struct model_config *config) {
    return (struct row_span){first * config->head_dim, count * config->head_dim};
}

struct weights_matrix weights_plan_projection(const struct model *model,
                                              const struct model_shard *shard,
                                              enum projection_role role, int32_t layer) {
    const struct model_config *config = &model->config;
    int32_t q_rows = config->num_heads * config->head_dim, ffn = config->intermediate_size;
    int32_t kv_rows = config->num_kv_heads * config->head_dim;
    struct row_span q = heads(shard->first_head, shard->num_heads, config);
    struct row_span kv = heads(shard->first_kv_head, shard->num_kv_heads, config);
    struct row_span inner = {shard->first_intermediate, shard->intermediate_size};
    const struct stacked qkv = {.num_roles = 3,
                                .roles = {TENSOR_Q, TENSOR_K, TENSOR_V},
                                .rows = {q_rows, kv_rows, kv_rows},
                                .kept = {q, kv, kv},
                                .fused = TENSOR_QKV};
    const struct stacked gate_up = {.num_roles = 2,
                                    .roles = {TENSOR_GATE, TENSOR_UP},
                                    .rows = {ffn, ffn},
                                    .kept = {inner, inner},
                                    .fused = TENSOR_GATE_UP};
    switch (role) {
    case PROJECTION_QKV: {
        struct weights_matrix plan = plan_stacked(model, &qkv, layer);
        plan.keys = (struct row_span){q.num_rows, kv.num_rows};
        return plan;
    }
    case PROJECTION_ATTENTION_OUT:
        return plan_branch_end(model, shard, (struct tensor_place){TENSOR_ATTENTION_OUT, layer},
                               q_rows, q);
    case PROJECTION_GATE_UP:
        return plan_stacked(model, &gate_up, layer);
    case PROJECTION_DOWN:
        return plan_branch_end(model, shard, (struct tensor_place){TENSOR_DOWN, layer}, ffn, inner);
    case NUM_PROJECTION_ROLES:
        break;
    }
    CHECK(!"a projection of no layer");
}

struct weights_matrix weights_plan_vocab(const struct model *model, const struct model_shard *shard,
                                         enum tensor_role role, int32_t head_rows_step) {
    const struct model_config *config = &model->config;
    bool is_head = role == TENSOR_HEAD || config->tied_embeddings;
    return (struct weights_matrix){
        .num_parts = 1,
        .parts = {{.place = {role, 0},
                   .rows = config->vocab_size,
                   .num_spans = 1,
                   .spans = {{shard->first_vocab, shard->vocab_size}}}},
        .cols = config->hidden_size,
        .num_cols = config->hidden_size,
        .padding_rows = is_head ? weights_head_rows(shard, head_rows_step) - shard->vocab_size : 0,
        .bias_scale = 1.0F,
    };
}

/* What several ranks gather has no gaps. */
int32_t weights_head_rows(const struct model_shard *shard, int32_t head_rows_step) {
    if (shard->num_ranks > 1)
        return shard->vocab_size;
    return (shard->vocab_size + head_rows_step - 1) / head_rows_step * head_rows_step;
}

int32_t weights_part_rows(const struct weights_part *part) {
    int32_t rows = 0;
    for (int i = 0; i < part->num_spans; i++)
        rows += part->spans[i].num_rows;
    return rows;
}

size_t weights_plan_matrix_bytes(const struct weights_matrix *plan,
                                 const enum dtype types[static WEIGHTS_MAX_PARTS]) {
    size_t bytes = 0;
    for (int i = 0; i < plan->num_parts; i++) {
        if (types[i] == DTYPE_NONE || plan->num_cols % dtype_block_elements(types[i]) != 0)
            continue;
        size_t row_bytes = dtype_row_bytes(types[i], (size_t)plan->num_cols);
        bytes += i == 0 ? (size_t)plan->padding_rows * row_bytes : 0;
        row_bytes += plan->parts[i].biased && plan->bias_scale != 0.0F ? sizeof(float) : 0;
        bytes += (size_t)weights_part_rows(&plan->parts[i]) * row_bytes;
    }
    return bytes;
}

/* --- Norms --- */

static struct weights_norm norm_of_hidden(const struct model_config *config, enum tensor_role role,
                                          int32_t layer, float scale, size_t offset) {
    return (struct weights_norm){.place = {role, layer},
                                 .width = config->hidden_size,
                                 .count = config->hidden_size,
                                 .added = config->norm_plus_one ? 1.0F : 0.0F,
                                 .scale = scale,
                                 .offset = offset};
}

/* The rank's part of `total` heads, if each head has its own weights. */
static struct weights_norm norm_of_heads(const struct model_config *config, enum tensor_role role,
                                         int32_t layer, int32_t total, struct row_span kept,
                                         size_t offset) {
    bool full = config->qk_norm == QK_NORM_FULL;
    return (struct weights_norm){.place = {role, layer},
                                 .width = config->head_dim * (full ? total : 1),
                                 .first = full ? kept.first_row : 0,
                                 .count = full ? kept.num_rows : config->head_dim,
                                 .added = config->norm_plus_one ? 1.0F : 0.0F,
                                 .scale = 1.0F,
                                 .offset = offset};
}

#define NORM(name) offsetof(struct layer_weights, name)

int weights_plan_norms(const struct model_config *config, const struct model_shard *shard,
                       int32_t layer, struct weights_norm out[static WEIGHTS_MAX_NORMS]) {
    float residual = config->residual_scale;
    int count = 0;
    if (config->pre_norm)
        out[count++] =
            norm_of_hidden(config, TENSOR_ATTENTION_NORM, layer, 1.0F, NORM(attention_norm));
    if (config->pre_norm && !config->parallel_residual)
        out[count++] = norm_of_hidden(config, TENSOR_FFN_NORM, layer, 1.0F, NORM(ffn_norm));
    if (config->post_norm) {
        out[count++] = norm_of_hidden(config, TENSOR_ATTENTION_POST_NORM, layer, residual,
                                      NORM(attention_post_norm));
        out[count++] =
            norm_of_hidden(config, TENSOR_FFN_POST_NORM, layer, residual, NORM(ffn_post_norm));
    }
    if (config->qk_norm != QK_NORM_NONE) {
        out[count++] =
            norm_of_heads(config, TENSOR_Q_NORM, layer, config->num_heads,
                          heads(shard->first_head, shard->num_heads, config), NORM(q_norm));
        out[count++] =
            norm_of_heads(config, TENSOR_K_NORM, layer, config->num_kv_heads,
                          heads(shard->first_kv_head, shard->num_kv_heads, config), NORM(k_norm));
    }
    return count;
}

struct weights_norm weights_plan_output_norm(const struct model_config *config) {
    return norm_of_hidden(config, TENSOR_OUTPUT_NORM, 0, 1.0F, 0);
}
