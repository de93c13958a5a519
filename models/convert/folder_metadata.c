/* The metadata of a folder's model, as llama.cpp's converter writes it for each family, and the
 * check that a file with it is the same model: what the format cannot say is refused by name. */
#include "models/convert/conversion_private.h"

#include "models/config/architecture.h"
#include "models/config/config_field.h"
#include "models/config/sampling_fields.h"
#include "models/files/input_file.h"
#include "models/files/json_file.h"
#include "models/weights/rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG_BYTES ((size_t)4 << 20)
#define KEY_BYTES 96

static struct text text_of(const char *string) {
    return (struct text){string, strlen(string)};
}

/* --- Keys of the architecture --- */

static const char *key_of(const struct conversion *c, const char *name,
                          char out[static KEY_BYTES]) {
    snprintf(out, KEY_BYTES, "%s.%s", c->architecture, name);
    return out;
}

static void put_int(struct conversion *c, const char *name, int32_t value) {
    char key[KEY_BYTES];
    gguf_writer_u32(&c->header, key_of(c, name, key), (uint32_t)value);
}

static void put_bool(struct conversion *c, const char *name, bool value) {
    char key[KEY_BYTES];
    gguf_writer_bool(&c->header, key_of(c, name, key), value);
}

static void put_float(struct conversion *c, const char *name, float value) {
    char key[KEY_BYTES];
    gguf_writer_f32(&c->header, key_of(c, name, key), value);
}

static void put_string(struct conversion *c, const char *name, const char *value) {
    char key[KEY_BYTES];
    gguf_writer_string(&c->header, key_of(c, name, key), text_of(value));
}

