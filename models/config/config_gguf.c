/* Turns the metadata of a GGUF file into a struct model_config. (Keys and defaults: GGUF
 * specification, ggml/docs/gguf.md; what llama.cpp takes for granted about an architecture is in
 * architecture.c.)
 *
 * An "ARCHITECTURE." key that is neither read for this architecture nor known to change nothing is
 * refused, because ignoring it could silently change what the model says. */
#include "models/config/config_gguf.h"

#include "kernels/backend.h"
#include "models/config/architecture.h"
#include "models/config/metadata_field.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- Ropes --- The ropes of a GGUF file. Two kinds of scaling are not settings but tensors of
 * divisors, one per frequency: rope_freqs (what Llama 3's rule comes to) and rope_factors_long and
 * _short (longrope). Both are read as longrope. */

static int read_rotary_dim(const struct metadata_source *s, struct model_config *out) {
    static const char key[] = ".rope.dimension_count";
    if (out->latent.kv_rank > 0)
        return 0;
    out->rotary_dim = out->head_dim;
    if (metadata_field_int(s, key, 2, out->head_dim, &out->rotary_dim) != 0)
        return -1;
    if (out->rotary_dim % 2 != 0)
        return error_set(s->err, ERROR_MODEL, "%s: %s%s: %d is odd", tensor_file_path(s->file),
                         s->architecture, key, out->rotary_dim);
    return 0;
}

static int read_type(const struct metadata_source *s, enum rope_scaling *out) {
    static const char key[] = ".rope.scaling.type";
    static const struct {
        const char *name;
        enum rope_scaling scaling;
    } types[] = {
        {"none", ROPE_SCALING_NONE},
        {"linear", ROPE_SCALING_LINEAR},
        {"yarn", ROPE_SCALING_YARN},
        {"longrope", ROPE_SCALING_LONGROPE},
    };
    const struct metadata *type = metadata_field_find(s, key);
    *out = ROPE_SCALING_LINEAR; /* by 1, unless there is a factor */
    if (type == NULL)
        return 0;
    if (type->type != METADATA_STRING)
        return metadata_field_refuse(s, key, "is not a string");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (text_is(type->as_string, types[i].name)) {
            *out = types[i].scaling;
            return 0;
        }
    char shown[32];
    metadata_field_copy(type->as_string, shown, sizeof(shown));
    return error_set(s->err, ERROR_MODEL,
                     "%s: %s%s: '%s' is not supported (supported: none, linear, yarn, longrope)",
                     tensor_file_path(s->file), s->architecture, key, shown);
}

static int read_factor(const struct metadata_source *s, struct rope_config *rope) {
    static const char key[] = ".rope.scaling.factor", old_key[] = ".rope.scale_linear";
    rope->factor = 1.0F;
    if (metadata_field_float(s, old_key, MODEL_MIN_ROPE_FACTOR, MODEL_MAX_ROPE_FACTOR,
                             &rope->factor) != 0)
        return -1;
    return metadata_field_float(s, key, MODEL_MIN_ROPE_FACTOR, MODEL_MAX_ROPE_FACTOR,
                                &rope->factor);
}

/* llama.cpp multiplies the file's factor by yarn's own; its converter of OLMo 3 has written the
 * product already. */
static int read_yarn(const struct metadata_source *s, const struct architecture *architecture,
                     struct rope_config *rope) {
    bool whole = (architecture->flags & ARCHITECTURE_WHOLE_ATTENTION_FACTOR) != 0 &&
                 metadata_field_find(s, ".rope.scaling.attn_factor") != NULL;
    rope->beta_fast = 32.0F;
    rope->beta_slow = 1.0F;
    rope->truncate = (architecture->flags & ARCHITECTURE_EXACT_YARN) == 0;
    if (!whole)
        rope->attention_factor *= 1.0F + 0.1F * logf(rope->factor);
    if (metadata_field_float(s, ".rope.scaling.yarn_beta_fast", 1e-3, 1e6, &rope->beta_fast) != 0)
        return -1;
    return metadata_field_float(s, ".rope.scaling.yarn_beta_slow", 1e-3, 1e6, &rope->beta_slow);
}

/* --- Tensors of divisors --- */

static int read_divisors(const struct metadata_source *s, const struct tensor_info *tensor,
                         const char *name, int32_t count, float *out) {
    if (tensor->dtype != DTYPE_F32 || tensor->num_dims != 1 || tensor->shape[0] != count)
        return error_set(s->err, ERROR_MODEL, "%s: tensor '%s': must be f32 [%d]",
                         tensor_file_path(s->file), name, count);
    if (tensor_read(s->file, tensor, 0, (size_t)count * sizeof(float), out, s->err) != 0)
        return -1;
    for (int32_t i = 0; i < count; i++)
        if (!(out[i] >= 1e-3F && out[i] <= (float)MODEL_MAX_ROPE_FACTOR))
            return error_set(
                s->err, ERROR_MODEL, "%s: tensor '%s': element %d: %g (allowed: 0.001 to %g)",
                tensor_file_path(s->file), name, i, (double)out[i], MODEL_MAX_ROPE_FACTOR);
    return 0;
}

/* *out_found says whether the file has such tensors. */
static int read_tensors(const struct metadata_source *s, int32_t count, struct rope_config *rope,
                        bool *out_found) {
    static const char freqs[] = "rope_freqs.weight", short_name[] = "rope_factors_short.weight",
                      long_name[] = "rope_factors_long.weight";
    const struct tensor_info *divisors = tensor_file_find(s->file, freqs);
    const struct tensor_info *short_factors = tensor_file_find(s->file, short_name);
    const struct tensor_info *long_factors = tensor_file_find(s->file, long_name);
    *out_found = divisors != NULL || short_factors != NULL || long_factors != NULL;
    if (divisors != NULL) {
        if (read_divisors(s, divisors, freqs, count, rope->short_factors) != 0)
            return -1;
        memcpy(rope->long_factors, rope->short_factors, sizeof(rope->long_factors));
        return 0;
    }
    if (!*out_found)
        return 0;
    if (short_factors == NULL || long_factors == NULL)
        return error_set(s->err, ERROR_MODEL, "%s: tensor '%s' is missing",
                         tensor_file_path(s->file), short_factors == NULL ? short_name : long_name);
    if (read_divisors(s, short_factors, short_name, count, rope->short_factors) != 0)
        return -1;
    return read_divisors(s, long_factors, long_name, count, rope->long_factors);
}

/* --- All together --- */

static int read_scaling(const struct metadata_source *s, const struct architecture *architecture,
                        struct model_config *out, struct rope_config *rope) {
    static const char original_key[] = ".rope.scaling.original_context_length";
    static const char attention_key[] = ".rope.scaling.attn_factor";
    bool found;
    rope->original_max_position = out->max_position;
    if (read_type(s, &rope->scaling) != 0 || read_factor(s, rope) != 0 ||
        metadata_field_int(s, original_key, 1, MODEL_MAX_POSITION, &rope->original_max_position) !=
            0 ||
        metadata_field_float(s, attention_key, MODEL_MIN_MULTIPLIER, MODEL_MAX_MULTIPLIER,
                             &rope->attention_factor) != 0 ||
        read_tensors(s, out->rotary_dim / 2, rope, &found) != 0)
        return -1;
    if (found && rope->scaling == ROPE_SCALING_LINEAR && rope->factor == 1.0F)
        rope->scaling = ROPE_SCALING_NONE;
    if (found && rope->scaling != ROPE_SCALING_NONE && rope->scaling != ROPE_SCALING_LONGROPE)
        return metadata_field_refuse(s, ".rope.scaling.type",
                                     "is not supported together with rope factor tensors");
    if (!found && rope->scaling == ROPE_SCALING_LONGROPE)
        return error_set(s->err, ERROR_MODEL, "%s: tensor 'rope_factors_long.weight' is missing",
                         tensor_file_path(s->file));
    if (found)
        rope->scaling = ROPE_SCALING_LONGROPE;
    if (rope->scaling == ROPE_SCALING_YARN) {
        if (metadata_field_find(s, original_key) != NULL)
            out->max_position =
                model_config_stretch(rope, out->max_position, rope->original_max_position);
        return read_yarn(s, architecture, rope);
    }
    if (rope->scaling == ROPE_SCALING_LINEAR && rope->factor == 1.0F)
        rope->scaling = ROPE_SCALING_NONE;
    if (rope->scaling != ROPE_SCALING_LONGROPE && rope->attention_factor != 1.0F)
        return metadata_field_refuse(s, attention_key, "is only supported for yarn and longrope");
    return 0;
}

/* Reads rotary_dim, ropes and max_position; the sizes, heads and layers are set. */
static int read_ropes(const struct metadata_source *s, const struct architecture *architecture,
                      struct model_config *out) {
    struct rope_config *rope = &out->ropes[0], *local = &out->ropes[1];
    *rope = (struct rope_config){.theta = 10000.0F, .attention_factor = 1.0F};
    if (read_rotary_dim(s, out) != 0 ||
        metadata_field_float(s, ".rope.freq_base", MODEL_MIN_THETA, MODEL_MAX_THETA,
                             &rope->theta) != 0 ||
        read_scaling(s, architecture, out, rope) != 0)
        return -1;
    if (out->num_ropes == 1)
        return 0;
    *local = (struct rope_config){.theta = architecture->local_theta, .attention_factor = 1.0F};
    if (architecture->local_theta == 0.0F)
        local->theta = rope->theta;
    return metadata_field_float(s, ".rope.freq_base_swa", MODEL_MIN_THETA, MODEL_MAX_THETA,
                                &local->theta);
}

/* --- Keys that are allowed to be there --- */

/* Says which architectures read a key; 0 in the table: all. */
enum { /* in addition to enum architecture_flags */
       IF_WINDOW = 1U << 31,
       IF_GROUPED = 1U << 30,
       IF_SHARED = 1U << 29,
};

static const struct {
    const char *key;
    unsigned flags; /* any of them */
} read_keys[] = {
    {".vocab_size", 0},
    {".context_length", 0},
    {".embedding_length", 0},
    {".block_count", 0},
    {".feed_forward_length", 0},
    {".attention.head_count", 0},
    {".attention.head_count_kv", 0},
    {".attention.key_length", 0},
    {".attention.value_length", 0},
    {".attention.key_length_mla", ARCHITECTURE_LATENT},
    {".attention.value_length_mla", ARCHITECTURE_LATENT},
    {".attention.q_lora_rank", ARCHITECTURE_LATENT},
    {".attention.kv_lora_rank", ARCHITECTURE_LATENT},
    {".attention.layer_norm_rms_epsilon", 0},
    {".attention.layer_norm_epsilon", 0},
    {".attention.scale", ARCHITECTURE_MULTIPLIERS | ARCHITECTURE_QUERY_SCALAR},
    {".attention.sliding_window", IF_WINDOW},
    {".attention.sliding_window_pattern", IF_WINDOW},
    {".rope.dimension_count", 0},
    {".rope.freq_base", 0},
    {".rope.freq_base_swa", ARCHITECTURE_LOCAL_ROPE},
    {".rope.scaling.type", 0},
    {".rope.scaling.factor", 0},
    {".rope.scaling.attn_factor", 0},
    {".rope.scaling.original_context_length", 0},
    {".rope.scaling.yarn_beta_fast", 0},
    {".rope.scaling.yarn_beta_slow", 0},
    {".rope.scaling.yarn_log_multiplier", ARCHITECTURE_LATENT},
    {".rope.scaling.finetuned", 0},
    {".rope.scale_linear", 0},
    {".attn_logit_softcapping", ARCHITECTURE_SOFT_CAPS},
    {".final_logit_softcapping", ARCHITECTURE_SOFT_CAPS},
    {".embedding_scale", ARCHITECTURE_MULTIPLIERS},
    {".residual_scale", ARCHITECTURE_MULTIPLIERS},
    {".logit_scale", ARCHITECTURE_MULTIPLIERS | ARCHITECTURE_LOGIT_SCALE},
    {".expert_count", ARCHITECTURE_EXPERTS},
    {".expert_used_count", ARCHITECTURE_EXPERTS},
    {".expert_feed_forward_length", ARCHITECTURE_EXPERTS},
    {".expert_shared_feed_forward_length", IF_SHARED},
    {".expert_shared_count", IF_GROUPED},
    {".expert_gating_func", ARCHITECTURE_EXPERTS},
    {".expert_weights_norm", ARCHITECTURE_EXPERTS},
    {".expert_weights_scale", IF_GROUPED},
    {".expert_group_count", IF_GROUPED},
    {".expert_group_used_count", IF_GROUPED},
    {".leading_dense_block_count", IF_GROUPED},
    {".nextn_predict_layers", ARCHITECTURE_EXTRA_LAYERS},
    {".pooling_type", 0}, /* model.c reads these two */
    {".classifier.output_labels", 0},
    {".tensor_data_layout", 0}, /* says of the conversion only */
    /* Old converters wrote it for everything; it means something to architectures that are not in
     * the table (llama.cpp reads it for gptneox only). */
    {".use_parallel_residual", 0},
};

/* Features that are off at this value and not supported at any other. */
static const struct {
    const char *key;
    double off;
} neutral_keys[] = {
    {".expert_count", 0.0},
    {".expert_used_count", 0.0},
    {".expert_shared_count", 0.0},
    {".expert_weights_scale", 1.0},
    {".expert_group_count", 1.0},
    {".expert_group_used_count", 1.0},
    {".leading_dense_block_count", 0.0},
    {".nextn_predict_layers", 0.0},
    {".attention.sliding_window", 0.0},
    {".attention.clamp_kqv", 0.0},
    {".attention.max_alibi_bias", 0.0},
    {".attention.causal", 1.0},
    {".rope.scaling.yarn_log_multiplier", 0.0},
    {".rope.scaling.yarn_ext_factor", 1.0},
    {".rope.scaling.yarn_attn_factor", 1.0},
    {".attn_logit_softcapping", 0.0},
    {".final_logit_softcapping", 0.0},
    {".attention.scale", 0.0},
    {".logit_scale", 1.0},
    {".residual_scale", 1.0},
    {".embedding_scale", 1.0},
};

static bool as_number(const struct metadata *entry, double *out) {
    if (entry->type == METADATA_UINT)
        *out = (double)entry->as_uint;
    else if (entry->type == METADATA_INT)
        *out = (double)entry->as_int;
    else if (entry->type == METADATA_FLOAT)
        *out = entry->as_float;
    else
        return false;
    return true;
}

static bool is_read(struct text suffix, const struct architecture *architecture) {
    unsigned flags = architecture->flags;
    if (architecture->window_rule == WINDOW_ALL_LAYERS ||
        architecture->window_rule == WINDOW_PERIODIC)
        flags |= IF_WINDOW;
    if (architecture->experts.is_grouped)
        flags |= IF_GROUPED;
    if (architecture->experts.shared != SHARED_NONE)
        flags |= IF_SHARED;
    for (size_t i = 0; i < sizeof(read_keys) / sizeof(read_keys[0]); i++)
        if (text_is(suffix, read_keys[i].key))
            return read_keys[i].flags == 0 || (read_keys[i].flags & flags) != 0;
    return false;
}

/* Keys of the other parts of a model whose language model is one of several. Tensors of theirs in
 * the same file are refused when the weights are bound. */
static bool is_of_other_parts(struct text suffix) {
    static const char *const parts[] = {".vision.", ".mm."};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t length = strlen(parts[i]);
        if (suffix.length > length && memcmp(suffix.data, parts[i], length) == 0)
            return true;
    }
    return false;
}

