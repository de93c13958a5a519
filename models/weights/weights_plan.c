#include "models/weights/weights_plan.h"

#include "config/base/check.h"
#include "models/weights/weights.h"

#include <stdlib.h>

/* --- What the file has --- */

/* The first layer of the same kind, which the others must agree with. Attention is of one kind. */
static int32_t model_layer(const struct model_config *config, enum tensor_role role,
                           int32_t layer) {
    bool is_sparse = config->layers[layer].is_sparse;
    int32_t first = 0;
    if (role >= TENSOR_MTP_PROJECTION)
        return layer;
    if (role < TENSOR_GATE)
        return 0;
    while (config->layers[first].is_sparse != is_sparse)
        first++;
    return first;
}

/* Finds what the file has for a role, in the layer that others must agree with. */
static bool find(const struct model *model, struct tensor_place place, struct tensor_source *out) {
    place.layer = model_layer(&model->config, place.role, place.layer);
    return tensor_source_find(model, place, out);
}

static int32_t num_rows(const struct model *model, struct tensor_place place) {
    struct tensor_source source;
    return find(model, place, &source) ? source.rows : 0;
}

static bool is_biased(const struct model *model, struct tensor_place place) {
    struct tensor_source source;
    return find(model, place, &source) && source.bias != NULL;
}

/* Experts are in one tensor, or in one each. */
static struct tensor_place place_of(const struct model *model, enum tensor_role role,
                                    int32_t layer) {
    struct tensor_place all = {role, layer, TENSOR_ALL_EXPERTS}, one = {role, layer, 0};
    bool is_expert = role >= TENSOR_EXPERT_GATE && role <= TENSOR_EXPERT_DOWN;
    struct tensor_source source;
    if (role == TENSOR_K_B || role == TENSOR_V_B)
        return all;
    return is_expert && find(model, all, &source) ? all : one;
}

