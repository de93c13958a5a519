/* Turns config.json into a struct model_config. (Keys and defaults: the configuration_*.py of each
 * family in Hugging Face Transformers 5, and its rules for files of older versions.)
 *
 * Such a file is full of settings of training and of Transformers itself, so unlike in a GGUF file
 * an unknown key is not refused. Those known to change the forward pass are. */
#include "models/config/config_hf.h"

#include "config/base/utf8.h"
#include "kernels/backend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- Layers ---
 * Decides which layers of a Hugging Face folder's model see only a window, and which have no RoPE:
 * listed layer by layer, or by a rule of the family. */

/* Reads the window of the layers that have one; 0: no layer has. */
static int read_window(const struct config_object *o, const struct architecture *architecture,
                       int32_t *out) {
    static const char key[] = "sliding_window";
    enum window_rule rule = architecture->window_rule;
    bool used = rule != WINDOW_FROM_LAYER && rule != WINDOW_WITHOUT_ROPE && rule != WINDOW_REFUSED;
    *out = config_field_is_null(o, key) ? 0 : architecture->defaults.window;
    if (config_field_bool(o, "use_sliding_window", &used) != 0 ||
        config_field_int(o, key, 0, INT32_MAX, out) != 0)
        return -1;
    if (used && rule == WINDOW_REFUSED)
        return config_field_refuse(o, "use_sliding_window",
                                   "windows are not supported for this architecture");
    if (!used)
        *out = 0;
    return 0;
}

/* Reads which layers use RoPE (1 in the list). A list may be longer than there are layers. */
static int read_rotating(const struct config_object *o, const struct architecture *architecture,
                         int32_t num_layers, bool *rotates) {
    static const char key[] = "no_rope_layers";
    int32_t interval = architecture->nope_interval, i = 0;
    const cJSON *list, *item;
    if (config_field_array(o, key, &list) != 0)
        return -1;
    if (interval == 0 && list != NULL)
        return config_field_refuse(o, key, "is not supported for this architecture");
    if (interval != 0 &&
        config_field_int(o, "no_rope_layer_interval", 1, MODEL_MAX_LAYERS, &interval) != 0)
        return -1;
    for (int32_t layer = 0; layer < num_layers; layer++)
        rotates[layer] = interval == 0 || (layer + 1) % interval != 0;
    if (list == NULL)
        return 0;
    cJSON_ArrayForEach(item, list) {
        if (!config_field_is_int(item, 0, 1))
            return config_field_refuse(o, key, "element %d is neither 0 nor 1", i);
        if (i < num_layers)
            rotates[i] = item->valuedouble != 0.0;
        if (i < MODEL_MAX_LAYERS)
            i++;
    }
    if (i < num_layers)
        return config_field_refuse(o, key, "has %d elements, and there are %d layers", i,
                                   num_layers);
    return 0;
}

/* Decides by the family's rule. */
static int apply_rule(const struct config_object *o, const struct architecture *architecture,
                      int32_t num_layers, const bool *rotates, bool *windowed) {
    struct architecture rule = *architecture;
    int32_t first = 28; /* Transformers' default of max_window_layers */
    if (config_field_int(o, "max_window_layers", 0, INT32_MAX, &first) != 0)
        return -1;
    if (rule.window_rule == WINDOW_PERIODIC &&
        config_field_int(o, "sliding_window_pattern", 1, MODEL_MAX_LAYERS, &rule.window_period) !=
            0)
        return -1;
    for (int32_t i = 0; i < num_layers; i++) {
        windowed[i] = model_config_is_windowed(&rule, i);
        if (rule.window_rule == WINDOW_FROM_LAYER)
            windowed[i] = i >= first;
        if (rule.window_rule == WINDOW_WITHOUT_ROPE)
            windowed[i] = !rotates[i];
    }
    return 0;
}

