/* A loaded model: its file and hyper-parameters. Immutable after model_open, shared by all threads.
 * Weights on a device are apart (weights.h), one set per rank; so is the tokenizer (tokenizer.h),
 * which opens from the same file. */
#ifndef QUIRE_MODELS_MODEL_H
#define QUIRE_MODELS_MODEL_H

#include "config/embedding_sizes.h"
#include "config/base/error.h"
#include "kernels/dtype.h"
#include "kernels/sampling.h"
#include "models/config/model_config.h"
#include "models/files/tensor_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MODEL_MAX_EOS_TOKENS 16

struct model {
    struct tensor_file *file;
    struct model_config config;
    /* Recommended by the model authors; absent where they say nothing (sampling_fields.h). */
    struct sampling_settings generation;
    int32_t eos_tokens[MODEL_MAX_EOS_TOKENS]; /* stated apart from the tokenizer */
    int num_eos_tokens;
    struct embedding_sizes embedding_sizes; /* as a config.json says; GGUF files do not */
    char *chat_template;                    /* Jinja source, NUL-terminated; NULL: none */
    /* Another one for conversations with tools, where the model has two ("tool_use"); NULL:
     * none. */
    char *tool_chat_template;
    char *folder; /* of a Hugging Face folder; NULL: one GGUF */
};

/* Opens a model. path: a GGUF file (the first of a split one), or a Hugging Face folder. Settings
 * are checked, no weights are loaded. ERROR_MODEL for a file that is refused, ERROR_IO,
 * ERROR_MEMORY. The caller closes it. */
int model_open(const char *path, struct model **out, struct error *err);
/* Accepts NULL. */
void model_close(struct model *model);

/* Returns the element type that most weight bytes are held in. */
enum dtype model_main_dtype(const struct model *model);
/* Returns the KV element type for --kv-cache-dtype auto: F32 for F32 models, BF16 for BF16, else
 * F16. */
enum kv_type model_default_kv_type(const struct model *model);
/* Returns the 16-bit element type to compute with on a GPU for --dtype auto: F16 for F16 models
 * unless they overflow it, else BF16. */
enum dtype model_default_activation_dtype(const struct model *model);

/* Returns the type that a matrix stored so, with rows of `cols` elements, is held in:
 * `quantization` where it is given, the matrix is stored as float and the rows are whole blocks;
 * else as stored. */
enum dtype model_held_dtype(enum dtype quantization, enum dtype stored, int64_t cols);

/* Returns how many tokens back any token sees, itself included: the largest window when every layer
 * has one; 0: some layer sees all. */
int32_t model_window(const struct model_config *config);

/* Prints what `quire inspect` shows, one `label: value` a line: the file and its format, sizes,
 * switches and scalings of the model, element types of its tensors, KV cache bytes per token, and
 * what it recommends for sampling. */
void model_print(const struct model *model, FILE *out);

#endif
