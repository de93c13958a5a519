/* A loaded model: its file and hyper-parameters. Immutable after model_open, shared by all threads.
 * Weights on a device are separate (weights.h), one set per rank; so is the tokenizer
 * (tokenizer.h), which is opened from the same file. */
#ifndef QUIRE_MODELS_CONFIG_MODEL_H
#define QUIRE_MODELS_CONFIG_MODEL_H

#include "config/embedding_sizes.h"
#include "config/base/error.h"
#include "kernels/dtype.h"
#include "kernels/sampling.h"
#include "models/config/classifier.h"
#include "models/config/model_config.h"
#include "models/files/tensor_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MODEL_MAX_EOS_TOKENS 16

/* How the model's files say that its hidden states become an embedding. */
enum model_pooling {
    MODEL_POOLING_UNSTATED,
    MODEL_POOLING_LAST,
    MODEL_POOLING_MEAN,
};

struct model {
    struct tensor_file *file;
    struct model_config config;
    bool generates; /* it has a head for words; without one the embedding stands in its place */
    struct classifier classifier;
    enum model_pooling pooling;
    bool has_raw_embeddings; /* its files say that their length is not made 1 */
    bool chat_is_of_pairs;   /* its chat template also writes a query and a document (LogitScore) */
    char *score_template;    /* text of a pair of texts with {query} and {document}; NULL: none */
    /* Recommended by the model authors; absent if they recommend nothing (sampling_fields.h). */
    struct sampling_settings generation;
    int32_t eos_tokens[MODEL_MAX_EOS_TOKENS]; /* stated outside the tokenizer */
    int num_eos_tokens;
    struct embedding_sizes
        embedding_sizes; /* as stated by a config.json; GGUF files do not state it */
    char *chat_template; /* Jinja source, NUL-terminated; NULL: none */
    /* A second one for conversations with tools, if the model has two ("tool_use"); NULL: none. */
    char *tool_chat_template;
    char *folder; /* of a Hugging Face folder; NULL: one GGUF */
};

/* Opens a model. path: a GGUF file (the first of a split one), or a Hugging Face folder. Settings
 * are checked, no weights are loaded. Fails with ERROR_MODEL for a refused file, ERROR_IO or
 * ERROR_MEMORY. The caller closes the model. */
int model_open(const char *path, struct model **out, struct error *err);
/* Accepts NULL. */
void model_close(struct model *model);

/* Returns the element type of most weight bytes. */
enum dtype model_main_dtype(const struct model *model);
/* Returns the name of the model's quantisation as in its file's name: "Q4_K_M", by the GGUF's
 * general.file_type; otherwise that of its main element type: "bf16". Static storage. */
const char *model_quantisation(const struct model *model);
/* Returns how many elements all its tensors have. */
uint64_t model_num_parameters(const struct model *model);
/* Returns the KV element type for --kv-cache-dtype auto: F32 for F32 models, BF16 for BF16,
 * otherwise F16. */
enum kv_type model_default_kv_type(const struct model *model);
/* Returns the 16-bit element type to compute with on a GPU for --dtype auto: F16 for F16 models
 * unless they overflow it, otherwise BF16. */
enum dtype model_default_activation_dtype(const struct model *model);

/* Returns the type in which a matrix of that stored type, with rows of `cols` elements, is held:
 * `quantization` if it is given, the matrix is stored as float and the rows are whole blocks;
 * otherwise the stored type. */
enum dtype model_held_dtype(enum dtype quantization, enum dtype stored, int64_t cols);

/* Returns how many tokens back any token sees, itself included: the largest window when every layer
 * has one; 0: some layer sees all. */
int32_t model_window(const struct model_config *config);

/* Prints what `quire inspect` shows, one `label: value` a line: the file and its format, sizes,
 * switches and scalings of the model, element types of its tensors, KV cache bytes per token, and
 * what it recommends for sampling. */
void model_print(const struct model *model, FILE *out);

#endif
