#include "tests/unit/models/config/model_image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

struct model_config model_image_config(void) {
    struct model_config config = {
        .architecture = "test",
        .vocab_size = 40,
        .hidden_size = 64,
        .intermediate_size = 96,
        .num_layers = IMAGE_LAYERS,
        .num_heads = 6,
        .num_kv_heads = 2,
        .head_dim = 16,
        .max_position = 64,
        .norm_eps = 1e-5F,
        .pre_norm = true,
        .rotary_dim = 16,
        .num_ropes = 1,
        .ropes = {{.theta = 10000.0F, .attention_factor = 1.0F}},
        .attention_scale = 0.25F,
        .embedding_scale = 1.0F,
        .residual_scale = 1.0F,
        .logit_scale = 1.0F,
    };
    return config;
}

static void put_role(struct model_image *image, enum tensor_role role, int32_t layer,
                     const char *suffix, int32_t rows, int32_t cols, enum dtype dtype) {
    char name[TENSOR_NAME_BYTES];
    tensor_names_write(&image->model.config, (struct tensor_place){role, layer}, suffix, name);
    model_image_put(image, name, rows, cols, dtype);
}

static void put_matrix(struct model_image *image, struct image_form form, enum tensor_role role,
                       int32_t layer, int32_t rows, int32_t cols) {
    put_role(image, role, layer, "weight", rows, cols, form.dtype);
    if (form.biased)
        put_role(image, role, layer, "bias", 0, rows, DTYPE_F32);
}

static void put_norm(struct model_image *image, enum tensor_role role, int32_t layer,
                     int32_t width) {
    bool of_heads = role == TENSOR_Q_NORM || role == TENSOR_K_NORM;
    put_role(image, role, layer, "weight", 0, width, DTYPE_F32);
    if (image->model.config.norm_bias && !of_heads)
        put_role(image, role, layer, "bias", 0, width, DTYPE_F32);
}

static void put_norms(struct model_image *image, int32_t layer) {
    const struct model_config *config = &image->model.config;
    bool full = config->qk_norm == QK_NORM_FULL;
    const struct {
        bool present;
        enum tensor_role role;
        int32_t width;
    } norms[] = {
        {config->pre_norm, TENSOR_ATTENTION_NORM, config->hidden_size},
        {config->pre_norm && !config->parallel_residual, TENSOR_FFN_NORM, config->hidden_size},
        {config->post_norm, TENSOR_ATTENTION_POST_NORM, config->hidden_size},
        {config->post_norm, TENSOR_FFN_POST_NORM, config->hidden_size},
        {config->qk_norm != QK_NORM_NONE, TENSOR_Q_NORM,
         config->head_dim * (full ? config->num_heads : 1)},
        {config->qk_norm != QK_NORM_NONE, TENSOR_K_NORM,
         config->head_dim * (full ? config->num_kv_heads : 1)},
    };
    for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++)
        if (norms[i].present)
            put_norm(image, norms[i].role, layer, norms[i].width);
}

static void put_expert_tensors(struct model_image *image, struct image_form form,
                               enum tensor_role role, int32_t layer, int32_t rows, int32_t cols) {
    const struct model_config *config = &image->model.config;
    bool in_one = config->naming == TENSOR_NAMING_GGUF;
    for (int32_t e = 0; e < (in_one ? 1 : config->moe.num_experts); e++) {
        char name[TENSOR_NAME_BYTES];
        const struct tensor_place place = {role, layer, in_one ? TENSOR_ALL_EXPERTS : e};
        tensor_names_write(config, place, "weight", name);
        model_image_put(image, name, rows, cols, form.dtype);
        image->tensors[image->num_tensors - 1].experts = in_one ? config->moe.num_experts : 0;
    }
}