static int read_list(const struct config_object *o, const cJSON *list, int32_t num_layers,
                     bool *windowed) {
    static const char key[] = "layer_types";
    char shown[UTF8_PRINTABLE_BYTES];
    const cJSON *item;
    int32_t i = 0;
    cJSON_ArrayForEach(item, list) {
        const char *type = cJSON_IsString(item) ? item->valuestring : "";
        utf8_printable((struct text){type, strlen(type)}, shown);
        if (i == num_layers)
            return config_field_refuse(o, key, "has more elements than there are layers, %d",
                                       num_layers);
        windowed[i++] = strcmp(type, "sliding_attention") == 0;
        if (!windowed[i - 1] && strcmp(type, "full_attention") != 0)
            return config_field_refuse(
                o, key, "'%s' is not supported (supported: full_attention, sliding_attention)",
                shown);
    }
    if (i < num_layers)
        return config_field_refuse(o, key, "has %d elements, and there are %d layers", i,
                                   num_layers);
    return 0;
}

/* The classes of some families in Transformers have no list of layers. It is ignored here too, and
 * must make no difference: for contexts within the window there is none. */
static int check_list(const struct config_object *o, const struct architecture *architecture,
                      const struct model_config *config, int32_t window, bool *windowed) {
    bool all = architecture->window_rule == WINDOW_ALL_LAYERS;
    if ((!all && architecture->window_rule != WINDOW_NEVER) || window == 0)
        return 0;
    for (int32_t i = 0; i < config->num_layers; i++) {
        if (windowed[i] != all && window < config->max_position)
            return config_field_refuse(o, "layer_types",
                                       "layers of different kinds are not supported for this "
                                       "architecture");
        windowed[i] = all;
    }
    return 0;
}

/* Reads the windows and ropes of the layers; sizes are set. */
static int read_layers(const struct config_object *o, const struct architecture *architecture,
                       struct model_config *out) {
    bool windowed[MODEL_MAX_LAYERS] = {0}, rotates[MODEL_MAX_LAYERS];
    int32_t window;
    const cJSON *list;
    if (read_window(o, architecture, &window) != 0 ||
        read_rotating(o, architecture, out->num_layers, rotates) != 0 ||
        config_field_array(o, "layer_types", &list) != 0)
        return -1;
    if (list == NULL) {
        if (apply_rule(o, architecture, out->num_layers, rotates, windowed) != 0)
            return -1;
    } else if (read_list(o, list, out->num_layers, windowed) != 0 ||
               check_list(o, architecture, out, window, windowed) != 0) {
        return -1;
    }
    for (int32_t i = 0; i < out->num_layers; i++)
        out->layers[i].window = windowed[i] ? window : 0;
    model_config_set_layer_ropes(out, architecture, rotates);
    return 0;
}

/* --- What is not supported --- */

/* Features that are off when null, false, 0, the other number or empty. */
static const struct {
    const char *key, *feature;
    double also_off;    /* 0: no other number */
    unsigned supported; /* with any of these flags the setting is read */
} refused[] = {
    {"num_experts", "a mixture of experts", 1.0, ARCHITECTURE_EXPERTS},
    {"num_local_experts", "a mixture of experts", 1.0, ARCHITECTURE_EXPERTS},
    {"n_routed_experts", "a mixture of experts", 0.0, ARCHITECTURE_EXPERTS},
    {"moe_num_experts", "a mixture of experts", 1.0},
    {"moe_layer_freq", "dense layers among the sparse ones", 1.0},
    {"clip_qkv", "clipping of q, k and v"},
    {"use_qk_norm", "LayerNorm of q and k", 0.0, ARCHITECTURE_OPTIONAL_QK_NORM},
    {"cross_attention_layers", "cross attention"},
    {"add_cross_attention", "cross attention"},
    {"is_encoder_decoder", "an encoder"},
    {"use_bidirectional_attention", "attention to later tokens"},
    {"attention_chunk_size", "chunked attention"},
    {"attn_temperature_tuning", "attention tuned by position"},
    {"alibi", "ALiBi"},
    {"use_mrope", "multimodal rope"},
    {"hidden_size_per_layer_input", "embeddings of every layer"},
};

static bool is_off(const cJSON *item, double also_off) {
    return item == NULL || cJSON_IsFalse(item) ||
           (cJSON_IsNumber(item) && (item->valuedouble == 0.0 || item->valuedouble == also_off)) ||
           (cJSON_IsString(item) && item->valuestring[0] == '\0') ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && item->child == NULL);
}