static bool is_neutral(const struct metadata *entry, struct text suffix) {
    double value;
    for (size_t i = 0; i < sizeof(neutral_keys) / sizeof(neutral_keys[0]); i++)
        if (text_is(suffix, neutral_keys[i].key))
            return as_number(entry, &value) && value == neutral_keys[i].off;
    return false;
}

static int check_keys(const struct metadata_source *s, const struct architecture *architecture) {
    size_t prefix = strlen(s->architecture);
    for (size_t i = 0; i < tensor_file_num_metadata(s->file); i++) {
        const struct metadata *entry = tensor_file_metadata(s->file, i);
        struct text key = entry->key;
        if (key.length <= prefix || key.data[prefix] != '.' ||
            memcmp(key.data, s->architecture, prefix) != 0)
            continue;
        struct text suffix = {key.data + prefix, key.length - prefix};
        if (is_read(suffix, architecture) || is_neutral(entry, suffix) || is_of_other_parts(suffix))
            continue;
        return error_set(s->err, ERROR_MODEL,
                         "%s: %.*s: this setting is not supported, and ignoring it could change "
                         "the model's output",
                         tensor_file_path(s->file), text_print_length(key), key.data);
    }
    return 0;
}

/* --- Fields --- */

static const struct architecture *read_architecture(struct metadata_source *s,
                                                    char name[static 48]) {
    static const char key[] = "general.architecture";
    const struct metadata *entry = tensor_file_find_metadata(s->file, key);
    if (entry == NULL || entry->type != METADATA_STRING) {
        metadata_field_refuse(s, key, entry == NULL ? "is missing" : "is not a string");
        return NULL;
    }
    metadata_field_copy(entry->as_string, name, 48);
    s->architecture = name;
    return architecture_find_gguf(entry->as_string, tensor_file_path(s->file), s->err);
}

