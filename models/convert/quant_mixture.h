/* Private to models/convert: which type each tensor gets. The rules are llama.cpp's (its
 * llama-quant.cpp), so that a file has the size and the quality that its name promises: Q4_K_M is
 * Q4_K with some more bits for the tensors that need them. (Those for Falcon are left out.) */
#ifndef QUIRE_MODELS_CONVERT_QUANT_MIXTURE_H
#define QUIRE_MODELS_CONVERT_QUANT_MIXTURE_H

#include "models/files/tensor_file.h"

#include <stdbool.h>
#include <stdint.h>

/* A type of file. */
struct quant_mixture {
    const char *name;
    uint32_t file_type; /* llama.cpp's number, for general.file_type */
    enum dtype dtype;   /* of most tensors */
    double bits;        /* of a weight, about */
};

/* Returns the mixture of a name, in either case; Q4_K and the like are the M of several. NULL: none
 * has it. */
const struct quant_mixture *quant_mixture_find(const char *name);
/* Returns the types of a help text, of *out_count. */
const struct quant_mixture *quant_mixture_list(int *out_count);

/* A tensor's type by name, for options: those that tensors can be converted to. DTYPE_NONE: no such
 * type. */
enum dtype quant_mixture_find_dtype(const char *name);

/* What the rules depend on. */
struct mixture_model {
    int32_t num_layers, num_heads, num_kv_heads, num_experts; /* of the first layer; 0: unknown */
    bool is_llama;                                            /* the architecture */
    bool has_output;                                          /* a head that is not the embedding */
    bool has_imatrix;
    int32_t num_attention_v; /* tensors that quant_mixture_is_attention_v */
};

struct mixture_options {
    const struct quant_mixture *mixture;
    enum dtype output_dtype, embedding_dtype; /* DTYPE_NONE: by the rules */
    bool pure;                                /* all tensors get the mixture's dtype */
    bool leave_output;                        /* the head keeps its type */
};

/* Counts what it has seen: tensors are asked for in the order of their layers. */
struct mixture_state {
    struct mixture_model model;
    const struct mixture_options *options;
    int32_t attention_v, ffn_down;
};

/* Returns whether a tensor is one that is quantised at all: norms, biases and routers are not. */
bool quant_mixture_applies(const char *name, const struct tensor_info *tensor);
bool quant_mixture_is_attention_v(const char *name);

/* Returns the type of a tensor that quant_mixture_applies to. */
enum dtype quant_mixture_choose(struct mixture_state *state, const char *name,
                                const struct tensor_info *tensor);
/* Returns dtype, or the next one whose blocks fit into rows of `cols` elements. */
enum dtype quant_mixture_fit(enum dtype dtype, int64_t cols);

#endif
