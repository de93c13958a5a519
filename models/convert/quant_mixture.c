#include "models/convert/quant_mixture.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* By llama.cpp's numbers (enum llama_ftype). */
enum file_type {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q8_0 = 7,
    Q5_0 = 8,
    Q5_1 = 9,
    Q2_K = 10,
    Q3_K_S = 11,
    Q3_K_M = 12,
    Q3_K_L = 13,
    Q4_K_S = 14,
    Q4_K_M = 15,
    Q5_K_S = 16,
    Q5_K_M = 17,
    Q6_K = 18,
    Q2_K_S = 21,
    BF16 = 32,
};

static const struct quant_mixture mixtures[] = {
    {"Q2_K", Q2_K, DTYPE_Q2_K, 3.2},     {"Q2_K_S", Q2_K_S, DTYPE_Q2_K, 2.8},
    {"Q3_K_S", Q3_K_S, DTYPE_Q3_K, 3.6}, {"Q3_K_M", Q3_K_M, DTYPE_Q3_K, 4.0},
    {"Q3_K_L", Q3_K_L, DTYPE_Q3_K, 4.3}, {"Q4_0", Q4_0, DTYPE_Q4_0, 4.6},
    {"Q4_1", Q4_1, DTYPE_Q4_1, 5.1},     {"Q4_K_S", Q4_K_S, DTYPE_Q4_K, 4.7},
    {"Q4_K_M", Q4_K_M, DTYPE_Q4_K, 4.9}, {"Q5_0", Q5_0, DTYPE_Q5_0, 5.6},
    {"Q5_1", Q5_1, DTYPE_Q5_1, 6.0},     {"Q5_K_S", Q5_K_S, DTYPE_Q5_K, 5.6},
    {"Q5_K_M", Q5_K_M, DTYPE_Q5_K, 5.7}, {"Q6_K", Q6_K, DTYPE_Q6_K, 6.6},
    {"Q8_0", Q8_0, DTYPE_Q8_0, 8.5},     {"F16", F16, DTYPE_F16, 16.0},
    {"BF16", BF16, DTYPE_BF16, 16.0},    {"F32", F32, DTYPE_F32, 32.0},
};

enum { NUM_MIXTURES = sizeof(mixtures) / sizeof(mixtures[0]) };

const struct quant_mixture *quant_mixture_list(int *out_count) {
    *out_count = NUM_MIXTURES;
    return mixtures;
}

