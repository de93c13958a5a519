/* Hyper-parameters of a model, and the limits of each.
 *
 * Two readers fill struct model_config, config_gguf.c and config_hf.c. What they share is below,
 * private to models/config: the switches that an architecture sets, and the checks of sizes against
 * each other. Nothing is trusted: a number outside its range is refused before it is used, and zero
 * never becomes a divisor. */
#ifndef QUIRE_MODELS_CONFIG_MODEL_CONFIG_H
#define QUIRE_MODELS_CONFIG_MODEL_CONFIG_H

#include "config/base/error.h"
#include "kernels/backend.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS 512
#define MODEL_MAX_ROPES 2

/* How the frequencies of rotary embeddings are stretched beyond the trained length. The formulas
 * are in rope.h. */
enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_DYNAMIC,
    ROPE_SCALING_YARN,
    ROPE_SCALING_LLAMA3,
    ROPE_SCALING_LONGROPE, /* one divisor per frequency, for short and for long contexts */
};

struct rope_config {
    float theta;
    enum rope_scaling scaling;
    float factor;                  /* linear, dynamic, yarn, llama3 */
    int32_t original_max_position; /* dynamic, yarn, llama3, longrope */
    float attention_factor;        /* yarn, longrope: multiplies cosines and sines; else 1 */
    float short_attention_factor;  /* longrope: with short_factors; 0: attention_factor */
    float beta_fast, beta_slow;    /* yarn */
    bool truncate;                 /* yarn: the ramp's ends are whole dimensions */
    float low_freq_factor, high_freq_factor;  /* llama3 */
    float short_factors[KV_MAX_HEAD_DIM / 2]; /* longrope: [rotary_dim / 2] */
    float long_factors[KV_MAX_HEAD_DIM / 2];
};

/* Settings that may differ from layer to layer. */
struct layer_config {
    int32_t window; /* a token sees itself and the window - 1 before it; 0: all */
    int32_t rope;   /* index into ropes; -1: the layer has no RoPE */
    bool is_sparse; /* its FFN is a mixture of experts */
};

/* The mixture of experts of sparse layers (kernels/experts.h). */
struct moe_config {
    int32_t num_experts; /* 0: the model has no sparse layers */
    int32_t num_chosen;  /* per token */
    int32_t expert_size; /* inner elements of an expert's FFN */
    int32_t shared_size; /* of the FFN that every token takes as well; 0: none */
    bool shared_gate;    /* its result is multiplied by a sigmoid of the token */
    enum route_scoring scoring;
    bool selection_bias; /* the file has a bias of the scores for the choice */
    bool is_transposed;  /* folders: all experts in one tensor [experts, inputs, outputs], in which
                            gate's and up's outputs alternate (gpt-oss) */
    bool renormalise;
    float scale; /* of the weights */
    int32_t num_groups, num_chosen_groups;
    enum route_group_score group_score;
    float jitter; /* ROUTE_SPARSEMIXER */
};

/* How the weights of a folder are stored, if a checkpoint is quantised (models/weights/
 * quantised_source.c). */
enum quantization_method {
    QUANTIZATION_NONE,
    QUANTIZATION_GPTQ,
    QUANTIZATION_AWQ,
    QUANTIZATION_FP8,
    QUANTIZATION_COMPRESSED, /* compressed-tensors */
    QUANTIZATION_MXFP4,      /* gpt-oss */
};

struct quantization_config {
    enum quantization_method method;
    const char *name;               /* of the method, by its maker; static */
    int32_t bits;                   /* of a weight */
    int32_t group_size;             /* columns that share a scale; 0: a whole row does */
    bool zeros_less_one;            /* GPTQ: stored zero points are 1 too low */
    bool is_in_order;               /* GPTQ: groups are of columns that follow each other */
    int32_t block_rows, block_cols; /* FP8: of the block that shares a scale; 0: no blocks */
};

/* Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024): per token the cache has a vector
 * of kv_rank elements, of which each head's keys and values are products, and rotary_dim rotated
 * elements of a key that all heads share (a latent layout of kv_layout.h). head_dim is then
 * kv_rank + rotary_dim, and num_kv_heads 1. */
struct latent_config {
    int32_t kv_rank;   /* 0: attention is not latent */
    int32_t q_rank;    /* queries are made of a vector of that many elements; 0: of hidden states */
    int32_t nope_dim;  /* elements of a head's query before the rotary_dim that are rotated */
    int32_t value_dim; /* of a head's value */
    float norm_eps;    /* of the norms of both vectors */
};

enum norm_kind { NORM_RMS, NORM_LAYER /* mean subtracted */ };
/* What is normalised of q and k before the rotation: nothing, each head, or all heads as one
 * vector. */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_FULL };
/* How the file names its tensors, see tensor_names.h. */
enum tensor_naming { TENSOR_NAMING_GGUF, TENSOR_NAMING_HF };

/* Hyper-parameters and switches of a LLaMA-style decoder. Every field was range-checked at load.
 * The forward pass they steer is in llama.c. */
struct model_config {
    char architecture[48]; /* the file's name for it: "llama", "Qwen2ForCausalLM" */
    char name[128];        /* for people; may be empty */
    int32_t vocab_size;
    int32_t hidden_size;
    int32_t intermediate_size;
    int32_t num_layers;
    int32_t num_heads;
    int32_t num_kv_heads;     /* divides num_heads */
    int32_t head_dim;         /* not always hidden_size / num_heads */
    int32_t max_position;     /* tokens the model was made for */
    int32_t num_extra_layers; /* in the file after the last, which are not read */
    /* Of a layer that predicts further tokens, as a model of its own (mtp.h): the last of
     * num_layers, and the only one that is read. */
    bool is_mtp;
    bool has_own_embedding, has_own_head; /* otherwise those of the model that it drafts for */
    bool tied_embeddings;                 /* no separate head */
    bool has_score; /* the file has the matrix of a classifier (classifier.h) */

