/* A loaded model: its file and hyper-parameters. Immutable after model_open, shared by all threads.
 * Weights on a device are apart (weights.h), one set per rank; so is the tokenizer (tokenizer.h),
 * which opens from the same file. */
#ifndef QUIRE_MODELS_MODEL_H
#define QUIRE_MODELS_MODEL_H

#include "config/error.h"
#include "models/tensor_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Hyper-parameters of a LLaMA-style decoder. Every field was range-checked at load. The switches
 * of other families (biases, norms, windows, soft-caps, rope scaling) join here. */
struct model_config {
    char architecture[32]; /* "llama" */
    char name[128];        /* general.name, for people; may be empty */
    int32_t vocab_size;
    int32_t hidden_size;
    int32_t intermediate_size;
    int32_t num_layers;
    int32_t num_heads;
    int32_t num_kv_heads; /* divides num_heads */
    int32_t head_dim;
    int32_t max_position; /* tokens the model was trained for */
    float rms_norm_eps;
    float rope_theta;
    int32_t rotary_dim;    /* <= head_dim, even */
    bool rope_interleaved; /* see rope_store_args */
    bool tied_embeddings;  /* no separate head */
};

struct model {
    struct tensor_file *file;
    struct model_config config;
};

int model_open(const char *path, struct model **out, struct error *err);
/* Accepts NULL. */
void model_close(struct model *model);

/* Element type most weight bytes are held in. */
enum dtype model_main_dtype(const struct model *model);
/* KV element type for --kv-cache-dtype auto: F32 for F32 models, BF16 for BF16, else F16. */
enum dtype model_default_kv_dtype(const struct model *model);
/* 16-bit element type to compute with on a card for --dtype auto: F16 for F16 models, else BF16. */
enum dtype model_default_activation_dtype(const struct model *model);

/* `quire inspect`: what the file is, its sizes, and the KV bytes per token. */
void model_print(const struct model *model, FILE *out);

#endif
