/* Latent attention of a Hugging Face folder. (Keys and defaults: configuration_deepseek_v2.py and
 * _v3.py of Hugging Face Transformers 5.) */
#include "models/config/config_hf.h"

#define NORM_EPS 1e-6F /* of both vectors, whatever rms_norm_eps says */

int config_hf_read_latent(const struct config_object *o, struct model_config *out) {
    static const char q_key[] = "q_lora_rank";
    const struct model_config_latent_names names = {o->file, "kv_lora_rank",
                                                    "qk_nope_head_dim + qk_rope_head_dim",
                                                    "qk_rope_head_dim", "v_head_dim"};
    struct latent_config *latent = &out->latent;
    *latent = (struct latent_config){.kv_rank = 512,
                                     .q_rank = config_field_is_null(o, q_key) ? 0 : 1536,
                                     .nope_dim = 128,
                                     .value_dim = 128,
                                     .norm_eps = NORM_EPS};
    out->rotary_dim = 64;
    if (config_field_int(o, names.kv_rank, 1, KV_MAX_LATENT_ROW, &latent->kv_rank) != 0 ||
        config_field_int(o, q_key, 1, MODEL_MAX_HIDDEN, &latent->q_rank) != 0 ||
        config_field_int(o, "qk_nope_head_dim", 1, KV_MAX_HEAD_DIM, &latent->nope_dim) != 0 ||
        config_field_int(o, names.value_dim, 1, KV_MAX_HEAD_DIM, &latent->value_dim) != 0 ||
        config_field_int(o, names.rotary_dim, 2, KV_MAX_HEAD_DIM, &out->rotary_dim) != 0)
        return -1;
    return model_config_set_latent(out, &names, o->err);
}