    enum norm_kind norm;
    float norm_eps;
    bool pre_norm;      /* x + f(norm(x)) */
    bool post_norm;     /* x + norm(f(..)); with pre_norm both */
    bool norm_plus_one; /* the file stores norm weights minus 1 */
    bool norm_bias;     /* norms of hidden states have biases; with NORM_LAYER */
    bool head_bias;
    bool parallel_residual; /* x + attention(norm(x)) + ffn(norm(x)), one norm */
    enum qk_norm qk_norm;
    enum activation activation;
    bool overflows_f16;   /* activations exceed what half precision holds */
    bool attention_sinks; /* see attention_args */
    struct latent_config latent;
    struct moe_config moe;

    int32_t rotary_dim;    /* <= head_dim, even */
    bool rope_interleaved; /* see rope_store_args */
    bool permutes_heads;   /* GGUF files of the family have q's and k's rows in an order of their
                              own, so that pairs are neighbours */
    int32_t num_ropes;
    struct rope_config ropes[MODEL_MAX_ROPES];

    float attention_scale;    /* of q . k; 1 / sqrt(head_dim) unless the model says otherwise */
    float attention_soft_cap; /* 0: none */
    float final_soft_cap;     /* of the logits; 0: none */
    float embedding_scale;    /* 1: none */
    float residual_scale;     /* of the outputs of attention and FFN; 1: none */
    float logit_scale;        /* multiplies the logits, before the cap; 1: none */

    struct quantization_config quantization;
    enum tensor_naming naming;
    char tensor_prefix[48];                       /* of HF names: "model."; empty for GGUF */
    struct layer_config layers[MODEL_MAX_LAYERS]; /* [num_layers] */
};

/* Return the elements of a head's query, before it is taken to the space of what is cached, and of
 * its result of attention. */
static inline int32_t model_config_query_dim(const struct model_config *config) {
    const struct latent_config *latent = &config->latent;
    return latent->kv_rank > 0 ? latent->nope_dim + config->rotary_dim : config->head_dim;
}
static inline int32_t model_config_value_dim(const struct model_config *config) {
    return config->latent.kv_rank > 0 ? config->latent.value_dim : config->head_dim;
}

enum {
    MODEL_MAX_VOCAB = 1 << 22,
    MODEL_MAX_HIDDEN = 1 << 17,
    MODEL_MAX_INTERMEDIATE = 1 << 20,
    MODEL_MAX_HEADS = 1024,
    MODEL_MAX_POSITION = 1 << 24,
};

/* The ranges of settings that are not integers. */
#define MODEL_MIN_NORM_EPS 1e-12
#define MODEL_MAX_NORM_EPS 1.0
#define MODEL_MIN_THETA 1.0
#define MODEL_MAX_THETA 1e12
#define MODEL_MIN_ROPE_FACTOR 1.0
#define MODEL_MAX_ROPE_FACTOR 1e5
#define MODEL_MIN_MULTIPLIER 1e-6
#define MODEL_MAX_MULTIPLIER 1e6
#define MODEL_MIN_SOFT_CAP 1e-3
#define MODEL_MAX_SOFT_CAP 1e6

/* The file's names of the sizes that must fit together, for messages. */
struct model_config_names {
    const char *path, *hidden_size, *num_heads, *num_kv_heads, *head_dim;
};
/* The same of a mixture of experts. */
struct model_config_moe_names {
    const char *path, *num_chosen, *num_groups, *num_chosen_groups;
};

/* The file's names of the sizes of latent attention. */
struct model_config_latent_names {
    const char *path, *kv_rank, *query_dim, *rotary_dim, *value_dim;
};

struct architecture;

/* Sets every switch to the architecture's value, and everything else to neutral values. */
void model_config_init(struct model_config *config, const struct architecture *architecture);

/* Sets a head_dim of 0 to hidden_size / num_heads. Refuses sizes that do not divide evenly, and
 * heads that the backends' attention does not support. */
int model_config_check_heads(struct model_config *config, const struct model_config_names *names,
                             struct error *err);

/* Sets the switches of the architecture's mixture of experts; its counts and sizes are set. */
void model_config_init_moe(struct model_config *config, const struct architecture *architecture);

/* Refuses counts of experts and groups that do not fit together. */
int model_config_check_moe(const struct moe_config *moe, const struct model_config_moe_names *names,
                           struct error *err);

/* Sets head_dim and num_kv_heads of latent attention, whose own sizes and rotary_dim are set.
 * Refuses sizes that the backends' attention does not support. */
int model_config_set_latent(struct model_config *config,
                            const struct model_config_latent_names *names, struct error *err);

/* Scales attention by what yarn's factor makes of this multiplier of its logarithm, twice. */
void model_config_scale_latent(struct model_config *config, double multiplier);

/* Returns whether a layer has the window under the architecture's rule. */
bool model_config_is_windowed(const struct architecture *architecture, int32_t layer);

/* Chooses the rope of each layer, once the layers have their windows: ropes[1] for those with a
 * window under ARCHITECTURE_LOCAL_ROPE. `rotates` [num_layers] is false for layers without RoPE;
 * NULL: all rotate. */
void model_config_set_layer_ropes(struct model_config *config,
                                  const struct architecture *architecture, const bool *rotates);

/* Returns the number of tokens that the model supports, beyond what it states, because its rope is
 * stretched. */
int32_t model_config_stretch(const struct rope_config *rope, int32_t max_position,
                             int32_t original_max_position);

#endif