bool weights_part_find(const struct model *model, const struct weights_part *part, int32_t expert,
                       struct tensor_source *out) {
    struct tensor_place place = part->place;
    if (place.expert != TENSOR_ALL_EXPERTS)
        place.expert = expert;
    return tensor_source_find(model, place, out);
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
static bool is_fused(const struct model *model, const struct stacked *stacked, int32_t layer) {
    int32_t rows = 0;
    for (int i = 0; i < stacked->num_roles; i++)
        rows += stacked->rows[i];
    return num_rows(model, place_of(model, stacked->roles[0], layer)) == 0 &&
           num_rows(model, place_of(model, stacked->fused, layer)) == rows;
}

static struct weights_matrix plan_fused(const struct model *model, const struct stacked *stacked,
                                        int32_t layer) {
    struct weights_matrix out = {.num_parts = 1};
    struct weights_part *part = &out.parts[0];
    *part = (struct weights_part){.place = place_of(model, stacked->fused, layer),
                                  .num_spans = stacked->num_roles};
    part->biased = is_biased(model, part->place);
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
        biased = biased || is_biased(model, place_of(model, stacked->roles[i], layer));
    for (int i = 0; i < stacked->num_roles; i++)
        out.parts[i] = (struct weights_part){.place = place_of(model, stacked->roles[i], layer),
                                             .rows = stacked->rows[i],
                                             .biased = biased,
                                             .num_spans = 1,
                                             .spans = {stacked->kept[i]}};
    return out;
}

/* A column-parallel matrix: whole rows, with their biases. */
static struct weights_matrix plan_stacked(const struct model *model, const struct stacked *stacked,
                                          int32_t layer) {
    struct weights_matrix out = is_fused(model, stacked, layer)
                                    ? plan_fused(model, stacked, layer)
                                    : plan_separate(model, stacked, layer);
    out.num_experts = 1;
    out.own = (struct row_span){0, 1};
    out.cols = out.num_cols = model->config.hidden_size;
    out.bias_scale = 1.0F;
    return out;
}

/* A matrix that every rank has, with whole rows. */
static struct weights_matrix plan_whole(const struct model *model, enum tensor_role role,
                                        int32_t layer, int32_t rows) {
    const struct stacked alone = {
        .num_roles = 1, .roles = {role}, .rows = {rows}, .kept = {{0, rows}}, .fused = role};
    struct weights_matrix plan = plan_stacked(model, &alone, layer);
    plan.keeps_type = true; /* small, and what follows from it is a choice */
    return plan;
}

/* A row-parallel matrix, whose product is added to the hidden states: columns of all rows. The bias
 * is added once, by rank 0. residual_scale multiplies it too, unless a norm follows, which then
 * carries it. */
static struct weights_matrix plan_branch_end(const struct model *model,
                                             const struct model_shard *shard, enum tensor_role role,
                                             int32_t layer, int32_t cols, struct row_span kept) {
    const struct model_config *config = &model->config;
    float bias_scale = config->post_norm ? 1.0F : config->residual_scale;
    struct tensor_place place = place_of(model, role, layer);
    return (struct weights_matrix){
        .num_experts = 1,
        .own = {0, 1},
        .num_parts = 1,
        .parts = {{.place = place,
                   .rows = config->hidden_size,
                   .biased = is_biased(model, place),
                   .num_spans = 1,
                   .spans = {{0, config->hidden_size}}}},
        .cols = cols,
        .first_col = kept.first_row,
        .num_cols = kept.num_rows,
        .bias_scale = shard->rank == 0 ? bias_scale : 0.0F,
    };
}

/* --- Experts --- */

/* Gate and up of an FFN of `size` inner elements, of which the rank keeps some. */
static struct weights_matrix plan_gate_up(const struct model *model, enum tensor_role gate,
                                          int32_t layer, int32_t size, struct row_span kept) {
    /* enum tensor_role has gate, up and the two in one in this order, for each kind of FFN. */
    const struct stacked gate_up = {.num_roles = 2,
                                    .roles = {gate, gate + 1},
                                    .rows = {size, size},
                                    .kept = {kept, kept},
                                    .fused = gate + 2};
    return plan_stacked(model, &gate_up, layer);
}

static struct weights_matrix plan_experts(const struct model *model,
                                          const struct model_shard *shard,
                                          enum projection_role role, int32_t layer) {
    const struct moe_config *moe = &model->config.moe;
    struct row_span inner = {shard->first_expert_inner, shard->expert_size};
    bool is_divided = shard->num_experts < moe->num_experts;
    struct weights_matrix plan =
        role == PROJECTION_EXPERT_GATE_UP
            ? plan_gate_up(model, TENSOR_EXPERT_GATE, layer, moe->expert_size, inner)
            : plan_branch_end(model, shard, TENSOR_EXPERT_DOWN, layer, moe->expert_size, inner);
    plan.num_experts = moe->num_experts;
    plan.is_grouped = true;
    plan.own = (struct row_span){shard->first_expert, shard->num_experts};
    /* Choices are summed with the scale, biases included; of whole experts each rank adds its own.
     */
    plan.bias_scale = is_divided || plan.bias_scale != 0.0F ? 1.0F : 0.0F;
    return plan;
}

/* The elements of consecutive heads of `dim`. */
static struct row_span heads(int32_t first, int32_t count, int32_t dim) {
    return (struct row_span){first * dim, count * dim};
}

bool weights_plan_has_projection(const struct model_config *config, enum projection_role role,
                                 int32_t layer) {
    bool is_sparse = config->layers[layer].is_sparse;
    switch (role) {
    case PROJECTION_GATE_UP:
    case PROJECTION_DOWN:
        return !is_sparse || config->moe.shared_size > 0;
    case PROJECTION_ROUTER:
    case PROJECTION_EXPERT_GATE_UP:
    case PROJECTION_EXPERT_DOWN:
        return is_sparse;
    case PROJECTION_SHARED_ROUTER:
        return is_sparse && config->moe.shared_gate;
    case PROJECTION_Q_A:
        return config->latent.q_rank > 0;
    case PROJECTION_KV_A:
    case PROJECTION_KEY_UP:
    case PROJECTION_VALUE_UP:
        return config->latent.kv_rank > 0;
    default:
        return true;
    }
}

static struct weights_matrix plan_qkv(const struct model *model, const struct model_shard *shard,
                                      int32_t layer) {
    const struct model_config *config = &model->config;
    int32_t q_rows = config->num_heads * config->head_dim;
    int32_t kv_rows = config->num_kv_heads * config->head_dim;
    struct row_span q = heads(shard->first_head, shard->num_heads, config->head_dim);
    struct row_span kv = heads(shard->first_kv_head, shard->num_kv_heads, config->head_dim);
    const struct stacked qkv = {.num_roles = 3,
                                .roles = {TENSOR_Q, TENSOR_K, TENSOR_V},
                                .rows = {q_rows, kv_rows, kv_rows},
                                .kept = {q, kv, kv},
                                .fused = TENSOR_QKV};
    struct weights_matrix plan = plan_stacked(model, &qkv, layer);
    plan.keys = (struct row_span){q.num_rows, kv.num_rows};
    return plan;
}

/* --- Latent attention --- */

static struct weights_matrix plan_queries(const struct model *model,
                                          const struct model_shard *shard, int32_t layer) {
    const struct model_config *config = &model->config;
    int32_t dim = model_config_query_dim(config);
    enum tensor_role role = config->latent.q_rank > 0 ? TENSOR_Q_B : TENSOR_Q;
    const struct stacked alone = {.num_roles = 1,
                                  .roles = {role},
                                  .rows = {config->num_heads * dim},
                                  .kept = {heads(shard->first_head, shard->num_heads, dim)},
                                  .fused = role};
    struct weights_matrix plan = plan_stacked(model, &alone, layer);
    if (config->latent.q_rank > 0)
        plan.cols = plan.num_cols = config->latent.q_rank;
    return plan;
}

/* The experts are heads. */
static struct weights_matrix plan_of_heads(const struct model *model,
                                           const struct model_shard *shard, enum tensor_role role,
                                           int32_t layer, int32_t rows, int32_t cols) {
    struct weights_matrix plan = plan_whole(model, role, layer, rows);
    plan.cols = plan.num_cols = cols;
    plan.num_experts = model->config.num_heads;
    plan.is_grouped = true;
    plan.own = (struct row_span){shard->first_head, shard->num_heads};
    plan.keeps_type = false;
    return plan;
}

static struct weights_matrix plan_latent(const struct model *model, const struct model_shard *shard,
                                         enum projection_role role, int32_t layer) {
    const struct latent_config *latent = &model->config.latent;
    struct weights_matrix plan;
    switch (role) {
    case PROJECTION_KEY_UP:
        return plan_of_heads(model, shard, TENSOR_K_B, layer, latent->kv_rank, latent->nope_dim);
    case PROJECTION_VALUE_UP:
        return plan_of_heads(model, shard, TENSOR_V_B, layer, latent->value_dim, latent->kv_rank);
    case PROJECTION_Q_A:
        plan = plan_whole(model, TENSOR_Q_A, layer, latent->q_rank);
        break;
    default:
        plan = plan_whole(model, TENSOR_KV_A, layer, latent->kv_rank + model->config.rotary_dim);
        break;
    }
    plan.keeps_type = false;
    return plan;
}

struct weights_matrix weights_plan_projection(const struct model *model,
                                              const struct model_shard *shard,
                                              enum projection_role role, int32_t layer) {
    const struct model_config *config = &model->config;
    bool is_shared = config->layers[layer].is_sparse;
    int32_t size = is_shared ? config->moe.shared_size : config->intermediate_size;
    struct row_span inner = {shard->first_intermediate, shard->intermediate_size};
    if (is_shared)
        inner = (struct row_span){shard->first_shared_inner, shard->shared_size};
    switch (role) {
    case PROJECTION_QKV:
        return config->latent.kv_rank > 0 ? plan_queries(model, shard, layer)
                                          : plan_qkv(model, shard, layer);
    case PROJECTION_ATTENTION_OUT:
        return plan_branch_end(
            model, shard, TENSOR_ATTENTION_OUT, layer,
            config->num_heads * model_config_value_dim(config),
            heads(shard->first_head, shard->num_heads, model_config_value_dim(config)));
    case PROJECTION_GATE_UP:
        return plan_gate_up(model, is_shared ? TENSOR_SHARED_GATE : TENSOR_GATE, layer, size,
                            inner);
    case PROJECTION_DOWN: {
        struct weights_matrix plan = plan_branch_end(
            model, shard, is_shared ? TENSOR_SHARED_DOWN : TENSOR_DOWN, layer, size, inner);
        if (is_shared && config->moe.shared_gate && plan.bias_scale != 0.0F)
            plan.bias_scale = 1.0F; /* summed with the scale, as experts are */
        return plan;
    }
    case PROJECTION_ROUTER:
        return plan_whole(model, TENSOR_ROUTER, layer, config->moe.num_experts);
    case PROJECTION_SHARED_ROUTER:
        return plan_whole(model, TENSOR_SHARED_ROUTER, layer, 1);
    case PROJECTION_EXPERT_GATE_UP:
    case PROJECTION_EXPERT_DOWN:
        return plan_experts(model, shard, role, layer);
    case PROJECTION_Q_A:
    case PROJECTION_KV_A:
    case PROJECTION_KEY_UP:
    case PROJECTION_VALUE_UP:
        return plan_latent(model, shard, role, layer);
    case NUM_PROJECTION_ROLES:
        break;
    }
    CHECK(!"a projection of no layer");
}

struct weights_matrix weights_plan_mtp_projection(const struct model *model, bool is_of_hidden) {
    const struct model_config *config = &model->config;
    int32_t hidden = config->hidden_size;
    struct weights_matrix plan =
        plan_whole(model, TENSOR_MTP_PROJECTION, config->num_layers - 1, hidden);
    plan.cols = 2 * hidden;
    plan.first_col = is_of_hidden ? hidden : 0;
    return plan;
}

struct weights_matrix weights_plan_vocab(const struct model *model, const struct model_shard *shard,
                                         enum tensor_role role, int32_t head_rows_step) {
    const struct model_config *config = &model->config;
    bool is_own = role == TENSOR_MTP_EMBEDDING || role == TENSOR_MTP_HEAD;
    bool is_head =
        role == TENSOR_HEAD || role == TENSOR_MTP_HEAD || (config->tied_embeddings && !is_own);
    return (struct weights_matrix){
        .num_experts = 1,
        .own = {0, 1},
        .num_parts = 1,
        .parts = {{.place = {role, is_own ? config->num_layers - 1 : 0, 0},
                   .rows = config->vocab_size,
                   .biased = role == TENSOR_HEAD && config->head_bias,
                   .num_spans = 1,
                   .spans = {{shard->first_vocab, shard->vocab_size}}}},
        .cols = config->hidden_size,
        .num_cols = config->hidden_size,
        .padding_rows = is_head ? weights_head_rows(shard, head_rows_step) - shard->vocab_size : 0,
        .bias_scale = config->logit_scale, /* which multiplies the product */
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

size_t weights_norm_bytes(const struct weights_norm *norm) {
    return (size_t)norm->count * (norm->biased ? 2 : 1) * sizeof(float);
}

size_t weights_plan_matrix_bytes(const struct weights_matrix *plan,
                                 const enum dtype types[static WEIGHTS_MAX_PARTS],
                                 const struct backend *backend) {
    static const float bias;
    const int num_parts = plan->own.num_rows * plan->num_parts;
    struct matrix_part *parts = calloc((size_t)num_parts + 1, sizeof(*parts));
    if (parts == NULL)
        return 0;
    bool is_known = true;
    for (int i = 0; i < num_parts; i++) {
        const struct weights_part *part = &plan->parts[i % plan->num_parts];
        bool adds_bias = part->biased && plan->bias_scale != 0.0F;
        parts[i] = (struct matrix_part){.dtype = types[i % plan->num_parts],
                                        .rows = weights_part_rows(part),
                                        .bias = adds_bias ? &bias : NULL};
        is_known = is_known && parts[i].dtype != DTYPE_NONE;
    }
    parts[num_parts] = (struct matrix_part){.dtype = types[0], .rows = plan->padding_rows};
    size_t bytes = !is_known
                       ? 0
                       : backend->ops->matrix_bytes(
                             backend, parts, num_parts + (plan->padding_rows > 0 ? 1 : 0),
                             plan->num_cols, plan->is_grouped ? MATRIX_GROUPED : MATRIX_LINEAR);
    free(parts);
    return bytes;
}

/* --- Norms --- */

static struct weights_norm norm_of_hidden(const struct model_config *config, enum tensor_role role,
                                          int32_t layer, float scale, size_t offset) {
    return (struct weights_norm){.place = {role, layer, 0},
                                 .width = config->hidden_size,
                                 .count = config->hidden_size,
                                 .added = config->norm_plus_one ? 1.0F : 0.0F,
                                 .scale = scale,
                                 .biased = config->norm_bias,
                                 .offset = offset};
}

/* The rank's part of `total` heads, if each head has its own weights. */
static struct weights_norm norm_of_heads(const struct model_config *config, enum tensor_role role,
                                         int32_t layer, int32_t total, struct row_span kept,
                                         size_t offset) {
    bool full = config->qk_norm == QK_NORM_FULL;
    return (struct weights_norm){.place = {role, layer, 0},
                                 .width = config->head_dim * (full ? total : 1),
                                 .first = full ? kept.first_row : 0,
                                 .count = full ? kept.num_rows : config->head_dim,
                                 .added = config->norm_plus_one ? 1.0F : 0.0F,
                                 .scale = 1.0F,
                                 .offset = offset};
}

/* Every rank has it, as the file does. */
static struct weights_norm whole_vector(enum tensor_role role, int32_t layer, int32_t width,
                                        size_t offset) {
    return (struct weights_norm){
        .place = {role, layer, 0}, .width = width, .count = width, .scale = 1.0F, .offset = offset};
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
        out[count++] = norm_of_heads(config, TENSOR_Q_NORM, layer, config->num_heads,
                                     heads(shard->first_head, shard->num_heads, config->head_dim),
                                     NORM(q_norm));
        out[count++] = norm_of_heads(
            config, TENSOR_K_NORM, layer, config->num_kv_heads,
            heads(shard->first_kv_head, shard->num_kv_heads, config->head_dim), NORM(k_norm));
    }
    if (config->latent.q_rank > 0)
        out[count++] = whole_vector(TENSOR_Q_A_NORM, layer, config->latent.q_rank, NORM(q_a_norm));
    if (config->latent.kv_rank > 0)
        out[count++] =
            whole_vector(TENSOR_KV_A_NORM, layer, config->latent.kv_rank, NORM(kv_a_norm));
    if (config->attention_sinks)
        out[count++] = (struct weights_norm){.place = {TENSOR_SINKS, layer, 0},
                                             .width = config->num_heads,
                                             .first = shard->first_head,
                                             .count = shard->num_heads,
                                             .scale = 1.0F,
                                             .offset = NORM(sinks)};
    if (config->layers[layer].is_sparse && config->moe.selection_bias)
        out[count++] = whole_vector(TENSOR_SELECTION_BIAS, layer, config->moe.num_experts,
                                    NORM(selection_bias));
    return count;
}

struct weights_norm weights_plan_output_norm(const struct model_config *config) {
    return norm_of_hidden(config, TENSOR_OUTPUT_NORM, 0, 1.0F, 0);
}

void weights_plan_mtp_norms(const struct model *model,
                            struct weights_norm out[static WEIGHTS_MTP_NORMS]) {
    static const enum tensor_role roles[] = {TENSOR_MTP_EMBEDDING_NORM, TENSOR_MTP_HIDDEN_NORM,
                                             TENSOR_MTP_OUTPUT_NORM};
    const struct model_config *config = &model->config;
    for (int i = 0; i < WEIGHTS_MTP_NORMS; i++)
        out[i] = norm_of_hidden(config, roles[i], config->num_layers - 1, 1.0F, 0);
    if (tensor_names_find(model, out[WEIGHTS_MTP_NORMS - 1].place, "weight") == NULL)
        out[WEIGHTS_MTP_NORMS - 1] = weights_plan_output_norm(config);
}
