/* A loaded model: its file and hyper-parameters. Immutable after model_open, shared by all threads.
 * Weights on a device are apart (weights.h), one set per rank; so is the tokenizer (tokenizer.h),
 * which opens from the same file. */
#ifndef QUIRE_MODELS_MODEL_H
#define QUIRE_MODELS_MODEL_H

#include "config/error.h"
#include "kernels/backend.h"
#include "models/files/tensor_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MODEL_MAX_LAYERS 512
#define MODEL_MAX_ROPES 2
#define MODEL_MAX_EOS_TOKENS 16

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
    float beta_fast, beta_slow;    /* yarn */
    bool truncate;                 /* yarn: the ramp's ends are whole dimensions */
    float low_freq_factor, high_freq_factor;  /* llama3 */
    float short_factors[KV_MAX_HEAD_DIM / 2]; /* longrope: [rotary_dim / 2] */
    float long_factors[KV_MAX_HEAD_DIM / 2];
};

/* What may differ from layer to layer. A mixture of experts would join here: which kind of FFN. */
struct layer_config {
    int32_t window; /* a token sees itself and the window - 1 before it; 0: all */
    int32_t rope;   /* index into ropes; -1: nothing rotates in this layer (NoPE) */
};

enum norm_kind { NORM_RMS, NORM_LAYER /* mean subtracted, no bias */ };
/* Of q and k, before they rotate: none, of each head, or of all heads as one vector. */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_FULL };
/* How the file names its tensors, see tensor_names.h. */
enum tensor_naming { TENSOR_NAMING_GGUF, TENSOR_NAMING_HF };

/* Hyper-parameters and switches of a LLaMA-style decoder. Every field was range-checked at load.
 * The forward pass they steer is in llama.c. */
struct model_config {
    char architecture[48]; /* as the file names it: "llama", "Qwen2ForCausalLM" */
    char name[128];        /* for people; may be empty */
    int32_t vocab_size;
    int32_t hidden_size;
    int32_t intermediate_size;
    int32_t num_layers;
    int32_t num_heads;
    int32_t num_kv_heads; /* divides num_heads */
    int32_t head_dim;     /* not always hidden_size / num_heads */
    int32_t max_position; /* tokens the model was made for */
    bool tied_embeddings; /* no separate head */

    enum norm_kind norm;
    float norm_eps;
    bool pre_norm;          /* x + f(norm(x)) */
    bool post_norm;         /* x + norm(f(..)); with pre_norm both */
    bool norm_plus_one;     /* the file stores norm weights less 1 */
    bool parallel_residual; /* x + attention(norm(x)) + ffn(norm(x)), one norm */
    enum qk_norm qk_norm;
    enum activation activation;
    bool overflows_f16; /* activations exceed what half precision holds */

    int32_t rotary_dim;    /* <= head_dim, even */
    bool rope_interleaved; /* see rope_store_args */
    int32_t num_ropes;
    struct rope_config ropes[MODEL_MAX_ROPES];

    float attention_scale;    /* of q . k; 1 / sqrt(head_dim) unless the model says otherwise */
    float attention_soft_cap; /* 0: none */
    float final_soft_cap;     /* of the logits; 0: none */
    float embedding_scale;    /* 1: none */
    float residual_scale;     /* of what attention and FFN add; 1: none */
    float logit_scale;        /* multiplies the logits, before the cap; 1: none */

    enum tensor_naming naming;
    char tensor_prefix[48];                       /* of HF names: "model."; empty for GGUF */
    struct layer_config layers[MODEL_MAX_LAYERS]; /* [num_layers] */
};

/* What the model's makers recommend for sampling; a field is NAN, or -1, where they say nothing. */
struct generation_defaults {
    float temperature;
    float top_p;
    float min_p;
    float repetition_penalty;
    int32_t top_k;
};

struct model {
    struct tensor_file *file;
    struct model_config config;
    struct generation_defaults generation;
    int32_t eos_tokens[MODEL_MAX_EOS_TOKENS]; /* stated apart from the tokenizer */
    int num_eos_tokens;
    char *chat_template; /* Jinja source, NUL-terminated; NULL: none */
    /* Another for conversations with tools, where the makers have two ("tool_use"); NULL: none. */
    char *tool_chat_template;
    char *folder; /* of a Hugging Face folder; NULL: one GGUF */
};

/* path: a GGUF file (the first of a split one), or a Hugging Face folder. */
int model_open(const char *path, struct model **out, struct error *err);
/* Accepts NULL. */
void model_close(struct model *model);

/* Element type most weight bytes are held in. */
enum dtype model_main_dtype(const struct model *model);
/* KV element type for --kv-cache-dtype auto: F32 for F32 models, BF16 for BF16, else F16. */
enum dtype model_default_kv_dtype(const struct model *model);
/* 16-bit element type to compute with on a card for --dtype auto: F16 for F16 models unless they
 * overflow it, else BF16. */
enum dtype model_default_activation_dtype(const struct model *model);

/* How far back any token looks, itself included: the largest window when every layer has one; 0:
 * some layer sees all. */
int32_t model_window(const struct model_config *config);

/* `quire inspect`: what the file is, its sizes, and the KV bytes per token. */
void model_print(const struct model *model, FILE *out);

#endif
