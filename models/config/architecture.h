/* Private to models/: the architectures this server can run, one line of the table each. A family
 * shares a forward pass and defaults of settings; a GGUF file names it in general.architecture, a
 * Hugging Face folder in architectures[0] and model_type. Facts about folders are those of Hugging
 * Face Transformers 5 (configuration_*.py, modeling_*.py of the family), facts about GGUF files are
 * those of llama.cpp, whose converter writes them. */
#ifndef QUIRE_MODELS_CONFIG_ARCHITECTURE_H
#define QUIRE_MODELS_CONFIG_ARCHITECTURE_H

#include "config/base/text.h"
#include "models/config/model_config.h"

#define ARCHITECTURE_MAX_NAMES 3

/* Defaults of keys that a config.json may omit; 0: the key is required, or see the comment. */
struct architecture_defaults {
    int32_t vocab_size;
    int32_t hidden_size;
    int32_t intermediate_size;
    int32_t num_layers;
    int32_t num_heads;
    int32_t num_kv_heads; /* 0: as many as heads */
    int32_t head_dim;     /* 0: hidden_size / num_heads */
    int32_t max_position;
    int32_t original_max_position; /* of rope scalings; 0: max_position */
    int32_t window;                /* 0: none */
    float norm_eps;
    float theta;          /* GGUF files: always 10000 unless a key says so */
    float logit_scale;    /* cohere; 0: 1 */
    float partial_rotary; /* 0: 1 */
    bool tied_embeddings;
};

/* Which layers see only a window of the context, if the file does not list them. */
enum window_rule {
    WINDOW_NEVER,         /* the family has no windows; a folder's setting is ignored, as by
                             Transformers */
    WINDOW_ALL_LAYERS,    /* every layer, and a folder's list of layers is ignored */
    WINDOW_LISTED_LAYERS, /* every layer, or those a folder lists */
    WINDOW_PERIODIC,      /* every layer except each window_period-th */
    WINDOW_FROM_LAYER,    /* from max_window_layers on, if use_sliding_window */
    WINDOW_WITHOUT_ROPE,  /* the layers without RoPE, if use_sliding_window */
    WINDOW_REFUSED,       /* use_sliding_window is refused */
};

/* Settings that only some families have, by the keys that carry them. */
enum architecture_flags {
    ARCHITECTURE_PLUS_ONE = 1 << 0, /* folders store norm weights minus 1 (GGUF: unchanged) */
    ARCHITECTURE_SCALED_EMBEDDING = 1 << 1, /* by sqrt(hidden_size) */
    ARCHITECTURE_QUERY_SCALAR = 1 << 2,     /* attention scale 1 / sqrt(query_pre_attn_scalar) */
    ARCHITECTURE_SOFT_CAPS = 1 << 3,
    ARCHITECTURE_MULTIPLIERS = 1 << 4,    /* embedding, residual, attention; logits are divided */
    ARCHITECTURE_LOGIT_SCALE = 1 << 5,    /* logits are multiplied */
    ARCHITECTURE_LOCAL_ROPE = 1 << 6,     /* layers with a window: unscaled, of local_theta */
    ARCHITECTURE_PARTIAL_ROTARY = 1 << 7, /* partial_rotary_factor is used */
    ARCHITECTURE_LONGROPE_ONLY = 1 << 8,  /* "su" and "yarn" mean longrope, as does a file of
                                             rope_factors */
    ARCHITECTURE_HIDDEN_ACTIVATION = 1 << 9,       /* the key hidden_activation, not hidden_act */
    ARCHITECTURE_GELU_IS_TANH = 1 << 10,           /* hidden_act "gelu" stands for the tanh form */
    ARCHITECTURE_ROPE_NEEDS_WINDOW = 1 << 11,      /* layers without a window do not rotate */
    ARCHITECTURE_WHOLE_ATTENTION_FACTOR = 1 << 12, /* a GGUF file's attn_factor includes yarn's */
    ARCHITECTURE_OVERFLOWS_F16 = 1 << 13,          /* activations exceed 65504 */
    ARCHITECTURE_EXPERTS = 1 << 14,                /* the FFN is a mixture of experts */
    ARCHITECTURE_BIASED_NORMS = 1 << 15, /* of NORM_LAYER; their epsilon is called that of an
                                            RMSNorm */
    ARCHITECTURE_HEAD_BIAS = 1 << 16,    /* if lm_head_bias says so, or a GGUF file has one */
    ARCHITECTURE_MSCALES = 1 << 17,      /* longrope's attention factor is stated for each list */
    ARCHITECTURE_SINKS = 1 << 18,
    ARCHITECTURE_EXACT_YARN = 1 << 19,       /* the ends of the ramp are not rounded; a GGUF file
                                                does not say so */
    ARCHITECTURE_OPTIONAL_QK_NORM = 1 << 20, /* if use_qk_norm says so, or a GGUF file has them */
    ARCHITECTURE_EXTRA_LAYERS = 1 << 21,     /* that predict further tokens, after the last */
    ARCHITECTURE_LATENT = 1 << 22,           /* attention is latent; a GGUF file's experts are
                                                chosen by softmax, or by sigmoid if it says so */
};

