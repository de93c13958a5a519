/* The ropes of a Hugging Face folder. Three styles are in use: rope_theta next to rope_scaling
 * (with "rope_type", or "type" in older files); rope_parameters with both in one object; and
 * rope_parameters with an object for each kind of layer. (Source: modeling_rope_utils.py of
 * Transformers 5, which reads all three.) */
#include "models/config/config_hf.h"

#include "config/base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Settings of a rope; another one could change results, so it is refused. */
static const char *const known_keys[] = {
    "rope_type",       "type",
    "rope_theta",      "partial_rotary_factor",
    "factor",          "original_max_position_embeddings",
    "low_freq_factor", "high_freq_factor",
    "short_factor",    "long_factor",
    "beta_fast",       "beta_slow",
    "mscale",          "mscale_all_dim",
    "truncate",        "attention_factor",
    "finetuned",       "attn_factor", /* Transformers reads neither */
};

static int check_keys(const struct config_object *o, const struct architecture *architecture) {
    char shown[UTF8_PRINTABLE_BYTES];
    const cJSON *item;
    cJSON_ArrayForEach(item, o->json) {
        bool known = cJSON_IsNull(item) || ((architecture->flags & ARCHITECTURE_MSCALES) != 0 &&
                                            (strcmp(item->string, "short_mscale") == 0 ||
                                             strcmp(item->string, "long_mscale") == 0));
        for (size_t i = 0; i < sizeof(known_keys) / sizeof(known_keys[0]) && !known; i++)
            known = strcmp(item->string, known_keys[i]) == 0;
        if (known)
            continue;
        utf8_printable((struct text){item->string, strlen(item->string)}, shown);
        return config_field_refuse(o, shown,
                                   "this setting is not supported, and ignoring it could change "
                                   "the model's output");
    }
    return 0;
}

static int read_type(const struct config_object *o, const struct architecture *architecture,
                     enum rope_scaling *out) {
    static const struct {
        const char *name;
        enum rope_scaling scaling;
    } types[] = {
        {"default", ROPE_SCALING_NONE},    {"linear", ROPE_SCALING_LINEAR},
        {"dynamic", ROPE_SCALING_DYNAMIC}, {"yarn", ROPE_SCALING_YARN},
        {"llama3", ROPE_SCALING_LLAMA3},   {"longrope", ROPE_SCALING_LONGROPE},
    };
    const char *key = config_field_find(o, "rope_type") != NULL ? "rope_type" : "type";
    const char *name = "default";
    char shown[UTF8_PRINTABLE_BYTES];
    if (config_field_string(o, key, &name) != 0)
        return -1;
    if ((architecture->flags & ARCHITECTURE_LONGROPE_ONLY) != 0 &&
        (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0))
        name = "longrope";
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(name, types[i].name) == 0) {
            *out = types[i].scaling;
            return 0;
        }
    utf8_printable((struct text){name, strlen(name)}, shown);
    return config_field_refuse(o, key,
                               "'%s' is not supported (supported: default, linear, dynamic, yarn, "
                               "llama3, longrope)",
                               shown);
}

/* --- One rope --- */

/* The sources of a rope: the file's object, the rope's own (which may have no keys), and defaults
 * for what neither has. */
struct rope_source {
    const struct config_object *file, *rope;
    const struct architecture *architecture;
    int32_t max_position; /* as the file states it */
    int32_t rotary_dim;
};

/* *out_stated says that it is from the file and no default. */
static int read_original(const struct rope_source *s, struct rope_config *out, bool *out_stated) {
    static const char key[] = "original_max_position_embeddings";
    out->original_max_position = s->max_position;
    if (config_field_int(s->rope, key, 2, MODEL_MAX_POSITION, &out->original_max_position) != 0)
        return -1;
    if (s->architecture->defaults.original_max_position != 0)
        out->original_max_position = s->architecture->defaults.original_max_position;
    *out_stated =
        config_field_find(s->rope, key) != NULL || config_field_find(s->file, key) != NULL;
    return config_field_int(s->file, key, 2, MODEL_MAX_POSITION, &out->original_max_position);
}

static int read_factor(const struct rope_source *s, struct rope_config *out) {
    bool derived = out->scaling == ROPE_SCALING_YARN || out->scaling == ROPE_SCALING_LONGROPE;
    out->factor = 1.0F;
    if (derived && s->max_position > out->original_max_position)
        out->factor = (float)s->max_position / (float)out->original_max_position;
    else if (!derived && config_field_require(s->rope, "factor") != 0)
        return -1;
    return config_field_float(s->rope, "factor", MODEL_MIN_ROPE_FACTOR, MODEL_MAX_ROPE_FACTOR,
                              &out->factor);
}