/* The vocabulary's size is that of the tokenizer's list unless a key says so; they must agree. */
static int read_vocab_size(const struct metadata_source *s, struct model_config *out) {
    static const char list[] = "tokenizer.ggml.tokens";
    const struct metadata *tokens = tensor_file_find_metadata(s->file, list);
    if (tokens == NULL)
        return metadata_field_refuse(s, list, "is missing");
    if (tokens->type != METADATA_ARRAY)
        return metadata_field_refuse(s, list, "is not an array");
    uint64_t count = tokens->as_array.count;
    if (count < 1 || count > MODEL_MAX_VOCAB)
        return error_set(s->err, ERROR_MODEL, "%s: %s: %" PRIu64 " tokens (allowed: 1 to %d)",
                         tensor_file_path(s->file), list, count, MODEL_MAX_VOCAB);
    out->vocab_size = (int32_t)count;
    if (metadata_field_int(s, ".vocab_size", 1, MODEL_MAX_VOCAB, &out->vocab_size) != 0)
        return -1;
    if ((uint64_t)out->vocab_size != count)
        return error_set(s->err, ERROR_MODEL,
                         "%s: %s.vocab_size: %d, but %s lists %" PRIu64 " tokens",
                         tensor_file_path(s->file), s->architecture, out->vocab_size, list, count);
    return 0;
}

