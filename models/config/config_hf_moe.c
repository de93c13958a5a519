/* The mixture of experts of a Hugging Face folder. (Keys and defaults: the configuration_*.py of
 * each family in Hugging Face Transformers 5.) */
#include "models/config/config_hf.h"

#include "config/base/utf8.h"

#include <stdio.h>
#include <string.h>

/* The names under which families, and versions of Transformers, state the number of experts. */
static const char *const count_keys[] = {"num_experts", "num_local_experts", "n_routed_experts"};

static const char *find_count_key(const struct config_object *o) {
    for (size_t i = 0; i < sizeof(count_keys) / sizeof(count_keys[0]); i++)
        if (config_field_find(o, count_keys[i]) != NULL)
            return count_keys[i];
    return count_keys[0];
}

/* *out is 0 for a model without experts of a family that has both. */
static int read_count(const struct config_object *o, const struct architecture_experts *experts,
                      int32_t *out) {
    const char *key = find_count_key(o);
    bool can_be_dense = experts->num_experts == 0;
    *out = experts->num_experts;
    if (config_field_int(o, key, can_be_dense ? 0 : 2, EXPERTS_MAX, out) != 0)
        return -1;
    if (*out < 2)
        *out = 0;
    return 0;
}

/* --- Sizes --- */

static int read_size(const struct config_object *o, const char *key, int32_t min, int32_t otherwise,
                     int32_t *out) {
    *out = otherwise;
    return config_field_int(o, key, min, MODEL_MAX_INTERMEDIATE, out);
}

static int read_shared_size(const struct config_object *o,
                            const struct architecture_experts *experts, struct moe_config *out) {
    int32_t count = 1;
    switch (experts->shared) {
    case SHARED_NONE:
        return 0;
    case SHARED_GATED:
        return read_size(o, "shared_expert_intermediate_size", 1, experts->shared_size,
                         &out->shared_size);
    case SHARED_SIZED:
        return read_size(o, "shared_intermediate_size", 0, 0, &out->shared_size);
    case SHARED_COUNTED:
        break;
    }
    if (config_field_int(o, "n_shared_experts", 0, MODEL_MAX_INTERMEDIATE / out->expert_size,
                         &count) != 0)
        return -1;
    out->shared_size = count * out->expert_size;
    return 0;
}

static int read_sizes(const struct config_object *o, const struct architecture_experts *experts,
                      struct model_config *out) {
    struct moe_config *moe = &out->moe;
    int32_t most = moe->num_experts < EXPERTS_MAX_CHOSEN ? moe->num_experts : EXPERTS_MAX_CHOSEN;
    moe->num_chosen = experts->num_chosen;
    moe->expert_size = out->intermediate_size;
    if (config_field_int(o, "num_experts_per_tok", 1, most, &moe->num_chosen) != 0)
        return -1;
    if (moe->num_chosen > most) /* the default */
        return config_field_require(o, "num_experts_per_tok");
    if (experts->own_size &&
        read_size(o, "moe_intermediate_size", 1, experts->expert_size, &moe->expert_size) != 0)
        return -1;
    return read_shared_size(o, experts, moe);
}

/* --- Routing --- */

/* The names of what other families choose by. */
static int check_name(const struct config_object *o, const char *key, const char *supported) {
    const char *name = supported;
    char shown[UTF8_PRINTABLE_BYTES];
    if (config_field_string(o, key, &name) != 0)
        return -1;
    if (strcmp(name, supported) == 0)
        return 0;
    utf8_printable((struct text){name, strlen(name)}, shown);
    return config_field_refuse(
        o, key, "'%s' is not supported for this architecture (supported: %s)", shown, supported);
}

/* Without a bias, "greedy" means without groups. */
static int read_method(const struct config_object *o, bool is_biased, bool *out_has_groups) {
    const char *method = is_biased ? "noaux_tc" : "greedy";
    *out_has_groups = is_biased;
    if (check_name(o, "scoring_func", is_biased ? "sigmoid" : "softmax") != 0 ||
        config_field_string(o, "topk_method", &method) != 0)
        return -1;
    *out_has_groups = *out_has_groups || strcmp(method, "greedy") != 0;
    return !*out_has_groups
               ? 0
               : check_name(o, "topk_method", is_biased ? "noaux_tc" : "group_limited_greedy");
}