static bool is_one_of(const char *name, const char *const *names) {
    for (; *names != NULL; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

/* What config.json states and struct model_config has in another form. */
struct stated {
    int32_t max_position, original_max_position;
    float logits_scaling;
    double mscale_all_dim; /* of yarn, for latent attention; 0: none */
};

/* The rope's object has one of two names. */
static int read_mscale(const struct config_object *o, double *out) {
    static const char key[] = "mscale_all_dim";
    struct config_object rope;
    float value = 0.0F;
    if (config_field_object(o, "rope_scaling", &rope) != 0 ||
        (rope.json == NULL && config_field_object(o, "rope_parameters", &rope) != 0))
        return -1;
    if (rope.json == NULL || config_field_find(&rope, key) == NULL)
        return 0;
    if (config_field_float(&rope, key, 0.0, 100.0, &value) != 0)
        return -1;
    *out = config_field_find(&rope, key)->valuedouble;
    return 0;
}

static int read_stated(const struct conversion *c, int32_t original_max_position,
                       struct stated *out, struct error *err) {
    char path[PATH_MAX];
    struct config_object text;
    if (input_file_join_path(c->path, "config.json", path, err) != 0)
        return -1;
    cJSON *root = json_file_read(path, MAX_CONFIG_BYTES, err);
    if (root == NULL)
        return -1;
    const struct config_object all = {.json = root, .file = path, .err = err};
    *out = (struct stated){c->model->config.max_position, original_max_position, 1.0F, 0.0};
    int status = config_field_object(&all, "text_config", &text);
    const struct config_object *o = status == 0 && text.json != NULL ? &text : &all;
    if (status == 0 &&
        (config_field_int(o, "max_position_embeddings", 1, MODEL_MAX_POSITION,
                          &out->max_position) != 0 ||
         config_field_int(o, "original_max_position_embeddings", 1, MODEL_MAX_POSITION,
                          &out->original_max_position) != 0 ||
         config_field_float(o, "logits_scaling", MODEL_MIN_MULTIPLIER, MODEL_MAX_MULTIPLIER,
                            &out->logits_scaling) != 0 ||
         (c->model->config.latent.kv_rank > 0 && read_mscale(o, &out->mscale_all_dim) != 0)))
        status = -1;
    cJSON_Delete(root);
    return status;
}

/* As attention runs on what is cached, and a head's own lengths (config_gguf_latent.c). */
static void put_latent(struct conversion *c) {
    const struct model_config *config = &c->model->config;
    const struct latent_config *latent = &config->latent;
    if (latent->q_rank > 0)
        put_int(c, "attention.q_lora_rank", latent->q_rank);
    put_int(c, "attention.kv_lora_rank", latent->kv_rank);
    put_int(c, "attention.key_length_mla", latent->nope_dim + config->rotary_dim);
    put_int(c, "attention.value_length_mla", latent->value_dim);
    put_int(c, "rope.dimension_count", config->rotary_dim);
}

static void put_sizes(struct conversion *c, const struct stated *stated) {
    const struct model_config *config = &c->model->config;
    bool is_latent = config->latent.kv_rank > 0;
    bool has_rms_epsilon = config->norm == NORM_RMS || config->norm_bias;
    put_int(c, "vocab_size", config->vocab_size);
    put_int(c, "context_length", stated->max_position);
    put_int(c, "embedding_length", config->hidden_size);
    put_int(c, "block_count", config->num_layers + c->num_extra_layers);
    put_int(c, "feed_forward_length", config->intermediate_size);
    put_int(c, "attention.head_count", config->num_heads);
    put_int(c, "attention.head_count_kv", config->num_kv_heads);
    put_int(c, "attention.key_length", config->head_dim);
    put_int(c, "attention.value_length", is_latent ? config->latent.kv_rank : config->head_dim);
    put_float(c,
              has_rms_epsilon ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
              config->norm_eps);
    if (is_latent)
        put_latent(c);
}

/* What only the families with groups of experts state. */
static void put_groups(struct conversion *c) {
    const struct model_config *config = &c->model->config;
    const struct moe_config *moe = &config->moe;
    int32_t num_dense = 0;
    while (num_dense < config->num_layers && !config->layers[num_dense].is_sparse)
        num_dense++;
    put_int(c, "leading_dense_block_count", num_dense);
    put_int(c, "expert_shared_count", moe->shared_size / moe->expert_size);
    put_int(c, "expert_gating_func", moe->scoring == ROUTE_SIGMOID ? 2 : 1);
    put_float(c, "expert_weights_scale", moe->scale);
    put_bool(c, "expert_weights_norm", moe->renormalise);
    put_int(c, "expert_group_count", moe->num_groups);
    put_int(c, "expert_group_used_count", moe->num_chosen_groups);
}

static void put_experts(struct conversion *c, const struct architecture *architecture) {
    const struct architecture_experts *experts = &architecture->experts;
    const struct moe_config *moe = &c->model->config.moe;
    bool is_latent = c->model->config.latent.kv_rank > 0;
    if (moe->num_experts == 0)
        return;
    put_int(c, "expert_count", moe->num_experts);
    put_int(c, "expert_used_count", moe->num_chosen);
    if (experts->own_size || experts->is_transposed)
        put_int(c, "expert_feed_forward_length", moe->expert_size);
    if (experts->shared != SHARED_COUNTED && moe->shared_size > 0)
        put_int(c, "expert_shared_feed_forward_length", moe->shared_size);
    if (experts->is_grouped)
        put_groups(c);
    if ((architecture->flags & ARCHITECTURE_EXTRA_LAYERS) != 0 && !is_latent)
        put_int(c, "nextn_predict_layers", c->num_extra_layers);
}

static void put_yarn(struct conversion *c, const struct rope_config *rope,
                     const struct stated *stated) {
    put_string(c, "rope.scaling.type", "yarn");
    put_float(c, "rope.scaling.factor", rope->factor);
    put_int(c, "rope.scaling.original_context_length", rope->original_max_position);
    put_float(c, "rope.scaling.yarn_beta_fast", rope->beta_fast);
    put_float(c, "rope.scaling.yarn_beta_slow", rope->beta_slow);
    if (stated->mscale_all_dim != 0.0)
        put_float(c, "rope.scaling.yarn_log_multiplier", (float)(0.1 * stated->mscale_all_dim));
}

static void put_rope(struct conversion *c, const struct stated *stated) {
    static const char *const without_rope[] = {"gemma", "gemma2", NULL};
    static const char *const with_dimensions[] = {
        "llama", "smollm3", "granite", "phi3", "cohere2", "granitemoe", "phimoe", "glm4moe", NULL};
    static const char *const unscaled[] = {"command-r", "cohere2", NULL};
    const struct model_config *config = &c->model->config;
    const struct rope_config *rope = &config->ropes[0];
    if (is_one_of(c->architecture, without_rope))
        return;
    put_float(c, "rope.freq_base", rope->theta);
    if (is_one_of(c->architecture, with_dimensions))
        put_int(c, "rope.dimension_count", config->rotary_dim);
    if (config->num_ropes > 1 && strcmp(c->architecture, "gemma3") == 0)
        put_float(c, "rope.freq_base_swa", config->ropes[1].theta);
    if (is_one_of(c->architecture, unscaled))
        put_string(c, "rope.scaling.type", "none");
    else if (rope->scaling == ROPE_SCALING_YARN)
        put_yarn(c, rope, stated);
    else if (rope->scaling == ROPE_SCALING_LONGROPE)
        put_float(c, "rope.scaling.attn_factor", rope->attention_factor);
    else if (rope->scaling == ROPE_SCALING_LINEAR) {
        put_string(c, "rope.scaling.type", "linear");
        put_float(c, "rope.scaling.factor", rope->factor);
    }
}

static int32_t window_of(const struct model_config *config) {
    int32_t window = 0;
    for (int32_t i = 0; i < config->num_layers; i++)
        window = config->layers[i].window > window ? config->layers[i].window : window;
    return window;
}

static void put_windows(struct conversion *c, const struct stated *stated) {
    const struct model_config *config = &c->model->config;
    int32_t window = window_of(config);
    if (strcmp(c->architecture, "phi3") == 0 || strcmp(c->architecture, "phimoe") == 0) {
        if (stated->original_max_position > 0)
            put_int(c, "rope.scaling.original_context_length", stated->original_max_position);
        put_int(c, "attention.sliding_window", window);
    } else if (window > 0) {
        put_int(c, "attention.sliding_window", window);
    }
    if (window > 0 && strcmp(c->architecture, "olmo2") == 0) {
        uint8_t windowed[MODEL_MAX_LAYERS];
        char key[KEY_BYTES];
        for (int32_t i = 0; i < config->num_layers; i++)
            windowed[i] = config->layers[i].window > 0;
        gguf_writer_bools(&c->header, key_of(c, "attention.sliding_window_pattern", key), windowed,
                          (size_t)config->num_layers);
    }
}

static void put_scales(struct conversion *c, const struct stated *stated, unsigned flags) {
    const struct model_config *config = &c->model->config;
    if ((flags & ARCHITECTURE_MULTIPLIERS) != 0) {
        put_float(c, "attention.scale", config->attention_scale);
        put_float(c, "embedding_scale", config->embedding_scale);
        put_float(c, "residual_scale", config->residual_scale);
        put_float(c, "logit_scale", stated->logits_scaling);
    }
    if ((flags & ARCHITECTURE_LOGIT_SCALE) != 0)
        put_float(c, "logit_scale", config->logit_scale);
    if (config->attention_soft_cap != 0.0F)
        put_float(c, "attn_logit_softcapping", config->attention_soft_cap);
    if (config->final_soft_cap != 0.0F)
        put_float(c, "final_logit_softcapping", config->final_soft_cap);
}

/* --- Everything --- */

static void put_sampling(struct conversion *c) {
    int count;
    const struct sampling_field *fields = sampling_fields(&count);
    for (int i = 0; i < count; i++) {
        const struct sampling_field *field = &fields[i];
        if (field->gguf_key == NULL || sampling_field_is_absent(field, &c->model->generation))
            continue;
        double value = sampling_field_value(field, &c->model->generation);
        if (field->type == SAMPLING_FIELD_INT32)
            gguf_writer_i32(&c->header, field->gguf_key, (int32_t)value);
        else
            gguf_writer_f32(&c->header, field->gguf_key, (float)value);
    }
}

/* What llama.cpp's enum llama_pooling_type says of the model, and the labels of a classifier. */
static int put_head(struct conversion *c, struct error *err) {
    enum { IS_MEAN = 1, IS_LAST = 3, IS_RANK };
    const struct classifier *classifier = &c->model->classifier;
    int32_t count = classifier->num_labels;
    bool is_sigmoid = classifier->activation == CLASSIFIER_SIGMOID && count == 1;
    if (!c->model->config.has_score) {
        if (c->model->pooling != MODEL_POOLING_UNSTATED)
            put_int(c, "pooling_type", c->model->pooling == MODEL_POOLING_MEAN ? IS_MEAN : IS_LAST);
        return 0;
    }
    if (classifier->activation != CLASSIFIER_BY_COUNT && !is_sigmoid)
        return error_set(err, ERROR_MODEL,
                         "%s: scores that are not a softmax of the labels have no place in a GGUF "
                         "file (problem_type in config.json)",
                         c->path);
    char(*names)[CLASSIFIER_MAX_LABEL_BYTES + 1] = calloc((size_t)count, sizeof(*names)),
                                              key[KEY_BYTES];
    struct text *labels = calloc((size_t)count, sizeof(*labels));
    for (int32_t i = 0; names != NULL && labels != NULL && i < count; i++) {
        classifier_label(classifier, i, names[i]);
        labels[i] = text_of(names[i]);
    }
    if (names != NULL && labels != NULL) {
        put_int(c, "pooling_type", IS_RANK);
        gguf_writer_strings(&c->header, key_of(c, "classifier.output_labels", key), labels,
                            (size_t)count);
    }
    bool has_memory = names != NULL && labels != NULL;
    free(names);
    free(labels);
    return has_memory ? 0 : error_set(err, ERROR_MEMORY, "%s: no memory for its labels", c->path);
}

int folder_source_metadata(struct conversion *c, struct error *err) {
    struct stated stated;
    const struct architecture *architecture =
        architecture_find_gguf(text_of(c->architecture), c->path, err);
    if (architecture == NULL ||
        read_stated(c, architecture->defaults.original_max_position, &stated, err) != 0)
        return -1;
    gguf_writer_string(&c->header, "general.architecture", text_of(c->architecture));
    gguf_writer_string(&c->header, "general.type", text_of("model"));
    gguf_writer_string(&c->header, "general.name", text_of(c->model->config.name));
    put_sampling(c);
    put_sizes(c, &stated);
    put_experts(c, architecture);
    put_rope(c, &stated);
    put_windows(c, &stated);
    put_scales(c, &stated, architecture->flags);
    if (put_head(c, err) != 0)
        return -1;
    return folder_tokenizer_metadata(c, err);
}

/* --- The check --- */

static bool are_close(float a, float b) {
    return fabsf(a - b) <= 1e-5F * fmaxf(fabsf(a), fabsf(b));
}

/* Compares rows of two rope tables, for contexts within and beyond the original length. */
static bool ropes_agree(const struct model_config *a, int32_t a_rope, const struct model_config *b,
                        int32_t b_rope) {
    static const int32_t positions[] = {1, 37};
    float rows[2][KV_MAX_HEAD_DIM];
    if (a_rope < 0 || b_rope < 0)
        return a_rope < 0 && b_rope < 0;
    const int32_t lengths[] = {64, a->max_position};
    for (int l = 0; l < 2; l++)
        for (int p = 0; p < 2; p++) {
            if (lengths[l] <= positions[p])
                continue;
            rope_fill_table(&a->ropes[a_rope], a->rotary_dim, lengths[l], positions[p], 1, rows[0]);
            rope_fill_table(&b->ropes[b_rope], b->rotary_dim, lengths[l], positions[p], 1, rows[1]);
            for (int32_t i = 0; i < a->rotary_dim; i++)
                if (fabsf(rows[0][i] - rows[1][i]) > 1e-4F)
                    return false;
        }
    return true;
}

static bool experts_agree(const struct moe_config *a, const struct moe_config *b) {
    return a->num_experts == b->num_experts && a->num_chosen == b->num_chosen &&
           a->expert_size == b->expert_size && a->shared_size == b->shared_size &&
           a->shared_gate == b->shared_gate && a->scoring == b->scoring &&
           a->selection_bias == b->selection_bias && a->renormalise == b->renormalise &&
           are_close(a->scale, b->scale) && a->num_groups == b->num_groups &&
           a->num_chosen_groups == b->num_chosen_groups && a->group_score == b->group_score &&
           a->jitter == b->jitter;
}

static bool latents_agree(const struct latent_config *a, const struct latent_config *b) {
    return a->kv_rank == b->kv_rank && a->q_rank == b->q_rank && a->nope_dim == b->nope_dim &&
           a->value_dim == b->value_dim && (a->kv_rank == 0 || are_close(a->norm_eps, b->norm_eps));
}

/* Returns what differs; NULL: nothing does. */
static const char *find_difference(const struct model_config *a, const struct model_config *b) {
    const struct {
        const char *name;
        bool equal;
    } checks[] = {
        {"hidden_size", a->hidden_size == b->hidden_size},
        {"vocab_size", a->vocab_size == b->vocab_size},
        {"num_attention_heads", a->num_heads == b->num_heads},
        {"num_key_value_heads", a->num_kv_heads == b->num_kv_heads},
        {"head_dim", a->head_dim == b->head_dim},
        {"tie_word_embeddings", a->tied_embeddings == b->tied_embeddings},
        {"max_position_embeddings", a->max_position == b->max_position},
        {"hidden_act", a->activation == b->activation},
        {"the kind of norm", a->norm == b->norm && are_close(a->norm_eps, b->norm_eps) &&
                                 a->pre_norm == b->pre_norm && a->post_norm == b->post_norm},
        {"the norm of q and k", a->qk_norm == b->qk_norm},
        {"the attention's scale", are_close(a->attention_scale, b->attention_scale)},
        {"soft caps", are_close(a->attention_soft_cap, b->attention_soft_cap) &&
                          are_close(a->final_soft_cap, b->final_soft_cap)},
        {"multipliers", are_close(a->embedding_scale, b->embedding_scale) &&
                            are_close(a->residual_scale, b->residual_scale) &&
                            are_close(a->logit_scale, b->logit_scale)},
        {"partial_rotary_factor", a->rotary_dim == b->rotary_dim},
        {"latent attention", latents_agree(&a->latent, &b->latent)},
        {"rope_interleave", a->latent.kv_rank == 0 || a->rope_interleaved == b->rope_interleaved},
        {"the choice of experts", experts_agree(&a->moe, &b->moe)},
    };
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
        if (!checks[i].equal)
            return checks[i].name;
    for (int32_t i = 0; i < a->num_layers; i++) {
        if (a->layers[i].is_sparse != b->layers[i].is_sparse)
            return "which layers have experts";
        if (a->layers[i].window != b->layers[i].window)
            return "the layers' windows";
        if (!ropes_agree(a, a->layers[i].rope, b, b->layers[i].rope))
            return "the rope or its scaling";
    }
    return NULL;
}

int folder_source_check(const struct conversion *c, const char *path, struct error *err) {
    struct model *written;
    if (model_open(path, &written, err) != 0)
        return -1;
    const char *difference = find_difference(&c->model->config, &written->config);
    int status = 0;
    if (difference != NULL)
        status = error_set(err, ERROR_MODEL,
                           "%s: cannot become a GGUF file: the format cannot say %s of this model",
                           c->path, difference);
    if (status == 0)
        status = folder_tokenizer_check(c, written, err);
    model_close(written);
    return status;
}
