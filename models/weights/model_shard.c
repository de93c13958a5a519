#include "models/weights/model_shard.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/backend.h"
#include "models/weights/tensor_source.h"

#include <stdio.h>

/* Columns of a product's panel on the CPU: shares are whole panels where that leaves enough of
 * them. */
#define PREFERRED_STEP 16

struct share {
    int32_t first, count;
};

/* Deals `total` out in steps of `step`, the last of which may be shorter. */
static struct share share_of(int32_t total, int32_t step, int32_t rank, int32_t num_ranks) {
    int64_t num_steps = ((int64_t)total + step - 1) / step;
    int64_t first = num_steps * rank / num_ranks * step;
    int64_t end = num_steps * (rank + 1) / num_ranks * step;
    end = end < total ? end : total;
    return (struct share){(int32_t)first, (int32_t)(end - first)};
}

/* Halves the preferred step until every rank has one; it stays a multiple of `block`, or that. */
static int32_t choose_step(int32_t total, int32_t block, int32_t num_ranks) {
    int32_t step = max_int32(block, PREFERRED_STEP);
    while (step > block && (total + step - 1) / step < num_ranks)
        step /= 2;
    return step;
}

/* Elements of the largest block that any layer's matrix of this role is held in. */
static int32_t largest_block(const struct model *model, enum tensor_role role,
                             enum dtype quantization) {
    int32_t largest = 1;
    for (int32_t layer = 0; layer < model->config.num_layers; layer++) {
        struct tensor_source source;
        struct tensor_place place = {role, layer, TENSOR_ALL_EXPERTS};
        bool found = tensor_source_find(model, place, &source);
        place.expert = 0;
        if ((!found && !tensor_source_find(model, place, &source)) || source.dtype == DTYPE_NONE)
            continue; /* loading will say so */
        enum dtype held = model_held_dtype(quantization, source.dtype, source.cols);
        largest = max_int32(largest, dtype_block_elements(held));
    }
    return largest;
}

/* With more ranks than KV heads, ranks that follow each other have the same KV head and share out
 * its query heads. Otherwise each has whole KV heads, `step` at a time. */
static void cut_heads(const struct model_config *config, int32_t step, struct model_shard *shard) {
    int32_t num_kv = config->num_kv_heads, group = config->num_heads / num_kv;
    int32_t rank = shard->rank, num_ranks = shard->num_ranks;
    if (num_ranks <= num_kv) {
        struct share kv = share_of(num_kv, step, rank, num_ranks);
        shard->first_kv_head = kv.first;
        shard->num_kv_heads = kv.count;
        shard->first_head = kv.first * group;
        shard->num_heads = kv.count * group;
        return;
    }
    int32_t head = rank * num_kv / num_ranks;
    int32_t first = (head * num_ranks + num_kv - 1) / num_kv; /* rank with this KV head */
    int32_t end = ((head + 1) * num_ranks + num_kv - 1) / num_kv;
    struct share q = share_of(group, 1, rank - first, end - first);
    shard->first_kv_head = head;
    shard->num_kv_heads = 1;
    shard->first_head = head * group + q.first;
    shard->num_heads = q.count;
}

static bool are_heads_between_blocks(const struct model_config *config, int32_t block,
                                     const struct model_shard *shard) {
    int32_t end = shard->first_head + shard->num_heads, dim = model_config_value_dim(config);
    return shard->first_head * dim % block == 0 &&
           (end == config->num_heads || end * dim % block == 0);
}

/* A norm over all heads of k counts each head once for every rank that has it, so that number must
 * be the same for all heads. And no mean is taken over the ranks. */
static bool can_normalise(const struct model_config *config, int32_t num_ranks) {
    return config->qk_norm != QK_NORM_FULL ||
           (config->norm != NORM_LAYER &&
            (num_ranks <= config->num_kv_heads || num_ranks % config->num_kv_heads == 0));
}

/* Cuts for every rank, since one that cannot be cut is an error of all. */
static bool can_cut_heads(const struct model_config *config, int32_t block, int32_t step,
                          int32_t num_ranks) {
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        struct model_shard shard = {.rank = rank, .num_ranks = num_ranks};
        cut_heads(config, step, &shard);
        if (shard.num_heads <= 0 || !are_heads_between_blocks(config, block, &shard))
            return false;
    }
    return true;
}

/* Returns how many KV heads to assign at a time; 0 when it is impossible. */
static int32_t find_head_step(const struct model_config *config, int32_t block, int32_t num_ranks) {
    for (int32_t step = 1; step <= config->num_kv_heads; step++)
        if (can_cut_heads(config, block, step, num_ranks))
            return step;
    return 0;
}

/* The largest blocks of the matrices whose inputs are cut. */
struct cut_blocks {
    int32_t head, ffn, expert, shared;
};

static bool has_dense_layer(const struct model_config *config) {
    bool has = false;
    for (int32_t i = 0; i < config->num_layers; i++)
        has = has || !config->layers[i].is_sparse;
    return has;
}