static int read_groups(const struct config_object *o, bool is_biased, struct moe_config *out) {
    bool has_groups;
    if (read_method(o, is_biased, &has_groups) != 0 ||
        config_field_float(o, "routed_scaling_factor", MODEL_MIN_MULTIPLIER, MODEL_MAX_MULTIPLIER,
                           &out->scale) != 0)
        return -1;
    if (!has_groups)
        return 0;
    if (config_field_int(o, "n_group", 1, out->num_experts, &out->num_groups) != 0)
        return -1;
    return config_field_int(o, "topk_group", 1, out->num_groups, &out->num_chosen_groups);
}

static int read_routing(const struct config_object *o, const struct architecture_experts *experts,
                        struct moe_config *out) {
    if (experts->says_renormalise && config_field_bool(o, "norm_topk_prob", &out->renormalise) != 0)
        return -1;
    if (out->scoring == ROUTE_SPARSEMIXER &&
        config_field_float(o, "router_jitter_noise", 0.0, 1.0, &out->jitter) != 0)
        return -1;
    return experts->is_grouped ? read_groups(o, experts->is_biased, out) : 0;
}

/* --- Layers --- */

static int read_steps(const struct config_object *o, struct model_config *out) {
    static const char key[] = "mlp_only_layers";
    int32_t step = 1;
    const cJSON *list, *item;
    if (config_field_int(o, "decoder_sparse_step", 1, MODEL_MAX_LAYERS, &step) != 0 ||
        config_field_array(o, key, &list) != 0)
        return -1;
    for (int32_t i = 0; i < out->num_layers; i++)
        out->layers[i].is_sparse = (i + 1) % step == 0;
    cJSON_ArrayForEach(item, list) {
        if (!config_field_is_int(item, 0, MODEL_MAX_LAYERS - 1))
            return config_field_refuse(o, key, "an element is not the number of a layer");
        if (item->valuedouble < out->num_layers)
            out->layers[(int32_t)item->valuedouble].is_sparse = false;
    }
    return 0;
}

static int read_layers(const struct config_object *o, const struct architecture_experts *experts,
                       struct model_config *out) {
    enum sparse_rule rule = experts->sparse_rule;
    int32_t first = experts->num_dense;
    bool any = false;
    if (rule == SPARSE_STEP && read_steps(o, out) != 0)
        return -1;
    if (rule == SPARSE_AFTER_DENSE &&
        config_field_int(o, "first_k_dense_replace", 0, MODEL_MAX_LAYERS, &first) != 0)
        return -1;
    for (int32_t i = 0; i < out->num_layers; i++) {
        if (rule != SPARSE_STEP)
            out->layers[i].is_sparse = i >= first;
        any = any || out->layers[i].is_sparse;
    }
    if (!any)
        out->moe = (struct moe_config){0};
    return 0;
}

int config_hf_read_experts(const struct config_object *o, const struct architecture *architecture,
                           struct model_config *out) {
    const struct architecture_experts *experts = &architecture->experts;
    char keys[3][96];
    snprintf(keys[0], sizeof(keys[0]), "%snum_experts_per_tok", o->prefix);
    snprintf(keys[1], sizeof(keys[1]), "%sn_group", o->prefix);
    snprintf(keys[2], sizeof(keys[2]), "%stopk_group", o->prefix);
    const struct model_config_moe_names names = {o->file, keys[0], keys[1], keys[2]};
    int32_t num_experts;
    if ((architecture->flags & ARCHITECTURE_EXPERTS) == 0)
        return 0;
    if ((architecture->flags & ARCHITECTURE_EXTRA_LAYERS) != 0) {
        out->num_extra_layers = 1;
        if (config_field_int(o, "num_nextn_predict_layers", 0, MODEL_MAX_LAYERS,
                             &out->num_extra_layers) != 0)
            return -1;
    }
    if (read_count(o, experts, &num_experts) != 0)
        return -1;
    if (num_experts == 0)
        return 0;
    model_config_init_moe(out, architecture);
    out->moe.num_experts = num_experts;
    if (read_sizes(o, experts, out) != 0 || read_routing(o, experts, &out->moe) != 0 ||
        model_config_check_moe(&out->moe, &names, o->err) != 0)
        return -1;
    return read_layers(o, experts, out);
}
