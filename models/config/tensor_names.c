#include "models/config/tensor_names.h"

#include "config/base/check.h"

#include <stdio.h>
#include <string.h>

#define MAX_SPELLINGS 5
#define STEM_BYTES 64 /* of a spelling with its suffix */

/* "%d" stands for the expert; a name without it is that of the tensor of all experts. A name that
 * ends in "!" is a parameter's own: "weight" does not follow, and other suffixes after "_". */
struct spellings {
    const char *gguf[MAX_SPELLINGS];
    const char *hf[MAX_SPELLINGS];
};

static const struct spellings table[NUM_TENSOR_ROLES] = {
    [TENSOR_EMBEDDING] = {{"token_embd"}, {"embed_tokens"}},
    [TENSOR_OUTPUT_NORM] = {{"output_norm"}, {"norm"}},
    [TENSOR_HEAD] = {{"output"}, {"lm_head"}},
    [TENSOR_SCORE] = {{"cls.output"}, {"score"}},
    [TENSOR_ATTENTION_NORM] = {{"attn_norm"}, {"input_layernorm"}},
    [TENSOR_ATTENTION_POST_NORM] = {{"post_attention_norm"}, {"post_attention_layernorm"}},
    [TENSOR_FFN_NORM] = {{"ffn_norm", "post_attention_norm"}, {"pre_feedforward_layernorm"}},
    [TENSOR_FFN_POST_NORM] = {{"post_ffw_norm"}, {"post_feedforward_layernorm"}},
    [TENSOR_Q] = {{"attn_q"}, {"self_attn.q_proj"}},
    [TENSOR_K] = {{"attn_k"}, {"self_attn.k_proj"}},
    [TENSOR_V] = {{"attn_v"}, {"self_attn.v_proj"}},
    [TENSOR_QKV] = {{"attn_qkv"}, {"self_attn.qkv_proj"}},
    [TENSOR_Q_NORM] = {{"attn_q_norm"}, {"self_attn.q_norm"}},
    [TENSOR_K_NORM] = {{"attn_k_norm"}, {"self_attn.k_norm"}},
    [TENSOR_ATTENTION_OUT] = {{"attn_output"}, {"self_attn.o_proj"}},
    [TENSOR_Q_A] = {{"attn_q_a"}, {"self_attn.q_a_proj"}},
    [TENSOR_Q_A_NORM] = {{"attn_q_a_norm"}, {"self_attn.q_a_layernorm"}},
    [TENSOR_Q_B] = {{"attn_q_b"}, {"self_attn.q_b_proj"}},
    [TENSOR_KV_A] = {{"attn_kv_a_mqa"}, {"self_attn.kv_a_proj_with_mqa"}},
    [TENSOR_KV_A_NORM] = {{"attn_kv_a_norm"}, {"self_attn.kv_a_layernorm"}},
    [TENSOR_KV_B] = {{"attn_kv_b"}, {"self_attn.kv_b_proj"}},
    [TENSOR_K_B] = {{"attn_k_b"}, {NULL}},
    [TENSOR_V_B] = {{"attn_v_b"}, {NULL}},
    [TENSOR_GATE] = {{"ffn_gate"}, {"mlp.gate_proj"}},
    [TENSOR_UP] = {{"ffn_up"}, {"mlp.up_proj"}},
    [TENSOR_GATE_UP] = {{"ffn_up"}, {"mlp.gate_up_proj"}},
    [TENSOR_DOWN] = {{"ffn_down"}, {"mlp.down_proj"}},
    [TENSOR_SINKS] = {{"attn_sinks"}, {"self_attn.sinks!"}},
    [TENSOR_ROUTER] = {{"ffn_gate_inp"},
                       {"mlp.gate", "block_sparse_moe.gate", "block_sparse_moe.router.layer",
                        "mlp.router"}},
    [TENSOR_SELECTION_BIAS] = {{"exp_probs_b.bias!"}, {"mlp.gate.e_score_correction_bias!"}},
    [TENSOR_EXPERT_GATE] = {{"ffn_gate_exps", "ffn_gate.%d"},
                            {"mlp.experts.%d.gate_proj", "block_sparse_moe.experts.%d.w1"}},
    [TENSOR_EXPERT_UP] = {{"ffn_up_exps", "ffn_up.%d"},
                          {"mlp.experts.%d.up_proj", "block_sparse_moe.experts.%d.w3"}},
    [TENSOR_EXPERT_GATE_UP] = {{"ffn_gate_up_exps"},
                               {"block_sparse_moe.input_linear", "mlp.experts.gate_up_proj!"}},
    [TENSOR_EXPERT_DOWN] = {{"ffn_down_exps", "ffn_down.%d"},
                            {"mlp.experts.%d.down_proj", "block_sparse_moe.experts.%d.w2",
                             "block_sparse_moe.output_linear", "mlp.experts.down_proj!"}},
    [TENSOR_SHARED_ROUTER] = {{"ffn_gate_inp_shexp"}, {"mlp.shared_expert_gate"}},
    [TENSOR_SHARED_GATE] = {{"ffn_gate_shexp"},
                            {"mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"}},
    [TENSOR_SHARED_UP] = {{"ffn_up_shexp"},
                          {"mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"}},
    [TENSOR_SHARED_GATE_UP] = {{"ffn_up_shexp"}, {"shared_mlp.input_linear"}},
    [TENSOR_SHARED_DOWN] = {{"ffn_down_shexp"},
                            {"mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj",
                             "shared_mlp.output_linear"}},
    [TENSOR_MTP_PROJECTION] = {{"nextn.eh_proj"}, {"eh_proj"}},
    [TENSOR_MTP_EMBEDDING_NORM] = {{"nextn.enorm"}, {"enorm"}},
    [TENSOR_MTP_HIDDEN_NORM] = {{"nextn.hnorm"}, {"hnorm"}},
    [TENSOR_MTP_OUTPUT_NORM] = {{"nextn.shared_head_norm"}, {"shared_head.norm"}},
    [TENSOR_MTP_EMBEDDING] = {{"nextn.embed_tokens"}, {"embed_tokens"}},
    [TENSOR_MTP_HEAD] = {{"nextn.shared_head_head"}, {"shared_head.head"}},
};