static bool can_cut_inner(int32_t size, int32_t block, int32_t num_ranks) {
    return size == 0 || (size + block - 1) / block >= num_ranks;
}

static bool can_cut(const struct model_config *config, const struct cut_blocks *blocks,
                    int32_t num_ranks) {
    const struct moe_config *moe = &config->moe;
    return find_head_step(config, blocks->head, num_ranks) > 0 &&
           can_normalise(config, num_ranks) && config->vocab_size >= num_ranks &&
           (!has_dense_layer(config) ||
            can_cut_inner(config->intermediate_size, blocks->ffn, num_ranks)) &&
           can_cut_inner(moe->shared_size, blocks->shared, num_ranks) &&
           (can_cut_inner(moe->expert_size, blocks->expert, num_ranks) ||
            moe->num_experts >= num_ranks);
}

/* "1, 2 or 4": the numbers of ranks that the model can be cut for. */
static void list_possible(const struct model_config *config, const struct cut_blocks *blocks,
                          char *out, size_t capacity) {
    int32_t last = BACKEND_MAX_RANKS;
    size_t used = 0;
    while (last > 1 && !can_cut(config, blocks, last))
        last--;
    for (int32_t n = 1; n <= last && used < capacity; n++)
        if (n == 1 || can_cut(config, blocks, n))
            used += (size_t)snprintf(out + used, capacity - used, "%s%d",
                                     n == 1      ? ""
                                     : n == last ? " or "
                                                 : ", ",
                                     n);
}

static int refuse(const struct model_config *config, const struct cut_blocks *blocks,
                  int32_t num_ranks, struct error *err) {
    char possible[64];
    list_possible(config, blocks, possible, sizeof(possible));
    return error_set(err, ERROR_CONFIG,
                     "tensor-parallel-size: %d; %d query heads on %d KV heads and an FFN of %d, in "
                     "blocks of %d and %d, cannot be cut so: must be %s",
                     num_ranks, config->num_heads, config->num_kv_heads, config->intermediate_size,
                     blocks->head, blocks->ffn, possible);
}

/* The rank's share of `size` inner elements in blocks. */
static struct share inner_share(int32_t size, int32_t block, int32_t rank, int32_t num_ranks) {
    return share_of(size, choose_step(size, block, num_ranks), rank, num_ranks);
}

static void cut_ffn(const struct model_config *config, const struct cut_blocks *blocks,
                    struct model_shard *shard) {
    const struct moe_config *moe = &config->moe;
    int32_t rank = shard->rank, num_ranks = shard->num_ranks;
    struct share ffn = {0}, expert = {0, moe->expert_size}, experts = {0, moe->num_experts};
    if (has_dense_layer(config))
        ffn = inner_share(config->intermediate_size, blocks->ffn, rank, num_ranks);
    if (can_cut_inner(moe->expert_size, blocks->expert, num_ranks))
        expert = inner_share(moe->expert_size, blocks->expert, rank, num_ranks);
    else
        experts = share_of(moe->num_experts, 1, rank, num_ranks);
    struct share shared = inner_share(moe->shared_size, blocks->shared, rank, num_ranks);
    shard->first_intermediate = ffn.first;
    shard->intermediate_size = ffn.count;
    shard->first_expert = experts.first;
    shard->num_experts = experts.count;
    shard->first_expert_inner = expert.first;
    shard->expert_size = expert.count;
    shard->first_shared_inner = shared.first;
    shard->shared_size = shared.count;
}

int model_shard_init(const struct model *model, enum dtype quantization, int32_t rank,
                     int32_t num_ranks, struct model_shard *out, struct error *err) {
    const struct model_config *config = &model->config;
    CHECK(num_ranks > 0 && rank >= 0 && rank < num_ranks);
    struct cut_blocks blocks = {1, 1, 1, 1};
    if (num_ranks > 1) {
        blocks.head = largest_block(model, TENSOR_ATTENTION_OUT, quantization);
        blocks.ffn = largest_block(model, TENSOR_DOWN, quantization);
        blocks.expert = largest_block(model, TENSOR_EXPERT_DOWN, quantization);
        blocks.shared = largest_block(model, TENSOR_SHARED_DOWN, quantization);
        if (!can_cut(config, &blocks, num_ranks))
            return refuse(config, &blocks, num_ranks, err);
    }
    *out = (struct model_shard){.rank = rank,
                                .num_ranks = num_ranks,
                                .first_layer = config->is_mtp ? config->num_layers - 1 : 0,
                                .num_layers = config->is_mtp ? 1 : config->num_layers,
                                .has_embedding = true,
                                .has_head = true};
    cut_heads(config, find_head_step(config, blocks.head, num_ranks), out);
    cut_ffn(config, &blocks, out);
    struct share vocab = share_of(config->vocab_size, choose_step(config->vocab_size, 1, num_ranks),
                                  rank, num_ranks);
    out->first_vocab = vocab.first;
    out->vocab_size = vocab.count;
    return 0;
}