static void put_experts(struct model_image *image, struct image_form form, int32_t layer) {
    const struct model_config *config = &image->model.config;
    const struct moe_config *moe = &config->moe;
    int32_t hidden = config->hidden_size;
    put_matrix(image, form, TENSOR_ROUTER, layer, moe->num_experts, hidden);
    put_expert_tensors(image, form, TENSOR_EXPERT_GATE, layer, moe->expert_size, hidden);
    put_expert_tensors(image, form, TENSOR_EXPERT_UP, layer, moe->expert_size, hidden);
    put_expert_tensors(image, form, TENSOR_EXPERT_DOWN, layer, hidden, moe->expert_size);
    if (moe->selection_bias)
        put_role(image, TENSOR_SELECTION_BIAS, layer, "weight", 0, moe->num_experts, DTYPE_F32);
    if (moe->shared_gate)
        put_role(image, TENSOR_SHARED_ROUTER, layer, "weight", 1, hidden, form.dtype);
    if (moe->shared_size == 0)
        return;
    put_matrix(image, form, TENSOR_SHARED_GATE, layer, moe->shared_size, hidden);
    put_matrix(image, form, TENSOR_SHARED_UP, layer, moe->shared_size, hidden);
    put_matrix(image, form, TENSOR_SHARED_DOWN, layer, hidden, moe->shared_size);
}

static void put_dense_ffn(struct model_image *image, struct image_form form, int32_t layer) {
    int32_t hidden = image->model.config.hidden_size, ffn = image->model.config.intermediate_size;
    if (form.fused) {
        put_matrix(image, form, TENSOR_GATE_UP, layer, 2 * ffn, hidden);
    } else {
        put_matrix(image, form, TENSOR_GATE, layer, ffn, hidden);
        put_matrix(image, form, TENSOR_UP, layer, ffn, hidden);
    }
    put_matrix(image, form, TENSOR_DOWN, layer, hidden, ffn);
}

/* One tensor of all heads' parts, folders' names: as rows of one matrix. */
static void put_heads(struct model_image *image, struct image_form form, int32_t layer) {
    const struct model_config *config = &image->model.config;
    const struct latent_config *latent = &config->latent;
    int32_t num_heads = config->num_heads, value_dim = latent->value_dim;
    if (config->naming == TENSOR_NAMING_HF) {
        put_role(image, TENSOR_KV_B, layer, "weight", num_heads * (latent->nope_dim + value_dim),
                 latent->kv_rank, form.dtype);
        return;
    }
    put_role(image, TENSOR_K_B, layer, "weight", latent->kv_rank, latent->nope_dim, form.dtype);
    image->tensors[image->num_tensors - 1].experts = num_heads;
    put_role(image, TENSOR_V_B, layer, "weight", value_dim, latent->kv_rank, form.dtype);
    image->tensors[image->num_tensors - 1].experts = num_heads;
}

static void put_latent(struct model_image *image, struct image_form form, int32_t layer) {
    const struct model_config *config = &image->model.config;
    const struct latent_config *latent = &config->latent;
    int32_t hidden = config->hidden_size, q_rank = latent->q_rank;
    int32_t q = config->num_heads * (latent->nope_dim + config->rotary_dim);
    if (q_rank > 0) {
        put_matrix(image, form, TENSOR_Q_A, layer, q_rank, hidden);
        put_role(image, TENSOR_Q_A_NORM, layer, "weight", 0, q_rank, DTYPE_F32);
        put_role(image, TENSOR_Q_B, layer, "weight", q, q_rank, form.dtype);
    } else {
        put_matrix(image, form, TENSOR_Q, layer, q, hidden);
    }
    put_matrix(image, form, TENSOR_KV_A, layer, latent->kv_rank + config->rotary_dim, hidden);
    put_role(image, TENSOR_KV_A_NORM, layer, "weight", 0, latent->kv_rank, DTYPE_F32);
    put_heads(image, form, layer);
}

static void put_qkv(struct model_image *image, struct image_form form, int32_t layer) {
    const struct model_config *config = &image->model.config;
    int32_t hidden = config->hidden_size;
    int32_t q = config->num_heads * config->head_dim, kv = config->num_kv_heads * config->head_dim;
    if (form.fused) {
        put_matrix(image, form, TENSOR_QKV, layer, q + 2 * kv, hidden);
        return;
    }
    put_matrix(image, form, TENSOR_Q, layer, q, hidden);
    put_matrix(image, form, TENSOR_K, layer, kv, hidden);
    put_matrix(image, form, TENSOR_V, layer, kv, hidden);
}

