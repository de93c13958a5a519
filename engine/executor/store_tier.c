#include "engine/executor/store_tier.h"

#include <string.h>

static int32_t list_parts(const struct store_tier *tier, int32_t host_block,
                          struct kv_store_part parts[static KV_STORE_MAX_PARTS]) {
    struct host_pools pools;
    tier->executor->ops->host_pools(tier->executor, &pools);
    for (int32_t i = 0; i < pools.count; i++)
        parts[i] = (struct kv_store_part){.data = pools.data[i] +
                                                  (size_t)host_block * pools.block_bytes[i],
                                          .bytes = pools.block_bytes[i]};
    return pools.count;
}

static bool has(void *context, const struct block_content *content) {
    const struct store_tier *tier = context;
    return kv_store_has(tier->store, content);
}

static void expect(void *context, const struct block_content *content) {
    const struct store_tier *tier = context;
    kv_store_expect(tier->store, content);
}

static bool takes_writes(void *context) {
    const struct store_tier *tier = context;
    return kv_store_is_owner(tier->store);
}

static bool begin_write(void *context, const struct block_content *content, int32_t num_drafted,
                        int32_t host_block) {
    const struct store_tier *tier = context;
    struct kv_store_part parts[KV_STORE_MAX_PARTS];
    int32_t num_parts = list_parts(tier, host_block, parts);
    return kv_store_write(tier->store, content, num_drafted, parts, num_parts, host_block);
}

static bool begin_read(void *context, const struct block_content *content, int32_t host_block) {
    const struct store_tier *tier = context;
    struct kv_store_part parts[KV_STORE_MAX_PARTS];
    int32_t num_parts = list_parts(tier, host_block, parts);
    return kv_store_read(tier->store, content, parts, num_parts, host_block);
}

static bool next_done(void *context, struct kv_tier_done *out) {
    const struct store_tier *tier = context;
    struct kv_store_done done;
    if (!kv_store_next_done(tier->store, &done))
        return false;
    *out = (struct kv_tier_done){.host_block = done.tag,
                                 .is_read = done.is_read,
                                 .is_ok = done.is_ok,
                                 .num_drafted = done.num_drafted,
                                 .ns = done.ns};
    return true;
}

static int64_t reading_ns(void *context) {
    const struct store_tier *tier = context;
    return kv_store_reading_ns(tier->store);
}

static void drain(void *context) {
    const struct store_tier *tier = context;
    kv_store_drain(tier->store);
}

void store_tier_init(struct store_tier *tier, struct kv_store *store, struct executor *executor) {
    *tier = (struct store_tier){.tier = {.has = has,
                                         .expect = expect,
                                         .takes_writes = takes_writes,
                                         .write = begin_write,
                                         .read = begin_read,
                                         .next_done = next_done,
                                         .reading_ns = reading_ns,
                                         .drain = drain,
                                         .context = tier},
                                .store = store,
                                .executor = executor};
}

size_t store_tier_block_bytes(const struct executor_info *info) {
    size_t bytes = 0;
    for (int32_t i = 0; i < HOST_POOLS_PER_RANK * BACKEND_MAX_RANKS; i++)
        bytes += info->pool_block_bytes[i];
    return bytes;
}