static int check_refused(const struct config_object *o, const struct architecture *architecture) {
    bool is_causal = true;
    if (config_field_bool(o, "is_causal", &is_causal) != 0)
        return -1;
    if (!is_causal)
        return config_field_refuse(o, "is_causal", "attention to later tokens is not supported");
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if ((architecture->flags & refused[i].supported) != 0 ||
            is_off(config_field_find(o, refused[i].key), refused[i].also_off))
            continue;
        return config_field_refuse(o, refused[i].key, "%s is not supported", refused[i].feature);
    }
    return 0;
}

/* --- Sizes --- */

/* The key must be there if `otherwise` is 0. */
static int read_size(const struct config_object *o, const char *key, int64_t max, int32_t otherwise,
                     int32_t *out) {
    *out = otherwise;
    if (otherwise == 0 && config_field_require(o, key) != 0)
        return -1;
    return config_field_int(o, key, 1, max, out);
}

static int read_sizes(const struct config_object *o, const struct architecture_defaults *defaults,
                      struct model_config *out) {
    if (read_size(o, "vocab_size", MODEL_MAX_VOCAB, defaults->vocab_size, &out->vocab_size) != 0 ||
        read_size(o, "hidden_size", MODEL_MAX_HIDDEN, defaults->hidden_size, &out->hidden_size) !=
            0 ||
        read_size(o, "intermediate_size", MODEL_MAX_INTERMEDIATE, defaults->intermediate_size,
                  &out->intermediate_size) != 0 ||
        read_size(o, "num_hidden_layers", MODEL_MAX_LAYERS, defaults->num_layers,
                  &out->num_layers) != 0 ||
        read_size(o, "num_attention_heads", MODEL_MAX_HEADS, defaults->num_heads,
                  &out->num_heads) != 0)
        return -1;
    return read_size(o, "max_position_embeddings", MODEL_MAX_POSITION, defaults->max_position,
                     &out->max_position);
}

static int read_heads(const struct config_object *o, const struct architecture *architecture,
                      struct model_config *out) {
    const struct architecture_defaults *defaults = &architecture->defaults;
    static const char kv_key[] = "num_key_value_heads", dim_key[] = "head_dim";
    char keys[4][96];
    snprintf(keys[0], sizeof(keys[0]), "%shidden_size", o->prefix);
    snprintf(keys[1], sizeof(keys[1]), "%snum_attention_heads", o->prefix);
    snprintf(keys[2], sizeof(keys[2]), "%s%s", o->prefix, kv_key);
    snprintf(keys[3], sizeof(keys[3]), "%s%s", o->prefix, dim_key);
    const struct model_config_names names = {o->file, keys[0], keys[1], keys[2], keys[3]};
    if ((architecture->flags & ARCHITECTURE_LATENT) != 0)
        return config_hf_read_latent(o, out);
    bool own = defaults->num_kv_heads == 0 || config_field_is_null(o, kv_key);
    out->num_kv_heads = own ? out->num_heads : defaults->num_kv_heads;
    out->head_dim = config_field_is_null(o, dim_key) ? 0 : defaults->head_dim;
    if (config_field_int(o, kv_key, 1, out->num_heads, &out->num_kv_heads) != 0 ||
        config_field_int(o, dim_key, 1, KV_MAX_HEAD_DIM, &out->head_dim) != 0)
        return -1;
    return model_config_check_heads(out, &names, o->err);
}

/* --- Switches --- */

/* The constants of the clamped activation are those of all published models. */
static int read_clamp(const struct config_object *o) {
    static const struct {
        const char *key;
        float value;
    } constants[] = {{"swiglu_limit", CLAMPED_SWIGLU_LIMIT},
                     {"swiglu_alpha", CLAMPED_SWIGLU_ALPHA}};
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
        float value = constants[i].value;
        if (config_field_float(o, constants[i].key, 0.0, 1e6, &value) != 0)
            return -1;
        if (value != constants[i].value)
            return config_field_refuse(o, constants[i].key, "%g; only %g is supported",
                                       (double)value, (double)constants[i].value);
    }
    return 0;
}