static void put_layer(struct model_image *image, struct image_form form, int32_t layer) {
    const struct model_config *config = &image->model.config;
    put_norms(image, layer);
    (config->latent.kv_rank > 0 ? put_latent : put_qkv)(image, form, layer);
    put_matrix(image, form, TENSOR_ATTENTION_OUT, layer, config->hidden_size,
               config->num_heads * model_config_value_dim(config));
    if (config->attention_sinks)
        put_role(image, TENSOR_SINKS, layer, "weight", 0, config->num_heads, DTYPE_F32);
    if (config->layers[layer].is_sparse)
        put_experts(image, form, layer);
    else
        put_dense_ffn(image, form, layer);
}

void model_image_set_latent(struct model_config *config, int32_t q_rank) {
    config->latent = (struct latent_config){
        .kv_rank = 32, .q_rank = q_rank, .nope_dim = 24, .value_dim = 16, .norm_eps = 1e-6F};
    config->rotary_dim = 8;
    config->head_dim = 40;
    config->num_kv_heads = 1;
}

void model_image_set_sparse(struct model_config *config) {
    config->layers[1].is_sparse = true;
    config->moe = (struct moe_config){.num_experts = 4,
                                      .num_chosen = 2,
                                      .expert_size = 32,
                                      .scale = 1.0F,
                                      .num_groups = 1,
                                      .num_chosen_groups = 1};
}

void model_image_init(struct model_image *image, const struct model_config *config,
                      struct image_form form) {
    *image = (struct model_image){.model.config = *config};
    put_role(image, TENSOR_EMBEDDING, 0, "weight", config->vocab_size, config->hidden_size,
             form.dtype);
    if (!config->tied_embeddings)
        put_role(image, TENSOR_HEAD, 0, "weight", config->vocab_size, config->hidden_size,
                 form.dtype);
    if (!config->tied_embeddings && config->head_bias)
        put_role(image, TENSOR_HEAD, 0, "bias", 0, config->vocab_size, DTYPE_F32);
    put_norm(image, TENSOR_OUTPUT_NORM, 0, config->hidden_size);
    for (int32_t layer = 0; layer < config->num_layers; layer++)
        put_layer(image, form, layer);
}

void model_image_remove(struct model_image *image, const char *name) {
    int kept = 0;
    for (int i = 0; i < image->num_tensors; i++)
        if (strcmp(image->tensors[i].name, name) != 0)
            image->tensors[kept++] = image->tensors[i];
    image->num_tensors = kept;
}

void model_image_put(struct model_image *image, const char *name, int32_t rows, int32_t cols,
                     enum dtype dtype) {
    model_image_remove(image, name);
    assert_true(image->num_tensors < IMAGE_MAX_TENSORS);
    struct image_tensor *tensor = &image->tensors[image->num_tensors++];
    *tensor = (struct image_tensor){.rows = rows, .cols = cols, .dtype = dtype};
    snprintf(tensor->name, sizeof(tensor->name), "%s", name);
}

static size_t num_elements(const struct image_tensor *tensor) {
    size_t experts = tensor->experts > 0 ? (size_t)tensor->experts : 1;
    return experts * (size_t)tensor->cols * (size_t)(tensor->rows > 0 ? tensor->rows : 1);
}

/* Evenly spread over -0.5 to 0.5. */
static void fill_values(const struct image_tensor *tensor, float *out) {
    uint32_t seed = 2166136261U;
    for (const char *c = tensor->name; *c != '\0'; c++)
        seed = (seed ^ (uint8_t)*c) * 16777619U;
    for (size_t i = 0; i < num_elements(tensor); i++) {
        seed = seed * 1664525U + 1013904223U;
        out[i] = (float)(seed >> 8) / (float)(1 << 24) - 0.5F;
        if (tensor->factor != 0)
            out[i] *= tensor->factor;
    }
}

