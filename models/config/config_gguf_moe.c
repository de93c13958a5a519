/* The mixture of experts of a GGUF file. (Keys: gguf-py/gguf/constants.py of llama.cpp.) */
#include "models/config/config_gguf.h"

#include <stdio.h>

static int read_size(const struct metadata_source *s, const char *key, int32_t *out) {
    return metadata_field_int(s, key, 1, MODEL_MAX_INTERMEDIATE, out);
}

static int read_shared_size(const struct metadata_source *s, enum shared_expert shared,
                            const struct model_config *config, struct moe_config *out) {
    static const char size_key[] = ".expert_shared_feed_forward_length",
                      count_key[] = ".expert_shared_count";
    int32_t count = 0;
    switch (shared) {
    case SHARED_NONE:
        return 0;
    case SHARED_GATED:
        out->shared_size = config->intermediate_size;
        return read_size(s, size_key, &out->shared_size);
    case SHARED_SIZED:
        return metadata_field_int(s, size_key, 0, MODEL_MAX_INTERMEDIATE, &out->shared_size);
    case SHARED_COUNTED:
        break;
    }
    if (metadata_field_require(s, count_key) != 0 ||
        metadata_field_int(s, count_key, 0, MODEL_MAX_INTERMEDIATE / out->expert_size, &count) != 0)
        return -1;
    out->shared_size = count * out->expert_size;
    return 0;
}

static int read_sizes(const struct metadata_source *s, const struct architecture_experts *experts,
                      struct model_config *out) {
    static const char chosen_key[] = ".expert_used_count",
                      size_key[] = ".expert_feed_forward_length";
    struct moe_config *moe = &out->moe;
    int32_t most = moe->num_experts < EXPERTS_MAX_CHOSEN ? moe->num_experts : EXPERTS_MAX_CHOSEN;
    moe->expert_size = out->intermediate_size;
    if (metadata_field_require(s, chosen_key) != 0 ||
        metadata_field_int(s, chosen_key, 1, most, &moe->num_chosen) != 0 ||
        (experts->own_size && metadata_field_require(s, size_key) != 0) ||
        read_size(s, size_key, &moe->expert_size) != 0)
        return -1;
    return read_shared_size(s, experts->shared, out, moe);
}

/* The numbers by which files call the functions. A file that says nothing has its architecture's.
 */
static int read_scoring(const struct metadata_source *s, enum route_scoring *out) {
    static const char key[] = ".expert_gating_func";
    static const int32_t numbers[] = {
        [ROUTE_SOFTMAX] = 1, [ROUTE_SIGMOID] = 2, [ROUTE_SOFTMAX_OF_CHOSEN] = 3};
    int32_t number = 0;
    if (metadata_field_int(s, key, 0, INT32_MAX, &number) != 0)
        return -1;
    if (number == 0 || (*out < sizeof(numbers) / sizeof(numbers[0]) && number == numbers[*out]))
        return 0;
    return error_set(s->err, ERROR_MODEL, "%s: %s%s: %d is not supported for this architecture",
                     tensor_file_path(s->file), s->architecture, key, number);
}

static int read_routing(const struct metadata_source *s, bool is_grouped, struct moe_config *out) {
    int32_t renormalise = out->renormalise ? 1 : 0;
    if (read_scoring(s, &out->scoring) != 0 ||
        metadata_field_int(s, ".expert_weights_norm", 0, 1, &renormalise) != 0)
        return -1;
    out->renormalise = renormalise != 0;
    if (!is_grouped)
        return 0;
    if (metadata_field_float(s, ".expert_weights_scale", MODEL_MIN_MULTIPLIER, MODEL_MAX_MULTIPLIER,
                             &out->scale) != 0 ||
        metadata_field_int(s, ".expert_group_count", 1, out->num_experts, &out->num_groups) != 0)
        return -1;
    return metadata_field_int(s, ".expert_group_used_count", 1, out->num_groups,
                              &out->num_chosen_groups);
}

/* DeepSeek-V2's files, and V3's, have one architecture. */
static bool is_by_sigmoid(const struct metadata_source *s) {
    const struct metadata *entry = metadata_field_find(s, ".expert_gating_func");
    return entry != NULL && entry->type == METADATA_UINT && entry->as_uint == 2;
}

static void choose_by_softmax(struct moe_config *out) {
    out->scoring = ROUTE_SOFTMAX;
    out->group_score = ROUTE_GROUP_MAX;
    out->selection_bias = false;
}

int config_gguf_read_experts(const struct metadata_source *s,
                             const struct architecture *architecture, struct model_config *out) {
    static const char count_key[] = ".expert_count";
    const struct architecture_experts *experts = &architecture->experts;
    bool can_be_dense = experts->num_experts == 0;
    int32_t num_experts = 0, num_dense = 0;
    char keys[3][METADATA_MAX_KEY];
    snprintf(keys[0], METADATA_MAX_KEY, "%s.expert_used_count", s->architecture);
    snprintf(keys[1], METADATA_MAX_KEY, "%s.expert_group_count", s->architecture);
    snprintf(keys[2], METADATA_MAX_KEY, "%s.expert_group_used_count", s->architecture);
    const struct model_config_moe_names names = {tensor_file_path(s->file), keys[0], keys[1],
                                                 keys[2]};
    if ((architecture->flags & ARCHITECTURE_EXPERTS) == 0)
        return 0;
    if ((!can_be_dense && metadata_field_require(s, count_key) != 0) ||
        metadata_field_int(s, count_key, can_be_dense ? 0 : 2, EXPERTS_MAX, &num_experts) != 0)
        return -1;
    if (num_experts < 2)
        return 0;
    model_config_init_moe(out, architecture);
    out->moe.num_experts = num_experts;
    if ((architecture->flags & ARCHITECTURE_LATENT) != 0 && !is_by_sigmoid(s))
        choose_by_softmax(&out->moe);
    if (read_sizes(s, experts, out) != 0 || read_routing(s, experts->is_grouped, &out->moe) != 0 ||
        model_config_check_moe(&out->moe, &names, s->err) != 0)
        return -1;
    if (experts->sparse_rule == SPARSE_AFTER_DENSE &&
        metadata_field_int(s, ".leading_dense_block_count", 0, out->num_layers - 1, &num_dense) !=
            0)
        return -1;
    for (int32_t i = 0; i < out->num_layers; i++)
        out->layers[i].is_sparse = i >= num_dense;
    return 0;
}