static int read_activation(const struct config_object *o, const struct architecture *architecture,
                           struct model_config *out) {
    bool hidden_activation = (architecture->flags & ARCHITECTURE_HIDDEN_ACTIVATION) != 0;
    const char *key = hidden_activation ? "hidden_activation" : "hidden_act", *name = NULL;
    char shown[UTF8_PRINTABLE_BYTES];
    if (config_field_string(o, key, &name) != 0)
        return -1;
    if (name == NULL)
        return 0;
    bool gelu_is_tanh = (architecture->flags & ARCHITECTURE_GELU_IS_TANH) != 0;
    if (out->activation == ACTIVATION_CLAMPED_SWIGLU && strcmp(name, "silu") == 0)
        return read_clamp(o);
    if (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0) {
        out->activation = ACTIVATION_SILU;
    } else if (strcmp(name, "gelu_pytorch_tanh") == 0 || strcmp(name, "gelu_new") == 0 ||
               (gelu_is_tanh && strcmp(name, "gelu") == 0)) {
        out->activation = ACTIVATION_GELU_TANH;
    } else {
        utf8_printable((struct text){name, strlen(name)}, shown);
        return config_field_refuse(
            o, key, "'%s' is not supported (supported: silu, gelu_pytorch_tanh)", shown);
    }
    return 0;
}

/* null means none. */
static int read_cap(const struct config_object *o, const char *key, float *out) {
    if (config_field_is_null(o, key))
        *out = 0.0F;
    return config_field_float(o, key, MODEL_MIN_SOFT_CAP, MODEL_MAX_SOFT_CAP, out);
}

static int read_multiplier(const struct config_object *o, const char *key, float *out) {
    return config_field_float(o, key, MODEL_MIN_MULTIPLIER, MODEL_MAX_MULTIPLIER, out);
}

static int read_scales(const struct config_object *o, const struct architecture *architecture,
                       struct model_config *out) {
    unsigned flags = architecture->flags;
    out->attention_scale = (float)(1.0 / sqrt(model_config_query_dim(out)));
    if ((flags & ARCHITECTURE_SCALED_EMBEDDING) != 0)
        out->embedding_scale = (float)sqrt(out->hidden_size);
    if ((flags & ARCHITECTURE_QUERY_SCALAR) != 0) {
        float scalar = 256.0F;
        if (config_field_float(o, "query_pre_attn_scalar", 1e-3, 1e6, &scalar) != 0)
            return -1;
        out->attention_scale = (float)(1.0 / sqrt((double)scalar));
    }
    if ((flags & ARCHITECTURE_MULTIPLIERS) != 0) {
        float divisor = 1.0F;
        out->attention_scale = 1.0F;
        if (read_multiplier(o, "embedding_multiplier", &out->embedding_scale) != 0 ||
            read_multiplier(o, "residual_multiplier", &out->residual_scale) != 0 ||
            read_multiplier(o, "attention_multiplier", &out->attention_scale) != 0 ||
            read_multiplier(o, "logits_scaling", &divisor) != 0)
            return -1;
        out->logit_scale = 1.0F / divisor;
    }
    if ((flags & ARCHITECTURE_LOGIT_SCALE) != 0) {
        out->logit_scale = architecture->defaults.logit_scale;
        if (read_multiplier(o, "logit_scale", &out->logit_scale) != 0)
            return -1;
    }
    if ((flags & ARCHITECTURE_SOFT_CAPS) == 0)
        return 0;
    if (read_cap(o, "attn_logit_softcapping", &out->attention_soft_cap) != 0)
        return -1;
    return read_cap(o, "final_logit_softcapping", &out->final_soft_cap);
}

