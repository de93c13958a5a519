#include "models/config/tensor_names.h"

#include "config/base/check.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *gguf;
    const char *hf;
} stems[NUM_TENSOR_ROLES] = {
    [TENSOR_EMBEDDING] = {"token_embd", "embed_tokens"},
    [TENSOR_OUTPUT_NORM] = {"output_norm", "norm"},
    [TENSOR_HEAD] = {"output", "lm_head"},
    [TENSOR_ATTENTION_NORM] = {"attn_norm", "input_layernorm"},
    [TENSOR_ATTENTION_POST_NORM] = {"post_attention_norm", "post_attention_layernorm"},
    [TENSOR_FFN_NORM] = {"ffn_norm", "pre_feedforward_layernorm"},
    [TENSOR_FFN_POST_NORM] = {"post_ffw_norm", "post_feedforward_layernorm"},
    [TENSOR_Q] = {"attn_q", "self_attn.q_proj"},
    [TENSOR_K] = {"attn_k", "self_attn.k_proj"},
    [TENSOR_V] = {"attn_v", "self_attn.v_proj"},
    [TENSOR_QKV] = {"attn_qkv", "self_attn.qkv_proj"},
    [TENSOR_Q_NORM] = {"attn_q_norm", "self_attn.q_norm"},
    [TENSOR_K_NORM] = {"attn_k_norm", "self_attn.k_norm"},
    [TENSOR_ATTENTION_OUT] = {"attn_output", "self_attn.o_proj"},
    [TENSOR_GATE] = {"ffn_gate", "mlp.gate_proj"},
    [TENSOR_UP] = {"ffn_up", "mlp.up_proj"},
    [TENSOR_GATE_UP] = {"ffn_up", "mlp.gate_up_proj"},
    [TENSOR_DOWN] = {"ffn_down", "mlp.down_proj"},
};

static bool starts_with(struct text text, const char *start) {
    return text.length >= strlen(start) && memcmp(text.data, start, strlen(start)) == 0;
}

/* The head is next to the module "model": "model." -> "", "language_model.model." ->
 * "language_model.". */
static int head_prefix_length(const char *prefix) {
    size_t length = strlen(prefix);
    bool inside = text_ends_with((struct text){prefix, length}, ".model.");
    return inside ? (int)(length - strlen("model.")) : 0;
}

static void write_hf(const struct model_config *config, struct tensor_place place,
                     const char *suffix, char *out) {
    enum tensor_role role = place.role;
    const char *stem = stems[role].hf, *prefix = config->tensor_prefix;
    if (role == TENSOR_FFN_NORM && !config->post_norm)
        stem = stems[TENSOR_ATTENTION_POST_NORM].hf;
    if (role == TENSOR_HEAD)
        snprintf(out, TENSOR_NAME_BYTES, "%.*s%s.%s", head_prefix_length(prefix), prefix, stem,
                 suffix);
    else if (role < TENSOR_ATTENTION_NORM)
        snprintf(out, TENSOR_NAME_BYTES, "%s%s.%s", prefix, stem, suffix);
    else
        snprintf(out, TENSOR_NAME_BYTES, "%slayers.%d.%s.%s", prefix, place.layer, stem, suffix);
}

static void write_gguf(struct tensor_place place, const char *suffix, char *out) {
    const char *stem = stems[place.role].gguf;
    if (place.role < TENSOR_ATTENTION_NORM)
        snprintf(out, TENSOR_NAME_BYTES, "%s.%s", stem, suffix);
    else
        snprintf(out, TENSOR_NAME_BYTES, "blk.%d.%s.%s", place.layer, stem, suffix);
}

void tensor_names_write(const struct model_config *config, struct tensor_place place,
                        const char *suffix, char out[static TENSOR_NAME_BYTES]) {
    CHECK(place.role < NUM_TENSOR_ROLES);
    if (config->naming == TENSOR_NAMING_HF)
        write_hf(config, place, suffix, out);
    else
        write_gguf(place, suffix, out);
}

const struct tensor_info *tensor_names_find(const struct model *model, struct tensor_place place,
                                            const char *suffix) {
    char name[TENSOR_NAME_BYTES];
    tensor_names_write(&model->config, place, suffix, name);
    return tensor_file_find(model->file, name);
}

bool tensor_names_is_ignorable(const struct model_config *config, struct text name) {
    char head[TENSOR_NAME_BYTES];
    tensor_names_write(config, (struct tensor_place){TENSOR_HEAD}, "weight", head);
    if (text_is(name, head))
        return config->tied_embeddings;
    if (config->naming == TENSOR_NAMING_GGUF)
        return text_is(name, "rope_freqs.weight") || text_is(name, "rope_factors_long.weight") ||
               text_is(name, "rope_factors_short.weight");
    bool is_part = strstr(config->tensor_prefix, "language_model.") != NULL;
    if (is_part && !starts_with(name, config->tensor_prefix))
        return true;
    return text_ends_with(name, "rotary_emb.inv_freq");
}