const struct quant_mixture *quant_mixture_find(const char *name) {
    static const char *const short_names[][2] = {
        {"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};
    for (size_t i = 0; i < sizeof(short_names) / sizeof(short_names[0]); i++)
        if (strcasecmp(name, short_names[i][0]) == 0)
            name = short_names[i][1];
    for (int i = 0; i < NUM_MIXTURES; i++)
        if (strcasecmp(name, mixtures[i].name) == 0)
            return &mixtures[i];
    return NULL;
}

enum dtype quant_mixture_find_dtype(const char *name) {
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        if (strcasecmp(name, dtype_name((enum dtype)dtype)) == 0 &&
            (dtype_can_quantise((enum dtype)dtype) || !dtype_is_quantised((enum dtype)dtype)))
            return (enum dtype)dtype;
    return DTYPE_NONE;
}

/* --- Names --- */

static bool has(const char *name, const char *part) {
    return strstr(name, part) != NULL;
}

static bool is_embedding(const char *name) {
    return strcmp(name, "token_embd.weight") == 0;
}

static bool is_output(const char *name) {
    return strcmp(name, "output.weight") == 0;
}

bool quant_mixture_is_attention_v(const char *name) {
    return has(name, "attn_v.weight") || has(name, "attn_qkv.weight") ||
           has(name, "attn_kv_b.weight");
}

/* Small matrices that cost little, or whose errors cost much. */
bool quant_mixture_applies(const char *name, const struct tensor_info *tensor) {
    static const char *const kept[] = {
        "_norm.weight",
        "ffn_gate_inp.weight",
        "cls.output.weight",
        "ssm_conv1d",
        "shortconv.conv.weight",
        "per_layer_model_proj",
        "altup",
        "laurel",
        "attn_rel_b.weight",
        "position_embd.weight",
        "token_types.weight",
        "indexer.k_proj.weight",
        "indexer.q_proj.weight",
        "time_mix_first.weight",
        "time_mix_w",
        "time_mix_a",
        "time_mix_v",
        "time_mix_g",
        "time_mix_decay_w",
        "time_mix_lerp_fused.weight",
    };
    int num_dims = tensor->num_dims;
    while (num_dims > 1 && tensor->shape[tensor->num_dims - num_dims] == 1)
        num_dims--;
    if (num_dims < 2 || !text_ends_with((struct text){name, strlen(name)}, "weight"))
        return false;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (has(name, kept[i]))
            return false;
    return true;
}

/* --- Rules --- */

/* The first and the last eighth of the layers, and every third between them. */
static bool gets_more_bits(int32_t layer, int32_t num_layers) {
    return layer < num_layers / 8 || layer >= 7 * num_layers / 8 ||
           (layer - num_layers / 8) % 3 == 2;
}

static enum dtype output_dtype(const struct mixture_state *s, const struct tensor_info *tensor) {
    enum dtype dtype = s->options->mixture->dtype;
    int64_t cols = tensor->shape[tensor->num_dims - 1];
    if (s->options->output_dtype != DTYPE_NONE)
        return s->options->output_dtype;
    if (cols % dtype_block_elements(dtype) != 0)
        return DTYPE_Q8_0;
    return dtype != DTYPE_Q8_0 ? DTYPE_Q6_K : dtype;
}

static enum dtype attention_v_dtype(const struct mixture_state *s, enum file_type type,
                                    enum dtype dtype) {
    const struct mixture_model *model = &s->model;
    bool few_heads = model->num_kv_heads > 0 && model->num_heads / model->num_kv_heads >= 4;
    if (type == Q2_K)
        dtype = few_heads ? DTYPE_Q4_K : DTYPE_Q3_K;
    else if (type == Q2_K_S && few_heads)
        dtype = DTYPE_Q4_K;
    else if (type == Q3_K_M)
        dtype = s->attention_v < 2 ? DTYPE_Q5_K : DTYPE_Q4_K;
    else if (type == Q3_K_L)
        dtype = DTYPE_Q5_K;
    else if ((type == Q4_K_M || type == Q5_K_M) &&
             gets_more_bits(s->attention_v, model->num_attention_v))
        dtype = DTYPE_Q6_K;
    else if (type == Q4_K_S && s->attention_v < 4)
        dtype = DTYPE_Q5_K;
    bool is_70b =
        model->is_llama && model->num_layers == 80 && model->num_heads != model->num_kv_heads;
    if (is_70b && (dtype == DTYPE_Q3_K || dtype == DTYPE_Q4_K))
        dtype = DTYPE_Q5_K;
    return model->num_experts == 8 ? DTYPE_Q8_0 : dtype;
}

static enum dtype ffn_down_dtype(const struct mixture_state *s, enum file_type type,
                                 enum dtype dtype, const char *name) {
    int32_t layer = s->ffn_down, num_layers = s->model.num_layers;
    if (s->model.num_experts > 1 && sscanf(name, "blk.%d.", &layer) != 1)
        return dtype;
    bool early = layer < num_layers / 8, more = gets_more_bits(layer, num_layers);
    switch (type) {
    case Q2_K:
        return DTYPE_Q3_K;
    case Q2_K_S:
        return early ? DTYPE_Q4_K : dtype;
    case Q3_K_M:
        return layer < num_layers / 16 ? DTYPE_Q5_K : DTYPE_Q4_K;
    case Q3_K_L:
        return DTYPE_Q5_K;
    case Q4_K_S:
        return early ? DTYPE_Q5_K : dtype;
    case Q4_K_M:
    case Q5_K_M:
        return more ? DTYPE_Q6_K : dtype;
    case Q4_0:
        return s->model.has_imatrix && early ? DTYPE_Q4_1 : dtype;
    case Q5_0:
        return s->model.has_imatrix && early ? DTYPE_Q5_1 : dtype;
    default:
        return dtype;
    }
}

static enum dtype attention_output_dtype(const struct mixture_state *s, enum file_type type,
                                         enum dtype dtype) {
    if (s->model.num_experts == 8) {
        bool raised =
            type == Q2_K || type == Q3_K_S || type == Q3_K_M || type == Q4_K_S || type == Q4_K_M;
        return raised ? DTYPE_Q5_K : dtype;
    }
    switch (type) {
    case Q2_K:
        return DTYPE_Q3_K;
    case Q3_K_M:
        return DTYPE_Q4_K;
    case Q3_K_L:
        return DTYPE_Q5_K;
    default:
        return dtype;
    }
}

static enum dtype mixed_dtype(struct mixture_state *s, const char *name,
                              const struct tensor_info *tensor) {
    enum dtype dtype = s->options->mixture->dtype;
    enum file_type type = (enum file_type)s->options->mixture->file_type;
    if (is_output(name) || (is_embedding(name) && !s->model.has_output))
        return output_dtype(s, tensor);
    if (quant_mixture_is_attention_v(name)) {
        dtype = attention_v_dtype(s, type, dtype);
        s->attention_v++;
    } else if (has(name, "attn_k.weight") && s->model.num_experts == 8) {
        dtype = DTYPE_Q8_0;
    } else if (has(name, "attn_output.weight")) {
        dtype = attention_output_dtype(s, type, dtype);
    } else if (has(name, "ffn_down")) {
        dtype = ffn_down_dtype(s, type, dtype, name);
        s->ffn_down++;
    }
    return dtype;
}

enum dtype quant_mixture_choose(struct mixture_state *s, const char *name,
                                const struct tensor_info *tensor) {
    const struct mixture_options *options = s->options;
    enum dtype dtype = options->mixture->dtype;
    if (is_embedding(name) && options->embedding_dtype != DTYPE_NONE)
        return options->embedding_dtype;
    if (is_output(name) && options->leave_output)
        return tensor->dtype;
    if (is_output(name) && options->output_dtype != DTYPE_NONE)
        return options->output_dtype;
    if (!dtype_is_quantised(dtype) || options->pure)
        return dtype;
    return mixed_dtype(s, name, tensor);
}

enum dtype quant_mixture_fit(enum dtype dtype, int64_t cols) {
    if (cols % dtype_block_elements(dtype) == 0)
        return dtype;
    switch (dtype) {
    case DTYPE_Q2_K:
    case DTYPE_Q3_K:
        dtype = DTYPE_Q4_0;
        break;
    case DTYPE_Q4_K:
        dtype = DTYPE_Q5_0;
        break;
    case DTYPE_Q5_K:
        dtype = DTYPE_Q5_1;
        break;
    case DTYPE_Q6_K:
        dtype = DTYPE_Q8_0;
        break;
    default:
        break;
    }
    return cols % dtype_block_elements(dtype) == 0 ? dtype : DTYPE_F16;
}
