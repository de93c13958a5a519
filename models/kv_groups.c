#include "models/kv_groups.h"

#include "config/base/numbers.h"

/* Length in windows of the sequences that memory is weighed for. */
#define WEIGHED_WINDOWS 8

/* By whether they have a window. */
struct counts {
    int32_t full, windowed;
};

static struct counts count_layers(const struct model_config *config, int32_t first, int32_t end) {
    struct counts counts = {0};
    for (int32_t i = first; i < end; i++)
        *(config->layers[i].window > 0 ? &counts.windowed : &counts.full) += 1;
    return counts;
}

static int32_t quotient_up(int32_t a, int32_t b) {
    return a / b + (a % b != 0);
}

/* Returns the groups that layers take if a block has places for `num_places`. */
static struct counts groups_of(const struct counts *layers, int32_t num_places) {
    return (struct counts){quotient_up(layers->full, num_places),
                           quotient_up(layers->windowed, num_places)};
}

void kv_groups_choose(const struct model_config *config, struct serving_limits *limits) {
    const struct counts layers = count_layers(config, 0, config->num_layers);
    int32_t least = WEIGHED_WINDOWS * config->num_layers, longest = 0;
    limits->window = model_window(config);
    limits->num_groups = 1;
    limits->num_full_groups = 0;
    for (int32_t i = 0; i < config->num_layers; i++)
        longest = max_int32(longest, config->layers[i].window);
    if (layers.full == 0 || layers.windowed == 0 ||
        (limits->max_model_len > 0 && limits->max_model_len <= longest))
        return;
    for (int32_t places = config->num_layers; places > 0; places--) {
        const struct counts groups = groups_of(&layers, places);
        int32_t cost = places * (WEIGHED_WINDOWS * groups.full + groups.windowed);
        if (cost >= least || groups.full + groups.windowed > KV_GROUPS_MOST)
            continue;
        least = cost;
        limits->window = longest;
        limits->num_groups = groups.full + groups.windowed;
        limits->num_full_groups = groups.full;
    }
}

int32_t kv_groups_layers(const struct model_config *config, const struct model_shard *shard,
                         const struct serving_limits *limits) {
    int32_t num_full = limits->num_full_groups;
    if (num_full == 0)
        return shard->num_layers;
    const struct counts layers =
        count_layers(config, shard->first_layer, shard->first_layer + shard->num_layers);
    return max_int32(quotient_up(layers.full, num_full),
                     quotient_up(layers.windowed, limits->num_groups - num_full));
}

struct kv_place kv_groups_place(const struct model_config *config, const struct model_shard *shard,
                                const struct serving_limits *limits, int32_t layer) {
    if (limits->num_full_groups == 0)
        return (struct kv_place){.layer = layer - shard->first_layer};
    const struct counts before = count_layers(config, shard->first_layer, layer);
    int32_t places = kv_groups_layers(config, shard, limits);
    bool is_windowed = config->layers[layer].window > 0;
    int32_t first = is_windowed ? limits->num_full_groups : 0;
    int32_t index = is_windowed ? before.windowed : before.full;
    return (struct kv_place){.group = first + index / places, .layer = index % places};
}
