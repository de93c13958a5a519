/* How a model's layers are divided into groups (serving_limits.h), and which of a group's blocks
 * hold which layer. A block has places for as many layers as the largest group has: groups of
 * different sizes leave some of them empty. Plain arithmetic, any thread. */
#ifndef QUIRE_MODELS_KV_GROUPS_H
#define QUIRE_MODELS_KV_GROUPS_H

#include "config/serving_limits.h"
#include "models/weights/model_shard.h"

/* A step has slots and tables for each group. */
#define KV_GROUPS_MOST 8

/* Sets the limits' window and groups: those that waste the least memory for sequences of several
 * windows. One group if all layers see the same, if no sequence of max_model_len tokens (0: not
 * known) is longer than the window, or if others save nothing. */
void kv_groups_choose(const struct model_config *config, struct serving_limits *limits);

struct kv_place {
    int32_t group;
    int32_t layer; /* of the group's blocks */
};

/* Return how many layers a block holds on a rank, and where one of its layers is. Stages have
 * different layers in the same groups. */
int32_t kv_groups_layers(const struct model_config *config, const struct model_shard *shard,
                         const struct serving_limits *limits);
struct kv_place kv_groups_place(const struct model_config *config, const struct model_shard *shard,
                                const struct serving_limits *limits, int32_t layer);

#endif