static bool is_expert_role(enum tensor_role role) {
    return role >= TENSOR_EXPERT_GATE && role <= TENSOR_EXPERT_DOWN;
}

/* A spelling is that of one expert, or of all. */
static bool is_spelling_of(const char *spelling, struct tensor_place place) {
    bool names_expert = strstr(spelling, "%d") != NULL;
    return !is_expert_role(place.role) || names_expert == (place.expert >= 0);
}

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

/* The spelling with the expert's number and the suffix. */
static void write_stem(const char *spelling, int32_t expert, const char *suffix,
                       char out[static STEM_BYTES]) {
    const char *number = strstr(spelling, "%d");
    size_t length = strlen(spelling);
    bool is_parameter = spelling[length - 1] == '!';
    length -= is_parameter ? 1 : 0;
    int used = number == NULL
                   ? snprintf(out, STEM_BYTES, "%.*s", (int)length, spelling)
                   : snprintf(out, STEM_BYTES, "%.*s%d%.*s", (int)(number - spelling), spelling,
                              expert, (int)(length - 2 - (size_t)(number - spelling)), number + 2);
    if (!is_parameter || strcmp(suffix, "weight") != 0)
        snprintf(out + used, STEM_BYTES - (size_t)used, "%c%s", is_parameter ? '_' : '.', suffix);
}

static void write_name(const struct model_config *config, struct tensor_place place,
                       const char *spelling, const char *suffix,
                       char out[static TENSOR_NAME_BYTES]) {
    char stem[STEM_BYTES];
    const char *prefix = config->tensor_prefix;
    bool is_hf = config->naming == TENSOR_NAMING_HF, is_once = place.role < TENSOR_ATTENTION_NORM;
    int prefix_length = (int)strlen(prefix);
    if (is_hf && place.role == TENSOR_HEAD)
        prefix_length = head_prefix_length(prefix);
    if (is_hf && place.role == TENSOR_SCORE)
        prefix_length = 0;
    write_stem(spelling, place.expert, suffix, stem);
    if (is_once)
        snprintf(out, TENSOR_NAME_BYTES, "%.*s%s", prefix_length, prefix, stem);
    else
        snprintf(out, TENSOR_NAME_BYTES, "%s%s.%d.%s", prefix, is_hf ? "layers" : "blk",
                 place.layer, stem);
}

static const char *const *spellings_of(const struct model_config *config, enum tensor_role role) {
    CHECK(role < NUM_TENSOR_ROLES);
    bool is_hf = config->naming == TENSOR_NAMING_HF;
    if (is_hf && role == TENSOR_FFN_NORM && !config->post_norm)
        role = TENSOR_ATTENTION_POST_NORM;
    return is_hf ? table[role].hf : table[role].gguf;
}

void tensor_names_write(const struct model_config *config, struct tensor_place place,
                        const char *suffix, char out[static TENSOR_NAME_BYTES]) {
    const char *const *spellings = spellings_of(config, place.role);
    if (spellings[0] == NULL) /* part of another tensor there */
        spellings = spellings_of(config, TENSOR_KV_B);
    int i = 0;
    while (i < MAX_SPELLINGS && spellings[i] != NULL && !is_spelling_of(spellings[i], place))
        i++;
    bool has_one = i < MAX_SPELLINGS && spellings[i] != NULL;
    write_name(config, place, spellings[has_one ? i : 0], suffix, out);
}