static int read_llama3(const struct rope_source *s, struct rope_config *out) {
    static const char low[] = "low_freq_factor", high[] = "high_freq_factor";
    if (config_field_require(s->rope, low) != 0 || config_field_require(s->rope, high) != 0 ||
        config_field_float(s->rope, low, 1e-3, 1e6, &out->low_freq_factor) != 0 ||
        config_field_float(s->rope, high, 1e-3, 1e6, &out->high_freq_factor) != 0)
        return -1;
    if (out->high_freq_factor > out->low_freq_factor)
        return 0;
    return config_field_refuse(s->rope, high, "%g; must be above low_freq_factor, %g",
                               (double)out->high_freq_factor, (double)out->low_freq_factor);
}

static double yarn_scale(double factor, double multiplier) {
    return factor <= 1.0 ? 1.0 : 0.1 * multiplier * log(factor) + 1.0;
}

static int read_yarn(const struct rope_source *s, struct rope_config *out) {
    float scale = 0.0F, scale_all = 0.0F;
    out->beta_fast = 32.0F;
    out->beta_slow = 1.0F;
    out->truncate = true;
    if (config_field_float(s->rope, "mscale", 0.0, 100.0, &scale) != 0 ||
        config_field_float(s->rope, "mscale_all_dim", 0.0, 100.0, &scale_all) != 0 ||
        config_field_float(s->rope, "beta_fast", 1e-3, 1e6, &out->beta_fast) != 0 ||
        config_field_float(s->rope, "beta_slow", 1e-3, 1e6, &out->beta_slow) != 0 ||
        config_field_bool(s->rope, "truncate", &out->truncate) != 0)
        return -1;
    double factor = (double)out->factor, attention = yarn_scale(factor, 1.0);
    if (scale != 0.0F && scale_all != 0.0F)
        attention = yarn_scale(factor, (double)scale) / yarn_scale(factor, (double)scale_all);
    out->attention_factor = (float)attention;
    return config_field_float(s->rope, "attention_factor", MODEL_MIN_MULTIPLIER,
                              MODEL_MAX_MULTIPLIER, &out->attention_factor);
}

static int read_divisors(const struct rope_source *s, const char *key, float *out) {
    const cJSON *list, *item;
    int32_t count = s->rotary_dim / 2, i = 0;
    if (config_field_require(s->rope, key) != 0 || config_field_array(s->rope, key, &list) != 0)
        return -1;
    cJSON_ArrayForEach(item, list) {
        if (i == count)
            return config_field_refuse(s->rope, key, "has more than %d elements", count);
        if (!cJSON_IsNumber(item) ||
            !(item->valuedouble >= 1e-3 && item->valuedouble <= MODEL_MAX_ROPE_FACTOR))
            return config_field_refuse(s->rope, key,
                                       "element %d is not a number (allowed: 0.001 to %g)", i,
                                       MODEL_MAX_ROPE_FACTOR);
        out[i++] = (float)item->valuedouble;
    }
    if (i < count)
        return config_field_refuse(s->rope, key, "has %d elements; must have %d", i, count);
    return 0;
}

/* The class requires both. */
static int read_mscales(const struct config_object *o, struct rope_config *out) {
    static const char long_key[] = "long_mscale", short_key[] = "short_mscale";
    if (config_field_require(o, long_key) != 0 || config_field_require(o, short_key) != 0 ||
        config_field_float(o, long_key, MODEL_MIN_MULTIPLIER, MODEL_MAX_MULTIPLIER,
                           &out->attention_factor) != 0)
        return -1;
    return config_field_float(o, short_key, MODEL_MIN_MULTIPLIER, MODEL_MAX_MULTIPLIER,
                              &out->short_attention_factor);
}

static int read_longrope(const struct rope_source *s, struct rope_config *out) {
    double factor = (double)out->factor;
    double attention =
        factor <= 1.0 ? 1.0 : sqrt(1.0 + log(factor) / log(out->original_max_position));
    out->attention_factor = (float)attention;
    if (read_divisors(s, "short_factor", out->short_factors) != 0 ||
        read_divisors(s, "long_factor", out->long_factors) != 0)
        return -1;
    if ((s->architecture->flags & ARCHITECTURE_MSCALES) != 0)
        return read_mscales(s->rope, out);
    return config_field_float(s->rope, "attention_factor", MODEL_MIN_MULTIPLIER,
                              MODEL_MAX_MULTIPLIER, &out->attention_factor);
}

