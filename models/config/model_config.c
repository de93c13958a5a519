#include "models/config/model_config.h"

#include "kernels/backend.h"
#include "models/config/architecture.h"

#include <math.h>

void model_config_init(struct model_config *config, const struct architecture *architecture) {
    *config = (struct model_config){
        .norm = architecture->norm,
        .pre_norm = architecture->pre_norm,
        .post_norm = architecture->post_norm,
        .parallel_residual = architecture->parallel_residual,
        .qk_norm = architecture->qk_norm,
        .activation = architecture->activation,
        .overflows_f16 = (architecture->flags & ARCHITECTURE_OVERFLOWS_F16) != 0,
        .norm_bias = (architecture->flags & ARCHITECTURE_BIASED_NORMS) != 0,
        .attention_sinks = (architecture->flags & ARCHITECTURE_SINKS) != 0,
        .attention_soft_cap = architecture->attention_soft_cap,
        .final_soft_cap = architecture->final_soft_cap,
        .embedding_scale = 1.0F,
        .residual_scale = 1.0F,
        .logit_scale = 1.0F,
    };
}

static int check_head_dim(const struct model_config *config, const struct model_config_names *names,
                          struct error *err) {
    if (config->head_dim % KV_HEAD_DIM_STEP == 0 && config->head_dim <= KV_MAX_HEAD_DIM)
        return 0;
    return error_set(
        err, ERROR_MODEL,
        "%s: %s (or %s %d / %s %d): heads of %d elements; must be a multiple of %d, at "
        "most %d",
        names->path, names->head_dim, names->hidden_size, config->hidden_size, names->num_heads,
        config->num_heads, config->head_dim, KV_HEAD_DIM_STEP, KV_MAX_HEAD_DIM);
}

int model_config_check_heads(struct model_config *config, const struct model_config_names *names,
                             struct error *err) {
    if (config->num_heads % config->num_kv_heads != 0)
        return error_set(err, ERROR_MODEL, "%s: %s: %d does not divide %s %d", names->path,
                         names->num_kv_heads, config->num_kv_heads, names->num_heads,
                         config->num_heads);
    if (config->head_dim == 0) {
        if (config->hidden_size % config->num_heads != 0)
            return error_set(err, ERROR_MODEL, "%s: %s: %d does not divide %s %d", names->path,
                             names->num_heads, config->num_heads, names->hidden_size,
                             config->hidden_size);
        config->head_dim = config->hidden_size / config->num_heads;
    }
    return check_head_dim(config, names, err);
}

void model_config_init_moe(struct model_config *config, const struct architecture *architecture) {
    const struct architecture_experts *experts = &architecture->experts;
    config->moe = (struct moe_config){
        .shared_gate = experts->shared == SHARED_GATED,
        .scoring = experts->scoring,
        .selection_bias = experts->is_biased,
        .is_transposed = experts->is_transposed && config->naming == TENSOR_NAMING_HF,
        .renormalise = config->naming == TENSOR_NAMING_GGUF ? experts->gguf_renormalise
                                                            : experts->hf_renormalise,
        .scale = 1.0F,
        .num_groups = 1,
        .num_chosen_groups = 1,
        .group_score = experts->scoring == ROUTE_SIGMOID ? ROUTE_GROUP_TOP2 : ROUTE_GROUP_MAX,
        .jitter = experts->jitter,
    };
}

/* Sparsemixer is defined for two choices; the best two experts of a group make its score. */
int model_config_check_moe(const struct moe_config *moe, const struct model_config_moe_names *names,
                           struct error *err) {
    if (moe->scoring == ROUTE_SPARSEMIXER && moe->num_chosen != 2)
        return error_set(err, ERROR_MODEL, "%s: %s: %d; only 2 is supported for this architecture",
                         names->path, names->num_chosen, moe->num_chosen);
    if (moe->num_experts % moe->num_groups != 0)
        return error_set(err, ERROR_MODEL, "%s: %s: %d does not divide the number of experts, %d",
                         names->path, names->num_groups, moe->num_groups, moe->num_experts);
    int32_t group_size = moe->num_experts / moe->num_groups;
    if (moe->num_groups > 1 && group_size < 2)
        return error_set(err, ERROR_MODEL, "%s: %s: %d groups of %d experts; must be of 2 or more",
                         names->path, names->num_groups, moe->num_groups, group_size);
    if (moe->num_chosen > moe->num_chosen_groups * group_size)
        return error_set(err, ERROR_MODEL,
                         "%s: %s: %d groups of %d experts are fewer than the %d chosen per token",
                         names->path, names->num_chosen_groups, moe->num_chosen_groups, group_size,
                         moe->num_chosen);
    return 0;
}

int model_config_set_latent(struct model_config *config,
                            const struct model_config_latent_names *names, struct error *err) {
    const struct latent_config *latent = &config->latent;
    const int32_t step = KV_HEAD_DIM_STEP;
    config->head_dim = latent->kv_rank + config->rotary_dim;
    config->num_kv_heads = 1;
    if (latent->kv_rank % step == 0 && config->rotary_dim % step == 0 && latent->nope_dim > 0 &&
        latent->nope_dim % step == 0 && latent->value_dim % step == 0 &&
        config->head_dim <= KV_MAX_LATENT_ROW)
        return 0;
    return error_set(err, ERROR_MODEL,
                     "%s: %s %d, %s %d, %s %d, %s %d: must be multiples of %d, and the first and "
                     "the third together at most %d",
                     names->path, names->kv_rank, latent->kv_rank, names->query_dim,
                     model_config_query_dim(config), names->rotary_dim, config->rotary_dim,
                     names->value_dim, latent->value_dim, step, KV_MAX_LATENT_ROW);
}

void model_config_scale_latent(struct model_config *config, double multiplier) {
    double factor = (double)config->ropes[0].factor;
    double scale = factor > 1.0 ? multiplier * log(factor) + 1.0 : 1.0;
    config->attention_scale *= (float)(scale * scale);
}

bool model_config_is_windowed(const struct architecture *architecture, int32_t layer) {
    if (architecture->window_rule == WINDOW_ALL_LAYERS ||
        architecture->window_rule == WINDOW_LISTED_LAYERS)
        return true;
    return architecture->window_rule == WINDOW_PERIODIC &&
           (layer + 1) % architecture->window_period != 0;
}

void model_config_set_layer_ropes(struct model_config *config,
                                  const struct architecture *architecture, const bool *rotates) {
    bool local = (architecture->flags & ARCHITECTURE_LOCAL_ROPE) != 0;
    bool needs_window = (architecture->flags & ARCHITECTURE_ROPE_NEEDS_WINDOW) != 0;
    config->num_ropes = 1;
    for (int32_t i = 0; i < config->num_layers; i++) {
        struct layer_config *layer = &config->layers[i];
        layer->rope = local && layer->window > 0 ? 1 : 0;
        if ((rotates != NULL && !rotates[i]) || (needs_window && layer->window == 0))
            layer->rope = -1;
        if (layer->rope == 1)
            config->num_ropes = 2;
    }
}

int32_t model_config_stretch(const struct rope_config *rope, int32_t max_position,
                             int32_t original_max_position) {
    double stretched = floor((double)original_max_position * (double)rope->factor);
    if (stretched <= max_position)
        return max_position;
    return stretched < MODEL_MAX_POSITION ? (int32_t)stretched : MODEL_MAX_POSITION;
}
