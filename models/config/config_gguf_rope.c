/* The ropes of a GGUF file. Two kinds of scaling are no setting but tensors of divisors, one per
 * frequency: rope_freqs (what Llama 3's rule comes to) and rope_factors_long and _short (longrope).
 * Both are read as longrope. */
#include "models/config/config_gguf.h"

#include <math.h>
#include <string.h>

static int read_rotary_dim(const struct metadata_source *s, struct model_config *out) {
    static const char key[] = ".rope.dimension_count";
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
    rope->truncate = true;
    if (!whole)
        rope->attention_factor *= 1.0F + 0.1F * logf(rope->factor);
    if (metadata_field_float(s, ".rope.scaling.yarn_beta_fast", 1e-3, 1e6, &rope->beta_fast) != 0)
        return -1;
    return metadata_field_float(s, ".rope.scaling.yarn_beta_slow", 1e-3, 1e6, &rope->beta_slow);
}

/* --- Tensors of divisors ---------------------------------------------------------------------- */

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

/* --- All together ----------------------------------------------------------------------------- */

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
                                     "is not supported beside tensors of rope factors");
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

int config_gguf_read_ropes(const struct metadata_source *s, const struct architecture *architecture,
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