/* How the FFN that every token takes besides its experts is stated. */
enum shared_expert {
    SHARED_NONE,
    SHARED_GATED,   /* by its size; a sigmoid of the token multiplies it */
    SHARED_SIZED,   /* by its size, 0: none */
    SHARED_COUNTED, /* as that many experts */
};

/* Which layers are mixtures of experts. */
enum sparse_rule {
    SPARSE_ALL_LAYERS,
    SPARSE_STEP,        /* each decoder_sparse_step-th, except mlp_only_layers */
    SPARSE_AFTER_DENSE, /* all after the first first_k_dense_replace */
};

/* The mixture of experts of ARCHITECTURE_EXPERTS. */
struct architecture_experts {
    enum route_scoring scoring;
    enum shared_expert shared;
    enum sparse_rule sparse_rule;
    bool own_size; /* an expert's inner size is stated apart from that of dense layers */
    bool gguf_renormalise, hf_renormalise; /* of files that do not say */
    bool says_renormalise;                 /* norm_topk_prob is used */
    bool is_grouped;                       /* groups and a scale of the weights */
    bool is_biased;                        /* a bias for the choice */
    bool is_transposed;                    /* see moe_config */
    float jitter;                          /* ROUTE_SPARSEMIXER */
    /* Defaults of a folder. num_experts 0: without the key the model is dense. */
    int32_t num_experts, num_chosen, expert_size, shared_size;
    int32_t num_dense; /* SPARSE_AFTER_DENSE */
};

struct architecture {
    const char *gguf_names[ARCHITECTURE_MAX_NAMES]; /* NULL: no more */
    const char *classes[ARCHITECTURE_MAX_NAMES];
    const char *model_types[ARCHITECTURE_MAX_NAMES];

    enum norm_kind norm;
    bool pre_norm, post_norm, parallel_residual;
    enum qk_norm qk_norm;
    enum activation activation; /* of GGUF files, and of folders that say nothing */
    bool gguf_interleaved;      /* pairs that rotate are neighbours */
    bool hf_interleaved;
    unsigned flags; /* enum architecture_flags */

    enum window_rule window_rule;
    int32_t window_period;
    float local_theta;     /* LOCAL_ROPE; 0: the others' */
    int32_t nope_interval; /* every nope_interval-th layer has no RoPE; 0: all layers use RoPE */

    /* Soft caps if the file does not state them; 0: none. */
    float attention_soft_cap, final_soft_cap;
    /* The model size with this many layers scales attention by 1 / sqrt(hidden_size / num_heads),
     * which a GGUF file does not state; 0: no such size. */
    int32_t gguf_query_scalar_layers;
    int32_t gguf_window_4k; /* ALL_LAYERS: of 4k models' files that state none; 0: none */

    struct architecture_experts experts;
    struct architecture_defaults defaults;
};

/* What a class of a Hugging Face folder makes of hidden states, by the end of its name. */
enum architecture_head {
    ARCHITECTURE_WORDS,    /* logits of the vocabulary */
    ARCHITECTURE_SCORES,   /* one number for each label: ...ForSequenceClassification */
    ARCHITECTURE_HEADLESS, /* nothing: ...Model */
};

/* Writes the length of the name without that end, unless out_length is NULL. class_name may be
 * NULL: words. */
enum architecture_head architecture_head_of(const char *class_name, size_t *out_length);

/* Returns NULL when unknown; *err then names what was found and lists the known ones. `path` begins
 * the message. */
const struct architecture *architecture_find_gguf(struct text name, const char *path,
                                                  struct error *err);
/* Finds by class, with which the model_type must agree, or by model_type; either may be NULL. */
const struct architecture *architecture_find_hf(const char *class_name, const char *model_type,
                                                const char *path, struct error *err);

#endif