static int require_int(const struct metadata_source *s, const char *key, int64_t max,
                       int32_t *out) {
    if (metadata_field_require(s, key) != 0)
        return -1;
    return metadata_field_int(s, key, 1, max, out);
}

/* Layers that predict further tokens are among the blocks of a file, as the last. */
static int read_num_layers(const struct metadata_source *s, const struct architecture *architecture,
                           struct model_config *out) {
    if (require_int(s, ".block_count", MODEL_MAX_LAYERS, &out->num_layers) != 0)
        return -1;
    if ((architecture->flags & ARCHITECTURE_EXTRA_LAYERS) != 0 &&
        metadata_field_int(s, ".nextn_predict_layers", 0, out->num_layers - 1,
                           &out->num_extra_layers) != 0)
        return -1;
    out->num_layers -= out->num_extra_layers;
    return 0;
}

static int read_sizes(const struct metadata_source *s, const struct architecture *architecture,
                      struct model_config *out) {
    if (read_num_layers(s, architecture, out) != 0 ||
        require_int(s, ".context_length", MODEL_MAX_POSITION, &out->max_position) != 0 ||
        require_int(s, ".embedding_length", MODEL_MAX_HIDDEN, &out->hidden_size) != 0 ||
        require_int(s, ".feed_forward_length", MODEL_MAX_INTERMEDIATE, &out->intermediate_size) !=
            0 ||
        require_int(s, ".attention.head_count", MODEL_MAX_HEADS, &out->num_heads) != 0)
        return -1;
    return read_vocab_size(s, out);
}