/* Of the embedding and of both branches of each layer; and of the squares of q and of k. */
static int64_t num_sums(const struct model_shard *shard) {
    return shard->has_embedding + 2 * (int64_t)shard->num_layers;
}

static int64_t num_norms(const struct model_shard *shard, const struct model_config *config) {
    return config->qk_norm == QK_NORM_FULL ? 2 * (int64_t)shard->num_layers : 0;
}

/* With the hidden state for the next stage. */
int64_t model_shard_token_traffic(const struct model_shard *shard,
                                  const struct model_config *config) {
    int64_t num_others = shard->num_ranks - 1;
    int64_t handed_on = shard->has_head ? 0 : 4 * (int64_t)config->hidden_size;
    return 8 * num_others * num_sums(shard) * config->hidden_size / shard->num_ranks +
           8 * num_others * num_norms(shard, config) + handed_on;
}

int64_t model_shard_row_traffic(const struct model_shard *shard) {
    int64_t num_answers = 3, answer_bytes = 24, num_requests = 2, request_bytes = 40;
    int64_t token_bytes = shard->has_embedding ? 4 : 0; /* for the next step */
    if (!shard->has_head || shard->num_ranks == 1)
        return 0;
    return shard->rank > 0 ? num_answers * answer_bytes
                           : (shard->num_ranks - 1) * (num_requests * request_bytes + token_bytes);
}

/* Each gets the parts of all. */
int64_t model_shard_gpu_token_traffic(const struct model_shard *shard,
                                      const struct model_config *config, int64_t activation_bytes,
                                      bool fast_sums) {
    int64_t num_others = shard->num_ranks - 1;
    int64_t hidden_bytes = config->hidden_size * activation_bytes;
    int64_t sum_bytes = num_others * num_sums(shard) * hidden_bytes;
    return (fast_sums ? 2 * sum_bytes / shard->num_ranks : sum_bytes) +
           4 * num_others * num_norms(shard, config) + (shard->has_head ? 0 : hidden_bytes);
}

int64_t model_shard_gpu_row_traffic(const struct model_shard *shard) {
    int64_t num_others = shard->num_ranks - 1, weights_bytes = 16, answer_bytes = 8;
    int64_t token_bytes = shard->has_embedding ? 4 : 0; /* for the next step */
    if (!shard->has_head)
        return 0;
    return num_others * weights_bytes + (shard->rank > 0 ? answer_bytes : num_others * token_bytes);
}

/* --- Stages --- */

/* Returns how many layers have as many weights as the head. */
static double head_in_layers(const struct model_config *config) {
    double hidden = config->hidden_size, q_width = (double)config->num_heads * config->head_dim;
    double kv_width = (double)config->num_kv_heads * config->head_dim;
    const struct moe_config *moe = &config->moe;
    double inner = 0; /* of the weights that a token takes, on average */
    for (int32_t i = 0; i < config->num_layers; i++)
        inner += config->layers[i].is_sparse
                     ? (double)moe->num_chosen * moe->expert_size + moe->shared_size
                     : config->intermediate_size;
    double layer = hidden * (2 * q_width + 2 * kv_width + 3.0 * inner / config->num_layers);
    return hidden * config->vocab_size / layer;
}

/* Every stage has a layer. */
static int32_t first_layer_of(const struct model_config *config, int32_t stage,
                              int32_t num_stages) {
    double work = config->num_layers + head_in_layers(config);
    int32_t even = (int32_t)(work * stage / num_stages + 0.5);
    return max_int32(min_int32(even, config->num_layers - (num_stages - stage)), stage);
}

static int cut_layers(const struct model_config *config, int32_t stage, int32_t num_stages,
                      struct model_shard *shard, struct error *err) {
    int32_t most = min_int32(config->num_layers, BACKEND_MAX_RANKS / shard->num_ranks);
    if (num_stages == 1)
        return 0; /* which has all of them */
    if (num_stages > most)
        return error_set(err, ERROR_CONFIG,
                         "pipeline-parallel-size: %d; %d layers in stages of %d rank%s each, of "
                         "which there are at most %d in all, cannot be cut so: must be 1 to %d",
                         num_stages, config->num_layers, shard->num_ranks,
                         shard->num_ranks == 1 ? "" : "s", BACKEND_MAX_RANKS, most);
    shard->first_layer = first_layer_of(config, stage, num_stages);
    shard->num_layers = first_layer_of(config, stage + 1, num_stages) - shard->first_layer;
    shard->has_embedding = stage == 0;
    shard->has_head = stage == num_stages - 1;
    return 0;
}

int model_shard_init_stage(const struct model *model, enum dtype quantization, int32_t number,
                           int32_t num_ranks, int32_t num_stages, struct model_shard *out,
                           struct error *err) {
    CHECK(num_stages > 0 && number >= 0 && number < num_ranks * num_stages);
    if (model_shard_init(model, quantization, number % num_ranks, num_ranks, out, err) != 0)
        return -1;
    return cut_layers(&model->config, number / num_ranks, num_stages, out, err);
}