/* `theta` holds where the rope's own object has none. *max_position grows with a stretched rope. */
static int read_rope(const struct rope_source *s, float theta, struct rope_config *out,
                     int32_t *max_position) {
    bool stated;
    *out = (struct rope_config){.theta = theta, .attention_factor = 1.0F};
    if (check_keys(s->rope, s->architecture) != 0 ||
        config_field_float(s->rope, "rope_theta", MODEL_MIN_THETA, MODEL_MAX_THETA, &out->theta) !=
            0 ||
        read_type(s->rope, s->architecture, &out->scaling) != 0)
        return -1;
    if (out->scaling == ROPE_SCALING_NONE)
        return 0;
    if (read_original(s, out, &stated) != 0 || read_factor(s, out) != 0)
        return -1;
    if (out->scaling == ROPE_SCALING_LLAMA3)
        return read_llama3(s, out);
    if (out->scaling == ROPE_SCALING_LONGROPE)
        return read_longrope(s, out);
    if (out->scaling == ROPE_SCALING_DYNAMIC)
        out->original_max_position = s->max_position;
    if (out->scaling == ROPE_SCALING_DYNAMIC || (out->scaling == ROPE_SCALING_YARN && stated))
        *max_position = model_config_stretch(out, s->max_position, out->original_max_position);
    return out->scaling == ROPE_SCALING_YARN ? read_yarn(s, out) : 0;
}

/* --- Both --- */

/* Reads the rope of layers that see everything, and of those with a window where the two differ. */
static int find_objects(const struct config_object *o, struct config_object *full,
                        struct config_object *sliding) {
    struct config_object parameters;
    *sliding = (struct config_object){.file = o->file, .err = o->err};
    if (config_field_object(o, "rope_parameters", &parameters) != 0 ||
        config_field_object(o, "rope_scaling", full) != 0)
        return -1;
    bool has_scaling = full->json != NULL && full->json->child != NULL;
    bool by_kind = config_field_find(&parameters, "full_attention") != NULL ||
                   config_field_find(&parameters, "sliding_attention") != NULL;
    if (by_kind && config_field_object(&parameters, "sliding_attention", sliding) != 0)
        return -1;
    if (has_scaling)
        return 0;
    *full = parameters;
    return by_kind ? config_field_object(&parameters, "full_attention", full) : 0;
}

static int read_rotary_dim(const struct config_object *o, const struct config_object *rope,
                           const struct architecture *architecture, struct model_config *out) {
    static const char key[] = "partial_rotary_factor";
    if (out->latent.kv_rank > 0)
        return 0;
    const struct config_object *where = config_field_find(rope, key) != NULL ? rope : o;
    float part = architecture->defaults.partial_rotary == 0.0F
                     ? 1.0F
                     : architecture->defaults.partial_rotary;
    if (config_field_float(where, key, 0.0, 1.0, &part) != 0)
        return -1;
    if (part != 1.0F && (architecture->flags & ARCHITECTURE_PARTIAL_ROTARY) == 0)
        return config_field_refuse(where, key, "%g; only 1 is supported for this architecture",
                                   (double)part);
    const cJSON *item = config_field_find(where, key);
    double exact = item != NULL ? item->valuedouble : (double)part;
    out->rotary_dim = (int32_t)(out->head_dim * exact);
    if (out->rotary_dim >= 2 && out->rotary_dim % 2 == 0)
        return 0;
    return config_field_refuse(where, key,
                               "%g of heads of %d elements are %d; must be even and at least 2",
                               (double)part, out->head_dim, out->rotary_dim);
}

/* Of any scaled rope with a factor, as Transformers does it. */
static int read_latent_scale(const struct config_object *rope, struct model_config *out) {
    float scale = 0.0F;
    if (out->ropes[0].scaling == ROPE_SCALING_NONE)
        return 0;
    if (config_field_float(rope, "mscale_all_dim", 0.0, 100.0, &scale) != 0)
        return -1;
    if (scale != 0.0F)
        model_config_scale_latent(out, 0.1 * (double)scale);
    return 0;
}

int config_hf_read_ropes(const struct config_object *o, const struct architecture *architecture,
                         struct model_config *out) {
    struct config_object full, sliding;
    float theta = architecture->defaults.theta, local_theta = architecture->local_theta;
    if (find_objects(o, &full, &sliding) != 0 ||
        read_rotary_dim(o, &full, architecture, out) != 0 ||
        config_field_float(o, "rope_theta", MODEL_MIN_THETA, MODEL_MAX_THETA, &theta) != 0)
        return -1;
    struct rope_source source = {.file = o,
                                 .rope = &full,
                                 .architecture = architecture,
                                 .max_position = out->max_position,
                                 .rotary_dim = out->rotary_dim};
    if (read_rope(&source, theta, &out->ropes[0], &out->max_position) != 0 ||
        (out->latent.kv_rank > 0 && read_latent_scale(&full, out) != 0))
        return -1;
    if (sliding.json != NULL && (architecture->flags & ARCHITECTURE_LOCAL_ROPE) == 0)
        return config_field_refuse(o, "rope_parameters",
                                   "a rope for each kind of layer is not supported for this "
                                   "architecture");
    if (out->num_ropes == 1)
        return 0;
    if (local_theta == 0.0F)
        local_theta = out->ropes[0].theta;
    if (config_field_float(o, "rope_local_base_freq", MODEL_MIN_THETA, MODEL_MAX_THETA,
                           &local_theta) != 0)
        return -1;
    source.rope = &sliding;
    return read_rope(&source, local_theta, &out->ropes[1], &out->max_position);
}