/* As the file stores them. */
static void *stored_values(const struct image_tensor *tensor, size_t *out_bytes) {
    size_t count = num_elements(tensor), bytes = dtype_row_bytes(tensor->dtype, count);
    float *values = malloc(count * sizeof(float));
    void *stored = malloc(bytes);
    assert_true(values != NULL && stored != NULL);
    fill_values(tensor, values);
    dtype_from_f32(tensor->dtype, values, stored, count);
    free(values);
    *out_bytes = bytes;
    return stored;
}

float *model_image_values(const struct image_tensor *tensor) {
    size_t bytes, count = num_elements(tensor);
    void *stored = stored_values(tensor, &bytes);
    float *values = malloc(count * sizeof(float));
    assert_non_null(values);
    dtype_to_f32(tensor->dtype, stored, values, count);
    free(stored);
    return values;
}

static uint32_t gguf_type(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F32:
        return GGUF_TENSOR_F32;
    case DTYPE_F16:
        return 1;
    case DTYPE_BF16:
        return 30;
    case DTYPE_Q8_0:
        return GGUF_TENSOR_Q8_0;
    default:
        fail_msg("%s is not a type of these tests", dtype_name(dtype));
        return 0;
    }
}

void model_image_open(struct model_image *image) {
    struct gguf_writer *w = &image->writer, data = {0};
    struct error err = {0};
    gguf_put_header(w, 3, (uint64_t)image->num_tensors, 0);
    for (int i = 0; i < image->num_tensors; i++) {
        const struct image_tensor *tensor = &image->tensors[i];
        const uint64_t dims[3] = {(uint64_t)tensor->cols, (uint64_t)tensor->rows,
                                  (uint64_t)tensor->experts};
        uint32_t num_dims = tensor->experts > 0 ? 3 : tensor->rows > 0 ? 2 : 1;
        size_t bytes;
        void *stored = stored_values(tensor, &bytes);
        gguf_put_tensor(w, tensor->name, num_dims, dims, gguf_type(tensor->dtype), data.bytes);
        gguf_put(&data, stored, bytes);
        gguf_pad(&data, 32);
        free(stored);
    }
    gguf_pad(w, 32);
    gguf_put(w, data.data, data.bytes);
    gguf_finish(&data);
    if (tensor_file_open_memory(w->data, w->bytes, "m.gguf", &image->model.file, &err) != 0)
        fail_msg("%s", err.message);
}

void model_image_finish(struct model_image *image) {
    tensor_file_close(image->model.file);
    gguf_finish(&image->writer);
    image->model.file = NULL;
}

void model_image_scale(struct model_image *image, enum tensor_role role, int32_t layer,
                       const char *suffix, float factor) {
    const struct image_tensor *tensor = model_image_find(image, role, layer, suffix);
    assert_non_null(tensor);
    image->tensors[tensor - image->tensors].factor = factor;
}

const struct image_tensor *model_image_find(const struct model_image *image, enum tensor_role role,
                                            int32_t layer, const char *suffix) {
    char name[TENSOR_NAME_BYTES];
    tensor_names_write(&image->model.config, (struct tensor_place){role, layer}, suffix, name);
    for (int i = 0; i < image->num_tensors; i++)
        if (strcmp(image->tensors[i].name, name) == 0)
            return &image->tensors[i];
    return NULL;
}

float *model_image_expert(const struct model_image *image, enum tensor_role role, int32_t layer,
                          int32_t expert) {
    const struct model_config *config = &image->model.config;
    bool in_one = config->naming == TENSOR_NAMING_GGUF;
    const struct tensor_place place = {role, layer, in_one ? TENSOR_ALL_EXPERTS : expert};
    char name[TENSOR_NAME_BYTES];
    const struct image_tensor *tensor = image->tensors;
    tensor_names_write(config, place, "weight", name);
    while (strcmp(tensor->name, name) != 0)
        tensor++;
    float *values = model_image_values(tensor);
    size_t count = (size_t)tensor->rows * (size_t)tensor->cols;
    if (in_one)
        memmove(values, values + (size_t)expert * count, count * sizeof(float));
    return values;
}