const struct tensor_info *tensor_names_find(const struct model *model, struct tensor_place place,
                                            const char *suffix) {
    const char *const *spellings = spellings_of(&model->config, place.role);
    const struct tensor_info *tensor = NULL;
    char name[TENSOR_NAME_BYTES];
    for (int i = 0; tensor == NULL && i < MAX_SPELLINGS && spellings[i] != NULL; i++) {
        if (!is_spelling_of(spellings[i], place))
            continue;
        write_name(&model->config, place, spellings[i], suffix, name);
        tensor = tensor_file_find(model->file, name);
    }
    return tensor;
}

bool tensor_names_find_role(enum tensor_naming naming, struct text module, enum tensor_role *out) {
    for (int role = TENSOR_ATTENTION_NORM; role < NUM_TENSOR_ROLES; role++) {
        const char *const *spellings =
            naming == TENSOR_NAMING_HF ? table[role].hf : table[role].gguf;
        for (int i = 0; i < MAX_SPELLINGS && spellings[i] != NULL; i++)
            if (text_is(module, spellings[i])) {
                *out = (enum tensor_role)role;
                return true;
            }
    }
    return false;
}

static bool is_of_layer(const struct model_config *config, struct text name, int32_t layer) {
    char start[TENSOR_NAME_BYTES];
    bool is_hf = config->naming == TENSOR_NAMING_HF;
    snprintf(start, sizeof(start), "%s%s.%d.", config->tensor_prefix, is_hf ? "layers" : "blk",
             layer);
    return starts_with(name, start);
}

/* Returns whether it belongs to a layer after those that are read. */
static bool is_of_extra_layer(const struct model_config *config, struct text name) {
    for (int32_t i = 0; i < config->num_extra_layers; i++)
        if (is_of_layer(config, name, config->num_layers + i))
            return true;
    return false;
}

/* Scales of activations and of a quantised cache, and the shapes of packed weights. */
static bool is_of_activations(struct text name) {
    static const char *const ends[] = {".input_scale",  ".activation_scale", ".input_zero_point",
                                       ".output_scale", ".q_scale",          ".k_scale",
                                       ".v_scale",      ".weight_shape"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (text_ends_with(name, ends[i]))
            return true;
    return false;
}

/* It is read with the settings (classifier.c). */
static bool is_of_classifier(const struct model_config *config, struct text name) {
    static const char *const suffixes[] = {"weight", "bias"};
    char score[TENSOR_NAME_BYTES];
    for (size_t i = 0; config->has_score && i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        tensor_names_write(config, (struct tensor_place){TENSOR_SCORE}, suffixes[i], score);
        if (text_is(name, score))
            return true;
    }
    return false;
}

/* Not of the layer that drafts, or a copy of what the model has. */
static bool is_of_model_alone(const struct model_config *config, struct text name) {
    const struct tensor_place places[] = {{TENSOR_MTP_EMBEDDING, config->num_layers - 1, 0},
                                          {TENSOR_MTP_HEAD, config->num_layers - 1, 0}};
    const bool is_own[] = {config->has_own_embedding, config->has_own_head};
    char copy[TENSOR_NAME_BYTES];
    for (int i = 0; i < 2; i++) {
        tensor_names_write(config, places[i], "weight", copy);
        if (!is_own[i] && text_is(name, copy))
            return true;
    }
    return !is_of_layer(config, name, config->num_layers - 1);
}

bool tensor_names_is_ignorable(const struct model_config *config, struct text name) {
    char head[TENSOR_NAME_BYTES];
    if (config->is_mtp && is_of_model_alone(config, name))
        return true;
    tensor_names_write(config, (struct tensor_place){TENSOR_HEAD}, "weight", head);
    if (text_is(name, head))
        return config->tied_embeddings;
    if (is_of_classifier(config, name) || is_of_extra_layer(config, name))
        return true;
    if (config->naming == TENSOR_NAMING_GGUF)
        return text_is(name, "rope_freqs.weight") || text_is(name, "rope_factors_long.weight") ||
               text_is(name, "rope_factors_short.weight");
    bool is_part = strstr(config->tensor_prefix, "language_model.") != NULL;
    if (is_part && !starts_with(name, config->tensor_prefix))
        return true;
    return text_ends_with(name, "rotary_emb.inv_freq") ||
           (config->quantization.method != QUANTIZATION_NONE && is_of_activations(name));
}
