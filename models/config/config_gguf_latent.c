/* Latent attention in a GGUF file. Files whose keys' and values' parts are tensors of their own
 * (attn_k_b, attn_v_b) describe attention as it runs on what is cached: one KV head, of key_length
 * and value_length; a head's own lengths then have names of their own, which end in _mla. Older
 * files have these under the names without it. */
#include "models/config/config_gguf.h"

#include <stdio.h>

/* A length of a head: by the key with _mla, else without. */
static int read_length(const struct metadata_source *s, const char *key, int32_t *out) {
    char own_key[METADATA_MAX_KEY];
    snprintf(own_key, sizeof(own_key), "%s_mla", key);
    const char *used = metadata_field_find(s, own_key) != NULL ? own_key : key;
    if (metadata_field_require(s, used) != 0)
        return -1;
    return metadata_field_int(s, used, 1, KV_MAX_HEAD_DIM, out);
}

int config_gguf_read_latent(const struct metadata_source *s, struct model_config *out) {
    static const char rank_key[] = ".attention.kv_lora_rank", rope_key[] = ".rope.dimension_count";
    static const char query_key[] = ".attention.key_length",
                      value_key[] = ".attention.value_length";
    const struct model_config_latent_names names = {tensor_file_path(s->file), rank_key + 1,
                                                    query_key + 1, rope_key + 1, value_key + 1};
    struct latent_config *latent = &out->latent;
    int32_t query_dim;
    if (metadata_field_require(s, rank_key) != 0 || metadata_field_require(s, rope_key) != 0 ||
        metadata_field_int(s, rank_key, 1, KV_MAX_LATENT_ROW, &latent->kv_rank) != 0 ||
        metadata_field_int(s, ".attention.q_lora_rank", 0, MODEL_MAX_HIDDEN, &latent->q_rank) !=
            0 ||
        read_length(s, query_key, &query_dim) != 0 ||
        read_length(s, value_key, &latent->value_dim) != 0 ||
        metadata_field_int(s, rope_key, 2, KV_MAX_HEAD_DIM, &out->rotary_dim) != 0)
        return -1;
    latent->nope_dim = query_dim - out->rotary_dim;
    return model_config_set_latent(out, &names, s->err);
}

/* llama.cpp then leaves cosines and sines as they are. */
int config_gguf_read_latent_scale(const struct metadata_source *s, struct model_config *out) {
    float multiplier = 0.0F;
    if (out->ropes[0].scaling != ROPE_SCALING_YARN)
        return 0;
    if (metadata_field_float(s, ".rope.scaling.yarn_log_multiplier", 0.0, 100.0, &multiplier) != 0)
        return -1;
    if (multiplier == 0.0F)
        return 0;
    out->ropes[0].attention_factor = 1.0F;
    model_config_scale_latent(out, (double)multiplier);
    return 0;
}
