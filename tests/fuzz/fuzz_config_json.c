/* Any bytes as the config.json of a folder: what is accepted is within the limits that the rest of
 * models/ relies on. */
#include "models/config/config_hf.h"
#include "tests/fuzz/tensor_touch.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition) {
    if (!condition)
        abort();
}

static void require_experts(const struct moe_config *moe) {
    require(moe->num_experts >= 2 && moe->num_experts <= EXPERTS_MAX);
    require(moe->num_chosen >= 1 && moe->num_chosen <= EXPERTS_MAX_CHOSEN);
    require(moe->num_groups >= 1 && moe->num_experts % moe->num_groups == 0);
    require(moe->num_chosen_groups >= 1 && moe->num_chosen_groups <= moe->num_groups);
    int32_t group_size = moe->num_experts / moe->num_groups;
    require(moe->num_chosen <= moe->num_chosen_groups * group_size);
    require(moe->expert_size >= 1 && moe->expert_size <= MODEL_MAX_INTERMEDIATE);
    require(moe->shared_size >= 0 && moe->shared_size <= MODEL_MAX_INTERMEDIATE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static struct model_config config;
    struct error err = {0};
    cJSON *root = cJSON_ParseWithLength((const char *)data, bytes);
    if (root == NULL)
        return 0;
    if (config_hf_read(root, "config.json", &config, &err) != 0) {
        check_refusal(&err, "config.json");
    } else {
        bool any_sparse = false;
        require(config.num_layers >= 1 && config.num_layers <= MODEL_MAX_LAYERS);
        require(config.num_kv_heads >= 1 && config.num_heads % config.num_kv_heads == 0);
        require(config.rotary_dim % 2 == 0 && config.rotary_dim <= config.head_dim);
        for (int32_t i = 0; i < config.num_layers; i++)
            any_sparse = any_sparse || config.layers[i].is_sparse;
        require(any_sparse == (config.moe.num_experts > 0));
        if (any_sparse)
            require_experts(&config.moe);
    }
    cJSON_Delete(root);
    return 0;
}
