/* The share of a model that one rank computes. Tensor parallelism is that of Megatron-LM (Shoeybi
 * et al., 2019): each rank has some of the query heads with the KV heads that they read, some of
 * the FFN's inner elements, and some rows of the embedding and the head. Vectors as wide as the
 * hidden states, and every norm, are complete on each rank. Pipeline parallelism is that of GPipe
 * (Huang et al., 2019): the layers are also divided among stages. Each stage has consecutive
 * layers; the first also has the embedding, and the last the output norm and the head.
 *
 * Experts are cut like the FFN; if their blocks do not allow that, a rank has whole experts
 * (expert parallelism). Either way the ranks' sums are added, and the same bytes are sent.
 *
 * Shares need not be equal. Several ranks may have the same KV head, if there are more ranks than
 * KV heads. Immutable; any thread. */
#ifndef QUIRE_MODELS_WEIGHTS_MODEL_SHARD_H
#define QUIRE_MODELS_WEIGHTS_MODEL_SHARD_H

#include "models/config/model.h"

struct model_shard {
    int32_t rank, num_ranks;         /* of its stage */
    int32_t first_layer, num_layers; /* of the model's */
    bool has_embedding, has_head;
    int32_t first_head, num_heads; /* query heads */
    int32_t first_kv_head, num_kv_heads;
    int32_t first_intermediate, intermediate_size; /* 0: no layer is dense */
    int32_t first_expert, num_experts;
    int32_t first_expert_inner, expert_size; /* of each of its experts */
    int32_t first_shared_inner, shared_size;
    int32_t first_vocab, vocab_size; /* rows of the embedding and the head */
};

/* Splits the model between heads and, if matrices are quantised, between their blocks, as stored or
 * as held with `quantization` (weights.h). Of an MTP layer (config/mtp.h) there is only that one.
 * ERROR_CONFIG when it cannot be split for that many
 * ranks; the message names tensor-parallel-size and what is allowed. One rank always works.
 */
int model_shard_init(const struct model *model, enum dtype quantization, int32_t rank,
                     int32_t num_ranks, struct model_shard *out, struct error *err);

/* The same for rank number % num_ranks of stage number / num_ranks of a pipeline. Layers are
 * divided so that stages take equally long; the head counts as the number of layers that have as
 * many weights. ERROR_CONFIG also when there are more stages than layers, or more than
 * BACKEND_MAX_RANKS ranks in all; the message names pipeline-parallel-size and what is allowed. */
int model_shard_init_stage(const struct model *model, enum dtype quantization, int32_t number,
                           int32_t num_ranks, int32_t num_stages, struct model_shard *out,
                           struct error *err);

/* The matrices of a layer. In a sparse layer GATE_UP and DOWN are those of the shared expert. */
enum projection_role {
    PROJECTION_QKV, /* of latent attention: q */
    PROJECTION_ATTENTION_OUT,
    PROJECTION_GATE_UP,
    PROJECTION_DOWN,
    PROJECTION_ROUTER,
    PROJECTION_EXPERT_GATE_UP, /* of many experts, as is EXPERT_DOWN */
    PROJECTION_EXPERT_DOWN,
    PROJECTION_SHARED_ROUTER,
    /* Of latent attention. */
    PROJECTION_Q_A,
    PROJECTION_KV_A,
    PROJECTION_KEY_UP, /* of many heads, as is VALUE_UP */
    PROJECTION_VALUE_UP,
    NUM_PROJECTION_ROLES
};

/* How ranks divide a matrix, in Megatron-LM's terms: COLUMN_PARALLEL by its outputs, so that each
 * rank has some elements of the result, ROW_PARALLEL by its inputs, so that each has a partial sum
 * of every element. */
enum projection_cut { COLUMN_PARALLEL, ROW_PARALLEL, NOT_PARALLEL /* every rank has all of it */ };

static inline enum projection_cut model_shard_cut_of(enum projection_role role) {
    switch (role) {
    case PROJECTION_QKV:
    case PROJECTION_GATE_UP:
    case PROJECTION_EXPERT_GATE_UP:
    case PROJECTION_KEY_UP:
    case PROJECTION_VALUE_UP:
        return COLUMN_PARALLEL;
    case PROJECTION_ROUTER:
    case PROJECTION_SHARED_ROUTER:
    case PROJECTION_Q_A:
    case PROJECTION_KV_A:
        return NOT_PARALLEL;
    default:
        return ROW_PARALLEL;
    }
}

static inline bool model_shard_has_layer(const struct model_shard *shard, int32_t layer) {
    return layer >= shard->first_layer && layer < shard->first_layer + shard->num_layers;
}

/* Return the elements of a row of attention's result, and of q, k and v. */
static inline int32_t model_shard_q_width(const struct model_shard *shard,
                                          const struct model_config *config) {
    return shard->num_heads * model_config_value_dim(config);
}
static inline int32_t model_shard_qkv_width(const struct model_shard *shard,
                                            const struct model_config *config) {
    return (shard->num_heads + 2 * shard->num_kv_heads) * config->head_dim;
}

/* Return the bytes that a rank sends to the others, by the formulas of backend.h: on average per
 * token of a step, and in addition per token that the first rank of the last stage samples from the
 * model's distribution. (A row with a grammar or penalties takes 4 vocab_size more; one with
 * logprobs too on CPUs, and on GPUs less: backend.h.) */
int64_t model_shard_token_traffic(const struct model_shard *shard,
                                  const struct model_config *config);
int64_t model_shard_row_traffic(const struct model_shard *shard);
/* The same on GPUs, for activations of activation_bytes each, and the sums of small steps: those of
 * large ones are sent in slices, as all are with fast_sums (backend_config). */
int64_t model_shard_gpu_token_traffic(const struct model_shard *shard,
                                      const struct model_config *config, int64_t activation_bytes,
                                      bool fast_sums);
int64_t model_shard_gpu_row_traffic(const struct model_shard *shard);

#endif