static int read_heads(const struct metadata_source *s, const struct architecture *architecture,
                      struct model_config *out) {
    static const char value_key[] = ".attention.value_length";
    char keys[4][METADATA_MAX_KEY];
    snprintf(keys[0], METADATA_MAX_KEY, "%s.embedding_length", s->architecture);
    snprintf(keys[1], METADATA_MAX_KEY, "%s.attention.head_count", s->architecture);
    snprintf(keys[2], METADATA_MAX_KEY, "%s.attention.head_count_kv", s->architecture);
    snprintf(keys[3], METADATA_MAX_KEY, "%s.attention.key_length", s->architecture);
    const struct model_config_names names = {tensor_file_path(s->file), keys[0], keys[1], keys[2],
                                             keys[3]};
    out->num_kv_heads = out->num_heads;
    if ((architecture->flags & ARCHITECTURE_LATENT) != 0)
        return config_gguf_read_latent(s, out);
    if (metadata_field_int(s, ".attention.head_count_kv", 1, out->num_heads, &out->num_kv_heads) !=
            0 ||
        metadata_field_int(s, ".attention.key_length", 1, KV_MAX_HEAD_DIM, &out->head_dim) != 0 ||
        model_config_check_heads(out, &names, s->err) != 0)
        return -1;
    int32_t value_length = out->head_dim;
    if (metadata_field_int(s, value_key, 1, KV_MAX_HEAD_DIM, &value_length) != 0)
        return -1;
    if (value_length != out->head_dim)
        return error_set(s->err, ERROR_MODEL, "%s: %s%s: %d differs from the keys' %d",
                         tensor_file_path(s->file), s->architecture, value_key, value_length,
                         out->head_dim);
    return 0;
}

