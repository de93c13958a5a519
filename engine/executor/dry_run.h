/* Runs steps of all sizes, the largest first, once before the KV block pool is allocated: whatever
 * the device's libraries take on first use is then taken, so that memory_info says what is left for
 * the pool, and no request waits for it. */
#ifndef QUIRE_ENGINE_EXECUTOR_DRY_RUN_H
#define QUIRE_ENGINE_EXECUTOR_DRY_RUN_H

#include "engine/executor/device_watch.h"
#include "models/llama.h"

/* Runs a step of max_num_batched_tokens tokens over max_num_seqs sequences and, going down by
 * powers of two and one and a half of them, all smaller ones. Each sequence samples a token with
 * every feature of sampling on and has its hidden states summed, and the first is max_model_len
 * long. All of them live in block 0 of the cache, which each step copies to block 1: what is
 * computed means nothing. limits->num_blocks is not read. The watch sees each step; NULL: none. */
int dry_run(struct backend *b, struct llama *llama, struct kv_cache *cache,
            const struct serving_limits *limits, struct device_watch *watch, struct error *err);

#endif
