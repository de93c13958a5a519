/* Private to models/: names of tensors by their role in the forward pass (llama.c).
 *
 * GGUF files have one set of names (gguf-py/gguf/constants.py of llama.cpp), Hugging Face folders
 * those of the modules of Transformers' modeling_*.py. Families differ in which tensors they have.
 * One name in folders has two meanings: post_attention_layernorm is the norm after attention if
 * there are norms after the branches, otherwise the one before the FFN.
 *
 * A role may have several spellings, of which a file uses one: a family's tensors are found without
 * knowing the family. Experts are tensors of their own, or one tensor has them all,
 * [experts, rows, cols]. */
#ifndef QUIRE_MODELS_CONFIG_TENSOR_NAMES_H
#define QUIRE_MODELS_CONFIG_TENSOR_NAMES_H

#include "config/base/text.h"
#include "models/config/model.h"

#include <stdbool.h>
#include <stdint.h>

#define TENSOR_NAME_BYTES 128

enum tensor_role {
    TENSOR_EMBEDDING,
    TENSOR_OUTPUT_NORM,
    TENSOR_HEAD,
    TENSOR_SCORE, /* [labels, hidden]; its name in folders has no prefix */
    /* The following exist once per layer. */
    TENSOR_ATTENTION_NORM,
    TENSOR_ATTENTION_POST_NORM,
    TENSOR_FFN_NORM,
    TENSOR_FFN_POST_NORM,
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_QKV, /* the three in one, in this order */
    TENSOR_Q_NORM,
    TENSOR_K_NORM,
    TENSOR_ATTENTION_OUT,
    /* Of latent attention. Queries are made by TENSOR_Q, or in two steps by Q_A and Q_B. */
    TENSOR_Q_A,       /* [q_rank, hidden] */
    TENSOR_Q_A_NORM,  /* [q_rank] */
    TENSOR_Q_B,       /* [heads * (nope_dim + rotary_dim), q_rank] */
    TENSOR_KV_A,      /* [kv_rank + rotary_dim, hidden] */
    TENSOR_KV_A_NORM, /* [kv_rank] */
    TENSOR_KV_B,      /* [heads * (nope_dim + value_dim), kv_rank]; or for all heads in one: */
    TENSOR_K_B,       /* [heads, kv_rank, nope_dim] */
    TENSOR_V_B,       /* [heads, value_dim, kv_rank] */
    /* Gate, up and the two in one are in this order for each kind of FFN (weights_plan.c). */
    TENSOR_GATE,
    TENSOR_UP,
    TENSOR_GATE_UP, /* the two in one, in this order; GGUF: the name of TENSOR_UP */
    TENSOR_DOWN,
    TENSOR_SINKS,
    /* Of sparse layers. */
    TENSOR_ROUTER,         /* [experts, hidden] */
    TENSOR_SELECTION_BIAS, /* [experts] */
    TENSOR_EXPERT_GATE,
    TENSOR_EXPERT_UP,
    TENSOR_EXPERT_GATE_UP,
    TENSOR_EXPERT_DOWN,
    TENSOR_SHARED_ROUTER, /* [1, hidden] */
    TENSOR_SHARED_GATE,   /* of the shared expert, or of all of them as one */
    TENSOR_SHARED_UP,
    TENSOR_SHARED_GATE_UP,
    TENSOR_SHARED_DOWN,
    /* Of a layer that predicts further tokens (mtp.h). */
    TENSOR_MTP_PROJECTION, /* [hidden, 2 hidden]: of an embedding, then a hidden state */
    TENSOR_MTP_EMBEDDING_NORM,
    TENSOR_MTP_HIDDEN_NORM,
    TENSOR_MTP_OUTPUT_NORM, /* without it, TENSOR_OUTPUT_NORM */
    TENSOR_MTP_EMBEDDING,   /* without these, or if they are copies, the model's */
    TENSOR_MTP_HEAD,
    NUM_TENSOR_ROLES
};

#define TENSOR_ALL_EXPERTS (-1)

/* Identifies one of a model's tensors. */
struct tensor_place {
    enum tensor_role role;
    int32_t layer;  /* 0 for tensors that exist once */
    int32_t expert; /* of TENSOR_EXPERT_...: which, or TENSOR_ALL_EXPERTS; of TENSOR_K_B and V_B,
                       whose experts are heads: TENSOR_ALL_EXPERTS; 0 for others */
};

/* Writes the first spelling. suffix: "weight", "bias" or another of a quantised checkpoint. */
void tensor_names_write(const struct model_config *config, struct tensor_place place,
                        const char *suffix, char out[static TENSOR_NAME_BYTES]);

/* Returns the tensor, by whichever spelling; NULL when the model's file has none. */
const struct tensor_info *tensor_names_find(const struct model *model, struct tensor_place place,
                                            const char *suffix);

/* Finds the role of a layer's module, "self_attn.q_proj" or "attn_q", that is not one of many
 * experts. Of two roles with one name, the first. */
bool tensor_names_find_role(enum tensor_naming naming, struct text module, enum tensor_role *out);

/* Returns whether a tensor may be in the file without being part of the model: one that is computed
 * (or was read) from the settings, the classifier's, which is read with them, a copy of the head
 * although it is tied to the embedding, one of the layers that are not read, or, in a folder whose
 * language model is one of several parts, one of the other parts. With is_mtp nothing but the last
 * layer is part of it, without copies of what the model has. */
bool tensor_names_is_ignorable(const struct model_config *config, struct text name);

#endif