static int read_norm(const struct metadata_source *s, struct model_config *out) {
    const char *key = out->norm == NORM_RMS || out->norm_bias ? ".attention.layer_norm_rms_epsilon"
                                                              : ".attention.layer_norm_epsilon";
    if (metadata_field_require(s, key) != 0)
        return -1;
    return metadata_field_float(s, key, MODEL_MIN_NORM_EPS, MODEL_MAX_NORM_EPS, &out->norm_eps);
}

/* A scale of 0 means no scale. */
static int read_scale(const struct metadata_source *s, const char *key, float *out) {
    const struct metadata *entry = metadata_field_find(s, key);
    if (entry != NULL && entry->type == METADATA_FLOAT && entry->as_float == 0.0)
        return 0;
    return metadata_field_float(s, key, MODEL_MIN_MULTIPLIER, MODEL_MAX_MULTIPLIER, out);
}

static int read_cap(const struct metadata_source *s, const char *key, float *out) {
    const struct metadata *entry = metadata_field_find(s, key);
    if (entry != NULL && entry->type == METADATA_FLOAT && entry->as_float == 0.0) {
        *out = 0.0F;
        return 0;
    }
    return metadata_field_float(s, key, MODEL_MIN_SOFT_CAP, MODEL_MAX_SOFT_CAP, out);
}

static int read_scales(const struct metadata_source *s, const struct architecture *architecture,
                       struct model_config *out) {
    double head = model_config_query_dim(out);
    if (architecture->gguf_query_scalar_layers == out->num_layers)
        head = (double)out->hidden_size / out->num_heads;
    out->attention_scale = (float)(1.0 / sqrt(head));
    if ((architecture->flags & ARCHITECTURE_SCALED_EMBEDDING) != 0)
        out->embedding_scale = (float)sqrt(out->hidden_size);
    else if (read_scale(s, ".embedding_scale", &out->embedding_scale) != 0)
        return -1;
    if (read_scale(s, ".attention.scale", &out->attention_scale) != 0 ||
        read_scale(s, ".residual_scale", &out->residual_scale) != 0 ||
        read_scale(s, ".logit_scale", &out->logit_scale) != 0)
        return -1;
    if ((architecture->flags & ARCHITECTURE_MULTIPLIERS) != 0)
        out->logit_scale = 1.0F / out->logit_scale;
    if (read_cap(s, ".attn_logit_softcapping", &out->attention_soft_cap) != 0)
        return -1;
    return read_cap(s, ".final_logit_softcapping", &out->final_soft_cap);
}

/* --- Layers --- */

/* Sets windows by the file's pattern (a period, or one value for every layer), else by the
 * architecture's. */
