#include "models/weights/model_shard.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/backend.h"
#include "models/config/tensor_names.h"

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
        const struct tensor_place place = {role, layer};
        const struct tensor_info *tensor = tensor_names_find(model, place, "weight");
        if (tensor == NULL || tensor->unsupported != NULL || tensor->num_dims != 2)
            continue; /* loading will say so */
        enum dtype held = model_held_dtype(quantization, tensor->dtype, tensor->shape[1]);
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
    int32_t end = shard->first_head + shard->num_heads;
    return shard->first_head * config->head_dim % block == 0 &&
           (end == config->num_heads || end * config->head_dim % block == 0);
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

static bool can_cut(const struct model_config *config, int32_t head_block, int32_t ffn_block,
                    int32_t num_ranks) {
    return find_head_step(config, head_block, num_ranks) > 0 && can_normalise(config, num_ranks) &&
           (config->intermediate_size + ffn_block - 1) / ffn_block >= num_ranks &&
           config->vocab_size >= num_ranks;
}

/* "1, 2 or 4": the numbers of ranks that the model can be cut for. */
static void list_possible(const struct model_config *config, int32_t head_block, int32_t ffn_block,
                          char *out, size_t capacity) {
    int32_t last = BACKEND_MAX_RANKS;
    size_t used = 0;
    while (last > 1 && !can_cut(config, head_block, ffn_block, last))
        last--;
    for (int32_t n = 1; n <= last && used < capacity; n++)
        if (n == 1 || can_cut(config, head_block, ffn_block, n))
            used += (size_t)snprintf(out + used, capacity - used, "%s%d",
                                     n == 1      ? ""
                                     : n == last ? " or "
                                                 : ", ",
                                     n);
}

static int refuse(const struct model_config *config, int32_t head_block, int32_t ffn_block,
                  int32_t num_ranks, struct error *err) {
    char possible[64];
    list_possible(config, head_block, ffn_block, possible, sizeof(possible));
    return error_set(err, ERROR_CONFIG,
                     "tensor-parallel-size: %d; %d query heads on %d KV heads and an FFN of %d, in "
                     "blocks of %d and %d, cannot be cut so: must be %s",
                     num_ranks, config->num_heads, config->num_kv_heads, config->intermediate_size,
                     head_block, ffn_block, possible);
}

int model_shard_init(const struct model *model, enum dtype quantization, int32_t rank,
                     int32_t num_ranks, struct model_shard *out, struct error *err) {
    const struct model_config *config = &model->config;
    CHECK(num_ranks > 0 && rank >= 0 && rank < num_ranks);
    int32_t head_block = 1, ffn_block = 1;
    if (num_ranks > 1) {
        head_block = largest_block(model, TENSOR_ATTENTION_OUT, quantization);
        ffn_block = largest_block(model, TENSOR_DOWN, quantization);
        if (!can_cut(config, head_block, ffn_block, num_ranks))
            return refuse(config, head_block, ffn_block, num_ranks, err);
    }
    *out = (struct model_shard){.rank = rank,
                                .num_ranks = num_ranks,
                                .num_layers = config->num_layers,
                                .has_embedding = true,
                                .has_head = true};
    cut_heads(config, find_head_step(config, head_block, num_ranks), out);
    struct share ffn =
        share_of(config->intermediate_size,
                 choose_step(config->intermediate_size, ffn_block, num_ranks), rank, num_ranks);
    struct share vocab = share_of(config->vocab_size, choose_step(config->vocab_size, 1, num_ranks),
                                  rank, num_ranks);
    out->first_intermediate = ffn.first;
    out->intermediate_size = ffn.count;
    out->first_vocab = vocab.first;
    out->vocab_size = vocab.count;
    return 0;
}

/* Sums of the embedding and of both branches of each layer, and of the squares of q and of k; and
 * the hidden state for the next stage. */
int64_t model_shard_token_traffic(const struct model_shard *shard,
                                  const struct model_config *config) {
    int64_t num_others = shard->num_ranks - 1, num_branches = 2 * (int64_t)shard->num_layers;
    int64_t num_sums = shard->has_embedding + num_branches;
    int64_t num_norms = config->qk_norm == QK_NORM_FULL ? num_branches : 0;
    int64_t handed_on = shard->has_head ? 0 : 4 * (int64_t)config->hidden_size;
    return 8 * num_others * num_sums * config->hidden_size / shard->num_ranks +
           8 * num_others * num_norms + handed_on;
}

int64_t model_shard_row_traffic(const struct model_shard *shard) {
    int64_t num_answers = 3, answer_bytes = 24, num_requests = 2, request_bytes = 40;
    int64_t token_bytes = shard->has_embedding ? 4 : 0; /* for the next step */
    if (!shard->has_head || shard->num_ranks == 1)
        return 0;
    return shard->rank > 0 ? num_answers * answer_bytes
                           : (shard->num_ranks - 1) * (num_requests * request_bytes + token_bytes);
}

/* --- Stages --- */

/* Returns how many layers have as many weights as the head. */
static double head_in_layers(const struct model_config *config) {
    double hidden = config->hidden_size, q_width = (double)config->num_heads * config->head_dim;
    double kv_width = (double)config->num_kv_heads * config->head_dim;
    double layer = hidden * (2 * q_width + 2 * kv_width + 3.0 * config->intermediate_size);
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
