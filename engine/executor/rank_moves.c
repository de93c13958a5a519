#include "engine/executor/rank.h"

#include "config/base/check.h"
#include "config/base/clock.h"

#define MEASURED_BYTES ((size_t)4 << 20)
#define MEASURED_ROUNDS 3
#define MEASURED_BLOCKS 64

static void swap(struct backend *b, struct kv_cache *cache, void *host_pool,
                 enum swap_direction direction, const struct block_pairs *pairs) {
    if (pairs->count == 0)
        return;
    CHECK(host_pool != NULL);
    bool out = direction == SWAP_OUT;
    b->ops->swap_blocks(b,
                        &(struct swap_blocks_args){.cache = cache,
                                                   .host_pool = host_pool,
                                                   .direction = direction,
                                                   .device_blocks = out ? pairs->from : pairs->to,
                                                   .host_blocks = out ? pairs->to : pairs->from,
                                                   .num_blocks = pairs->count});
}

void rank_moves_enqueue(struct backend *b, struct kv_cache *cache, void *host_pool,
                        const struct batch *batch) {
    swap(b, cache, host_pool, SWAP_OUT, &batch->swap_out);
    swap(b, cache, host_pool, SWAP_IN, &batch->swap_in);
    if (batch->copies.count > 0)
        b->ops->copy_blocks(b, &(struct copy_blocks_args){.cache = cache,
                                                          .src = batch->copies.from,
                                                          .dst = batch->copies.to,
                                                          .num_blocks = batch->copies.count});
}

/* The first round makes the system provide the pages. Of the other rounds the fastest counts,
 * because other work on the machine can only make it slower. */
int rank_moves_measure(struct backend *b, struct kv_cache *cache, void *host_pool,
                       int32_t num_host_blocks, int64_t *out_ns, struct error *err) {
    int32_t blocks[MEASURED_BLOCKS];
    int32_t most = (int32_t)(MEASURED_BYTES / kv_block_bytes(&cache->layout)), count = 0;
    for (; count < MEASURED_BLOCKS && count < cache->num_blocks && count < num_host_blocks &&
           (count == 0 || count < most);
         count++)
        blocks[count] = count;
    CHECK(count > 0);
    const struct block_pairs pairs = {.count = count, .from = blocks, .to = blocks};
    int64_t best = INT64_MAX;
    for (int round = 0; round <= MEASURED_ROUNDS; round++) {
        int64_t begin = clock_now_ns();
        swap(b, cache, host_pool, SWAP_OUT, &pairs);
        swap(b, cache, host_pool, SWAP_IN, &pairs);
        if (b->ops->synchronize(b, err) != 0)
            return -1;
        int64_t taken = clock_now_ns() - begin;
        if (round > 0 && taken < best)
            best = taken;
    }
    int64_t each = best / (2 * (int64_t)count);
    *out_ns = each > 0 ? each : 1;
    return 0;
}

/* The first failure counts; what was to be written after it may be missing. */
void rank_write_adapters(struct rank *rank, const struct batch *batch) {
    CHECK(batch->num_adapter_writes == 0 || rank->lora != NULL);
    for (int32_t i = 0; i < batch->num_adapter_writes; i++) {
        const struct adapter_write *write = &batch->adapter_writes[i];
        struct error err = {0};
        if (lora_slots_write(rank->lora, write->slot, &write->rows,
                             batch->adapter_data + write->first_byte, &err) != 0 &&
            rank->failure.code == ERROR_NONE)
            error_set(&rank->failure, ERROR_DEVICE, "cannot write an adapter: %.400s", err.message);
    }
}