static int read_window_pattern(const struct metadata_source *s, struct architecture *architecture,
                               struct model_config *out, int32_t window) {
    static const char key[] = ".attention.sliding_window_pattern";
    const struct metadata *entry = metadata_field_find(s, key);
    bool listed = entry != NULL && entry->type == METADATA_ARRAY;
    if (listed) {
        if (entry->as_array.element_type == METADATA_STRING ||
            entry->as_array.count != (uint64_t)out->num_layers)
            return metadata_field_refuse(s, key, "is not one flag for every layer");
    } else if (entry != NULL) {
        architecture->window_rule = WINDOW_PERIODIC;
        if (metadata_field_int(s, key, 1, MODEL_MAX_LAYERS, &architecture->window_period) != 0)
            return -1;
    }
    for (int32_t i = 0; i < out->num_layers; i++) {
        bool windowed = listed ? metadata_array_number(entry, (uint64_t)i) != 0.0
                               : model_config_is_windowed(architecture, i);
        out->layers[i].window = windowed ? window : 0;
    }
    return 0;
}

static int read_layers(const struct metadata_source *s, const struct architecture *architecture,
                       struct model_config *out) {
    struct architecture pattern = *architecture;
    bool rotates[MODEL_MAX_LAYERS];
    int32_t window = architecture->defaults.window;
    /* By these sizes llama.cpp knows the 4k models of Phi-3, mini and medium, whose first files do
     * not state the window. (Source: pull request 8931 of ggml-org/llama.cpp.) */
    bool is_4k = out->max_position == 4096 && (out->num_layers == 32 || out->num_layers == 40);
    /* Files of all-windowed models that need no window say so by leaving it out. */
    if (architecture->window_rule == WINDOW_ALL_LAYERS)
        window = is_4k ? architecture->gguf_window_4k : 0;
    if (metadata_field_int(s, ".attention.sliding_window", 0, INT32_MAX, &window) != 0 ||
        read_window_pattern(s, &pattern, out, window) != 0)
        return -1;
    int32_t nope = architecture->nope_interval;
    for (int32_t i = 0; i < out->num_layers; i++)
        rotates[i] = nope == 0 || (i + 1) % nope != 0;
    model_config_set_layer_ropes(out, architecture, rotates);
    return 0;
}

static int read_fields(struct metadata_source *s, struct model_config *out) {
    char name[sizeof(out->architecture)];
    const struct architecture *architecture = read_architecture(s, name);
    if (architecture == NULL || check_keys(s, architecture) != 0)
        return -1;
    model_config_init(out, architecture);
    memcpy(out->architecture, name, sizeof(name));
    const struct metadata *title = tensor_file_find_metadata(s->file, "general.name");
    if (title != NULL && title->type == METADATA_STRING)
        metadata_field_copy(title->as_string, out->name, sizeof(out->name));
    out->naming = TENSOR_NAMING_GGUF;
    out->rope_interleaved = architecture->gguf_interleaved;
    out->permutes_heads = architecture->gguf_interleaved && !architecture->hf_interleaved;
    out->tied_embeddings = tensor_file_find(s->file, "output.weight") == NULL;
    out->has_score = tensor_file_find(s->file, "cls.output.weight") != NULL;
    if ((architecture->flags & ARCHITECTURE_HEAD_BIAS) != 0)
        out->head_bias = tensor_file_find(s->file, "output.bias") != NULL;
    if ((architecture->flags & ARCHITECTURE_OPTIONAL_QK_NORM) != 0 &&
        tensor_file_find(s->file, "blk.0.attn_q_norm.weight") != NULL)
        out->qk_norm = QK_NORM_HEAD;
    if (read_sizes(s, architecture, out) != 0 || read_heads(s, architecture, out) != 0 ||
        read_norm(s, out) != 0 || read_scales(s, architecture, out) != 0 ||
        read_layers(s, architecture, out) != 0 ||
        config_gguf_read_experts(s, architecture, out) != 0)
        return -1;
    out->latent.norm_eps = out->norm_eps;
    if (read_ropes(s, architecture, out) != 0)
        return -1;
    return out->latent.kv_rank > 0 ? config_gguf_read_latent_scale(s, out) : 0;
}

int config_gguf_read(const struct tensor_file *file, struct model_config *out, struct error *err) {
    struct metadata_source source = {.file = file, .err = err};
    struct model_config config;
    if (read_fields(&source, &config) != 0)
        return -1;
    *out = config;
    return 0;
}