static int read_switches(const struct config_object *o, const struct architecture *architecture,
                         struct model_config *out) {
    bool is_rms = out->norm == NORM_RMS || out->norm_bias, per_head = false;
    const char *eps_key = is_rms ? "rms_norm_eps" : "layer_norm_eps";
    out->norm_eps = architecture->defaults.norm_eps;
    out->norm_plus_one = (architecture->flags & ARCHITECTURE_PLUS_ONE) != 0;
    out->rope_interleaved = architecture->hf_interleaved;
    out->permutes_heads = architecture->gguf_interleaved && !architecture->hf_interleaved;
    if (config_field_float(o, eps_key, MODEL_MIN_NORM_EPS, MODEL_MAX_NORM_EPS, &out->norm_eps) != 0)
        return -1;
    if (read_activation(o, architecture, out) != 0)
        return -1;
    if ((architecture->flags & ARCHITECTURE_HEAD_BIAS) != 0 &&
        config_field_bool(o, "lm_head_bias", &out->head_bias) != 0)
        return -1;
    if ((architecture->flags & ARCHITECTURE_OPTIONAL_QK_NORM) != 0 &&
        config_field_bool(o, "use_qk_norm", &per_head) != 0)
        return -1;
    if (per_head)
        out->qk_norm = QK_NORM_HEAD;
    if ((architecture->flags & ARCHITECTURE_LATENT) != 0 &&
        config_field_bool(o, "rope_interleave", &out->rope_interleaved) != 0)
        return -1;
    return read_scales(o, architecture, out);
}

/* --- The object of the language model --- */

/* A model of text and images keeps the settings of its language model in an object of their own. */
static int find_language_model(const struct config_object *root, const char **out_class,
                               struct config_object *out) {
    const cJSON *classes;
    *out = *root;
    *out_class = NULL;
    if (config_field_array(root, "architectures", &classes) != 0)
        return -1;
    if (classes != NULL && classes->child != NULL) {
        if (!cJSON_IsString(classes->child))
            return config_field_refuse(root, "architectures", "is not a list of strings");
        *out_class = classes->child->valuestring;
    }
    bool is_generator =
        *out_class != NULL && strstr(*out_class, "ForConditionalGeneration") != NULL;
    bool is_in_parts = architecture_head_of(*out_class, NULL) != ARCHITECTURE_WORDS &&
                       config_field_find(root, "text_config") != NULL;
    if (!is_generator && !is_in_parts)
        return 0;
    if (config_field_require(root, "text_config") != 0)
        return -1;
    return config_field_object(root, "text_config", out);
}

static int read_fields(const struct config_object *root, struct model_config *out) {
    const char *class_name, *model_type = NULL;
    struct config_object object;
    if (find_language_model(root, &class_name, &object) != 0 ||
        config_field_string(&object, "model_type", &model_type) != 0)
        return -1;
    const struct architecture *architecture =
        architecture_find_hf(class_name, model_type, root->file, root->err);
    if (architecture == NULL || check_refused(root, architecture) != 0 ||
        check_refused(&object, architecture) != 0)
        return -1;
    model_config_init(out, architecture);
    snprintf(out->architecture, sizeof(out->architecture), "%s",
             class_name != NULL ? class_name : model_type);
    out->naming = TENSOR_NAMING_HF;
    if (config_hf_read_quantization(root, &out->quantization) != 0 ||
        config_hf_read_quantization(&object, &out->quantization) != 0)
        return -1;
    out->tied_embeddings = architecture->defaults.tied_embeddings || object.json != root->json;
    if (config_field_bool(root, "tie_word_embeddings", &out->tied_embeddings) != 0 ||
        config_field_bool(&object, "tie_word_embeddings", &out->tied_embeddings) != 0 ||
        read_sizes(&object, &architecture->defaults, out) != 0 ||
        read_heads(&object, architecture, out) != 0 ||
        read_switches(&object, architecture, out) != 0 ||
        read_layers(&object, architecture, out) != 0 ||
        config_hf_read_experts(&object, architecture, out) != 0)
        return -1;
    out->has_score = architecture_head_of(class_name, NULL) == ARCHITECTURE_SCORES;
    return config_hf_read_ropes(&object, architecture, out);
}

int config_hf_read(const cJSON *root, const char *path, struct model_config *out,
                   struct error *err) {
    const struct config_object object = {.json = root, .file = path, .err = err};
    struct model_config config;
    if (read_fields(&object, &config) != 0)
        return -1;
    *out = config;
    return 0;
}
